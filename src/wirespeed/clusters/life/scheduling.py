"""The scheduler's words, cause by cause: `0/3 nodes are available: 2 Insufficient cpu, 1 node(s) …`.

https://kubernetes.io/docs/concepts/scheduling-eviction/ and pkg/scheduler/framework of Kubernetes;
the words are those of 1.20 to 1.33.
"""

import re
from dataclasses import dataclass

__all__ = ["Reason", "finding_id", "reasons"]

_HEAD = re.compile(r"\d+/\d+ nodes are available:? ?(.*)", re.DOTALL)
_TAIL = re.compile(r"\.? (?:preemption|no new claims to deallocate).*", re.DOTALL)
_ONE = re.compile(r"(\d+) (.+?)(?=, \d+ |$)")
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (r"Insufficient (\S+)", "001", "{0} is not free there"),
    (r"anti-affinity", "002", "another pod of this environment runs there, or wants to be alone"),
    (
        r"didn't match pod affinity|pod affinity rules",
        "009",
        "it is not in the zone of the other pods (nodes.same_zone)",
    ),
    (r"unbound immediate PersistentVolumeClaims", "004", "a claim waits for its volume"),
    (r"persistentvolumeclaim \"([^\"]+)\" not found", "004", "there is no claim {0}"),
    (r"volume node affinity conflict", "004", "the claim's volume lies in another place"),
    (r"find available persistent volumes", "004", "no volume there fits the claim"),
    (r"node\.kubernetes\.io/(?:not-ready|unreachable)", "013", "the node does not answer"),
    (r"unschedulable", "009", "the node is cordoned"),
    (r"taint", "009", "nodes.tolerations does not bear it"),
    (
        r"node selector|node affinity|NodeAffinity",
        "009",
        "nodes.node_selector, nodes.gpu_nodes or gpus.type does not name it",
    ),
    (r"free ports", "009", "a port of the node is taken"),
    (r"Too many pods", "001", "the node has no room for one more pod"),
)
_GRAVEST = ("004", "001", "009", "013", "002")
"""Which id names a mixture: nodes that our own pods take are no cause while others could take one."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why so many nodes take the pod not."""

    nodes: int
    words: str
    meaning: str
    id: str

    def __str__(self) -> str:
        told = f": {self.meaning}" if self.meaning else ""
        return f"{self.nodes} node{'' if self.nodes == 1 else 's'}: {self.words}{told}"


def reasons(message: str) -> tuple[Reason, ...]:
    """Empty where the message has another form."""
    match = _HEAD.search(" ".join(message.split()))
    if match is None:
        return ()
    told = _TAIL.sub("", match[1]).rstrip(". ")
    return tuple(_reason(int(count), words.strip()) for count, words in _ONE.findall(told))


def finding_id(found: tuple[Reason, ...]) -> str:
    """Of the finding that tells them together."""
    there = {one.id for one in found}
    return f"CLUSTER-{next((one for one in _GRAVEST if one in there), '009')}"


def _reason(nodes: int, words: str) -> Reason:
    for pattern, ident, meaning in _MEANINGS:
        if match := re.search(pattern, words):
            return Reason(nodes, words, meaning.format(*match.groups()), ident)
    return Reason(nodes, words, "", "009")
