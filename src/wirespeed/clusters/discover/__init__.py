"""A cluster file from a live cluster: each key says what was found and what was guessed.

Whatever the cluster told stays data, in values and in comments.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.discover.inventory import (
    Entry,
    Found,
    Group,
    guess_fabric,
    guess_nodes,
    guess_storage,
    largest_group,
    look,
    product_of,
)
from wirespeed.clusters.kube import Kubectl, Progress
from wirespeed.clusters.operations.pod_lookup import Node

_LONGEST = 300
_WIDTH = 98


def inert(text: str) -> str:
    """One line without anything that steers a terminal or ends a comment."""
    clean = "".join(one if one.isprintable() else " " for one in text[: _LONGEST + 1])
    return clean if len(clean) <= _LONGEST else clean[:_LONGEST] + "…"


def fits(entry: Entry) -> bool:
    """Whether the key may have this value; what a hostile cluster told does not get further."""
    from pydantic import ValidationError

    from wirespeed.clusters.file import ClusterFile

    told: dict[str, Any] = {"cluster": {"name": "a"}}
    place = told
    for key in entry.path[:-1]:
        place = place.setdefault(key, {})
    place[entry.path[-1]] = entry.value
    try:
        ClusterFile.model_validate(told)
    except ValidationError:
        return False
    return True


def written(head: Sequence[str], entries: Sequence[Entry]) -> str:
    """The file's text; entries that do not fit become remarks."""
    kept = [one for one in entries if fits(one)]
    lines = [_comment(one, 0) for one in head]
    for one in entries:
        if one not in kept:
            told = f"{'.'.join(one.path)}: {one.value!r}"
            lines.append(_comment(f"not taken, since the key cannot have it: {told}", 0))
    for section in dict.fromkeys(one.path[0] for one in kept):
        lines += ["", f"{section}:"]
        lines += _keys([one for one in kept if one.path[0] == section], 1)
    return "\n".join(lines) + "\n"


def _keys(entries: Sequence[Entry], depth: int) -> list[str]:
    """Keys of one mapping in the order of the entries; deeper ones after the plain ones."""
    indent = "  " * depth
    lines = []
    for one in entries:
        if len(one.path) == depth + 1:
            lines.append(_comment(f"{'guess' if one.guessed else 'found'}: {one.why}", depth))
            lines.append(f"{indent}{one.path[depth]}: {_value(one.value)}")
    deeper = dict.fromkeys(one.path[depth] for one in entries if len(one.path) > depth + 1)
    for name in deeper:
        lines.append(f"{indent}{name}:")
        below = [one for one in entries if len(one.path) > depth + 1 and one.path[depth] == name]
        lines += _keys(below, depth + 1)
    return lines


def _comment(text: str, depth: int) -> str:
    from textwrap import fill

    indent = "  " * depth + "# "
    clean = inert(text)
    return fill(
        clean, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ",
        break_long_words=False, break_on_hyphens=False,
    ) or "#"  # fmt: skip


def _value(value: Any) -> str:
    """On one line; text in double quotes, so that nothing in it means anything to YAML."""
    import yaml

    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    if isinstance(value, str):
        quoted: str = yaml.safe_dump(value, default_style='"', width=10**9)
        return quoted.rstrip("\n")
    return str(value).lower()


