"""Nodes by switch: as a table, JSON, Slurm's topology.conf and topology.yaml, labels for Kubernetes.

Slurm: topology.conf(5) and topology.yaml(5) of schedmd.com. Labels: what NVIDIA's topograph writes and
Kueue's topology-aware scheduling reads, `network.topology.nvidia.com/leaf` unless another is asked for.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.errors import UsageError, escaped
from wirespeed.launchers.node_lists import expand, split_list
from wirespeed.views.text import Grid, Style, counted

if TYPE_CHECKING:
    from wirespeed.locate.grouping import Switches

FORMATS = ("table", "json", "slurm", "slurm-yaml", "k8s-labels")
LABEL = "network.topology.nvidia.com/leaf"
CORE, UNKNOWN = "core", "unknown"
"""Switches that no figures tell: what joins the leaves, and the leaf of nodes that are not clear."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_KEY = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII)


def render(
    found: "Switches", format: str, style: Style, names: Mapping[str, str], label: str
) -> str:
    """names: what the orchestrator calls a node, where that is not its host name."""
    if format in ("slurm", "slurm-yaml", "k8s-labels"):
        refuse_strange((*(name for leaf in found.leaves for name in leaf), *found.unsure))
    match format:
        case "json":
            return escaped(json.dumps(_data(found), indent=1)) + "\n"
        case "slurm":
            return _slurm(found)
        case "slurm-yaml":
            return _slurm_yaml(found)
        case "k8s-labels":
            return _labels(found, names, label)
    return _table(found, style)


def refuse_strange(names: Iterable[str]) -> None:
    """UsageError for a name that is no host's: nothing else may get into a file of a scheduler."""
    for name in names:
        if not _HOST.fullmatch(name):
            raise UsageError(
                f"{name[:80]!r} is not the name of a node",
                expected="letters, digits, dots and hyphens; `locate --over ranks` has no nodes",
            )


def hostlist(names: Collection[str]) -> str:
    """`node-[0-3,7],login` of names in any order, as `scontrol show hostlist` would."""
    numbered = {name: match for name in set(names) if (match := _NUMBERED.fullmatch(name))}
    padded = {(m[1], len(m[2])) for m in numbered.values() if m[2][0] == "0" and len(m[2]) > 1}
    found: dict[tuple[str, int], list[int]] = {}
    for match in numbered.values():
        width = len(match[2]) if (match[1], len(match[2])) in padded else 0
        found.setdefault((match[1], width), []).append(int(match[2]))
    ranges = [
        f"{prefix}{_bracketed(sorted(numbers), width)}"
        for (prefix, width), numbers in sorted(found.items())
    ]
    return ",".join([*ranges, *sorted(set(names) - set(numbered))])


def _bracketed(numbers: Sequence[int], width: int) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]:0{width}}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = (f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs)
    return f"[{','.join(told)}]"


def expanded(text: str) -> list[str]:
    """The names that a host list means, such as `node-[0-3,7],login`. UsageError for what is none."""
    words = split_list(text)
    if words[-1] == "" and len(words) > 1:  # a comma at the end
        words.pop()
    names = [name for word in words for name in expand(word)]
    refuse_strange(names)
    return list(dict.fromkeys(names))


def named(found: "Switches") -> list[tuple[str, tuple[str, ...]]]:
    """(leaf1, its nodes), …; at last the nodes that are not clear, if there are any."""
    leaves = [(f"leaf{number}", nodes) for number, nodes in enumerate(found.leaves, 1)]
    return [*leaves, (UNKNOWN, found.unsure)] if found.unsure else leaves


def summary(found: "Switches") -> str:
    """What it is known from, in one line."""
    grouping = found.grouping
    text = "1 leaf switch" if len(found.leaves) == 1 else f"{len(found.leaves):,} leaf switches"
    text += f", from {counted(grouping.pairs, 'pair', ',')}"
    if len(found.leaves) == 1 and not found.unsure:
        return (
            f"{text}: no difference stands out, and one of {grouping.would_show - 1:.0%} would have"
        )
    does = "answer each other" if grouping.by == "latency" else "send to each other"
    how = "sooner" if grouping.by == "latency" else "faster"
    text += f": nodes of one {does} {grouping.apart:.2f} times {how}"
    return text + (f"; {counted(len(found.unsure), 'node')} not clear" if found.unsure else "")


def _table(found: "Switches", style: Style) -> str:
    grid = Grid.of("<switch|nodes|<which")
    for name, nodes in named(found):
        grid.add(name if name != UNKNOWN else "not clear", str(len(nodes)), hostlist(nodes))
    said = style.paint(style.text(summary(found)), "dim")
    return "\n".join([said, "", *grid.lines(style)]) + "\n"


def _data(found: "Switches") -> dict[str, Any]:
    grouping = found.grouping
    return {
        "switches": [
            {"name": f"leaf{number}", "nodes": list(nodes)}
            for number, nodes in enumerate(found.leaves, 1)
        ],
        "not_clear": list(found.unsure),
        "pairs": grouping.pairs,
        "by": grouping.by,
        "apart": grouping.apart,
    }


def _slurm(found: "Switches") -> str:
    lines = _comments(found, "TopologyPlugin=topology/tree in slurm.conf; this is topology.conf.")
    leaves = named(found)
    lines += [f"SwitchName={name} Nodes={hostlist(nodes)}" for name, nodes in leaves]
    lines.append(f"SwitchName={CORE} Switches={hostlist([name for name, _ in leaves])}")
    return "\n".join(lines) + "\n"


def _slurm_yaml(found: "Switches") -> str:
    leaves = named(found)
    lines = _comments(found, "topology.yaml of Slurm 25.05 and newer.")
    lines += ["---", "- topology: measured", "  cluster_default: true", "  tree:", "    switches:"]
    lines += [
        f"      - switch: {CORE}",
        f"        children: {hostlist([name for name, _ in leaves])}",
    ]
    for name, nodes in leaves:
        lines += [f"      - switch: {name}", f"        nodes: {hostlist(nodes)}"]
    return "\n".join(lines) + "\n"


def _comments(found: "Switches", what: str) -> list[str]:
    lines = [f"# {what}", f"# Measured: {summary(found)}."]
    if found.unsure:
        lines.append(
            f"# Slurm wants each node somewhere: {UNKNOWN} holds those that are not clear."
        )
    return [*lines, "# Nodes that were never measured are missing here; add them by hand."]


def _labels(found: "Switches", names: Mapping[str, str], label: str) -> str:
    """A list of nodes with nothing but their label, for `kubectl apply --server-side`."""
    if not _KEY.fullmatch(label):
        raise UsageError(f"--label {label[:80]!r} is no key of a label", expected=LABEL)
    called = [names.get(node, node) for leaf in found.leaves for node in leaf]
    refuse_strange(called)
    lines = [
        f"# Measured: {summary(found)}.",
        "# kubectl apply --server-side --field-manager=wirespeed -f FILE",
        "apiVersion: v1",
        "kind: List",
        "items:",
    ]
    for number, leaf in enumerate(found.leaves, 1):
        for node in leaf:
            lines += ["- apiVersion: v1", "  kind: Node", "  metadata:"]
            lines += [f"    name: {json.dumps(names.get(node, node))}"]
            lines += ["    labels:", f"      {json.dumps(label)}: leaf{number}"]
    return "\n".join(lines) + "\n"
