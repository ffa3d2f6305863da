"""How a check of each node by itself becomes findings: one a faulty node, else one for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.checks.registry import EXPLAINED
from wirespeed.model.records import Finding, NodeFacts, Subject
from wirespeed.model.units import counted


@dataclass(frozen=True, slots=True)
class Blind:
    """A node on which something could not be checked."""

    because: str


Judge = Callable[[NodeFacts], Finding | Blind | None]
"""A node's finding, why it could not be checked, or None where all is good."""


def worse(
    id: str, status: Literal["warn", "fail"], node: NodeFacts, title: str, **said: Any
) -> Finding:
    """What is always said of that id, about one node; `said` are further fields of the finding."""
    who = Subject("node", node.host)
    told = {**EXPLAINED[id].words, "next": f"wirespeed check --only {id}", **said}
    return Finding(id=id, status=status, title=f"{node.host}: {title}", subject=who, **told)


def tell(id: str, case: str, **values: Any) -> Finding:
    """What findings.yaml has for that case of an id: see `FindingText.finding` for the values."""
    return EXPLAINED[id].finding(case, **values)


def on_node(id: str, case: str, node: NodeFacts, **values: Any) -> Finding:
    """The same about one node, whose name the title has as `host`."""
    told = {"host": node.host, "next": f"wirespeed check --only {id}", **values}
    return tell(id, case, subject=Subject("node", node.host), **told)


def absent(id: str, title: str, because: str) -> Finding:
    return Finding(id=id, status="not_checked", title=title, because=because)


def judge_nodes(
    id: str,
    nodes: Sequence[NodeFacts],
    judge: Judge,
    *,
    good: str = "",
    none: str = "no node",
    saw: str = "",
) -> list[Finding]:
    """The findings of one check over the nodes that it applies to.

    good: what is so on good nodes, else findings.yaml says it; none: why there is no node to check;
    saw: what a pass should tell besides.
    """
    about, good = EXPLAINED[id].about, good or EXPLAINED[id].good
    if not nodes:
        return [absent(id, f"{about} not checked", none)]
    judged = [(node, judge(node)) for node in nodes]
    found = [verdict for _, verdict in judged if isinstance(verdict, Finding)]
    blind = [(node, why.because) for node, why in judged if isinstance(why, Blind)]
    if blind:
        found.append(_unchecked(id, about, blind, len(nodes)))
    title = f"{good} on {counted(len(nodes), 'node')}"
    return found or [Finding(id=id, status="pass", title=title, saw=saw)]


def _unchecked(id: str, about: str, blind: Sequence[tuple[NodeFacts, str]], nodes: int) -> Finding:
    """One finding for all of them, with every reason that occurs and the first node that has it."""
    reasons: dict[str, list[str]] = {}
    for node, because in blind:
        reasons.setdefault(because, []).append(node.host)
    if len(blind) == nodes and len(reasons) == 1:
        return absent(id, f"{about} not checked", blind[0][1])
    texts = (
        f"{hosts[0]}{f' and {len(hosts) - 1} more' if len(hosts) > 1 else ''}: {because}"
        for because, hosts in reasons.items()
    )
    return absent(id, f"{about} not checked on {len(blind)} of {nodes} nodes", "; ".join(texts))