_OPERATORS = {
    "mpijobs.kubeflow.org": "CRD of the MPI operator: engine mpijob works where it runs",
    "trainjobs.trainer.kubeflow.org": "CRD of Kubeflow Trainer: engine trainjob works where it runs",
    "jobsets.jobset.x-k8s.io": "CRD of JobSet: engine jobset works where it runs",
    "localqueues.kueue.x-k8s.io": "Kueue: workload.queue takes a queue's name",
    "network-attachment-definitions.k8s.cni.cncf.io": "Multus: network.rdma.networks works",
    "clusterpolicies.nvidia.com": "NVIDIA GPU operator",
    "nicclusterpolicies.mellanox.com": "NVIDIA network operator",
    "sriovnetworknodepolicies.sriovnetwork.openshift.io": "SR-IOV network operator",
}
_SHOWN = 32
_LOCK = "IPC_LOCK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """A cluster file, and what to say of it."""

    name: str
    text: str
    summary: str


def discover(
    kubectl: Kubectl,
    *,
    name: str,
    namespace: str,
    context: str,
    kubeconfig: str,
    progress: Progress,
) -> Discovered:
    """Ask the cluster; empty texts mean what kubectl would take by itself. CannotMeasure if silent."""
    found = look(kubectl, namespace, progress)
    given = [
        Entry(("cluster", key), value, "as you gave it")
        for key, value in (("context", context), ("kubeconfig", kubeconfig))
        if value
    ]
    return file_of(found, name=name, given=tuple(given))


def file_of(found: Found, *, name: str = "", given: tuple[Entry, ...] = ()) -> Discovered:
    """The file of what was found."""
    group = largest_group(found.nodes)
    guesses = (guess_nodes(found, group), guess_fabric(found, group), guess_storage(found))
    entries = [*_cluster(found, name, given)]
    for guess in guesses:
        entries += guess.entries
    remarks = [remark for guess in guesses for remark in guess.remarks]
    remarks += [*_openshift(found), *_operators(found)]
    remarks += [f"could not be read: {one}" for one in found.unread]
    head = [*_head(found, group), "", *(f"- {one}" for one in remarks)]
    return Discovered(
        name=entries[0].value, text=written(head, entries), summary=_summary(found, group)
    )


def _cluster(found: Found, name: str, given: tuple[Entry, ...]) -> list[Entry]:
    if name:
        first = Entry(("cluster", "name"), name, "as you gave it")
    else:
        why = "after the context; objects are named after it"
        first = Entry(("cluster", "name"), _name_from(found.context), why, guessed=True)
    entries = [first, Entry(("cluster", "namespace"), found.namespace, "kubectl's, or as given")]
    if found.namespace_missing:
        entries.append(
            Entry(("cluster", "create_namespace"), True, "the namespace is not there", guessed=True)
        )
    if found.server:
        why = "nothing is done where kubectl would talk to another server"
        entries.append(Entry(("cluster", "api"), found.server, why))
    return [*entries, *given]


def _name_from(context: str) -> str:
    """`kind-lab`, or the last part of such as `arn:aws:eks:eu-west-1:1:cluster/lab`."""
    last = context.rstrip("/").rpartition("/")[2] if context.startswith("arn:") else context
    plain = re.sub(r"[^a-z0-9]+", "-", last.lower()).lstrip("-0123456789")[:40].strip("-")
    return plain or "cluster"


def _head(found: Found, group: Group) -> list[str]:
    version = found.version or "an unknown version"
    lines = [
        f"Made by `wirespeed cluster discover` from {found.server or 'the cluster'}: Kubernetes "
        f"{version}, {len(found.nodes)} nodes. Each key says whether it was found or guessed; "
        "all other keys have their defaults (wirespeed cluster schema).",
        "",
        f"nodes that this file is for ({len(group.nodes)}):",
    ]
    lines += [f"  {_row(one, group)}" for one in group.nodes[:_SHOWN]]
    if len(group.nodes) > _SHOWN:
        lines.append(f"  and {len(group.nodes) - _SHOWN} more")
    return lines


def _row(one: Node, group: Group) -> str:
    gpus = f"{group.count} x {group.resource}" if group.resource else "no GPU"
    parts = (one.name, gpus, product_of(one), one.zone)
    return "  ".join(part for part in parts if part)


def _operators(found: Found) -> list[str]:
    told = [text for kind, text in _OPERATORS.items() if kind in found.kinds]
    if found.queues:
        told.append(f"queues of {found.namespace}: {', '.join(found.queues[:16])}")
    missing = "no operator for jobs is installed: workload.engine statefulset needs none"
    return told or [missing]


def _openshift(found: Found) -> list[str]:
    """Which constraints would let a pod lock memory; which one a pod gets depends on its account."""
    if not found.sccs:
        return []
    able = sorted(name for name, allowed in found.sccs.items() if {_LOCK, "*"} & set(allowed))
    return [
        f"OpenShift: {len(found.sccs)} security context constraints; those that allow {_LOCK}: "
        f"{', '.join(able) or 'none'}. security.ipc_lock and presets for RDMA need one of them for "
        "the pods' account (security.service_account, or security.requires_privileged_scc)"
    ]


def _summary(found: Found, group: Group) -> str:
    gpus = f"{group.count} x {group.resource} each" if group.resource else "no GPUs"
    unread = f"; {len(found.unread)} things could not be read" if found.unread else ""
    return inert(f"{len(group.nodes)} of {len(found.nodes)} nodes, {gpus}{unread}")
