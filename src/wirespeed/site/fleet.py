"""What the pages about nodes are made of: states in groups, and what changed since yesterday."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from markupsafe import Markup, escape

from wirespeed.fleet.nodes import NodeState, Said, state
from wirespeed.model.units import listed
from wirespeed.model.verdicts import Verdict
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import RunRow
from wirespeed.runs.source import StoredRuns
from wirespeed.site.links import node_link
from wirespeed.views.text import Style

CELLS = {"fail": "f", "warn": "w", "pass": "g", "": "u"}
"""By a node's state the class of its cell."""
LOOKS = {
    "fail": ("fail", "failing"),
    "warn": ("warn", "with warnings"),
    "pass": ("pass", "good"),
    "": ("not_checked", "not known"),
}
"""The same: (class of its colour, in words)."""
ORDER: tuple[Said, ...] = ("fail", "warn", "", "pass")
_NUMBER = re.compile(r"\d+")
_OTHERS = "others"
_SECOND = len("2026-11-25T12:00:00")
_PLAIN = Style()
_ASKED = 3
"""Nodes of a group whose checks are looked for: those that were seen last."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes whose names differ in numbers only: a cluster, as far as names tell."""

    name: str
    """`gpu-*` of gpu-001 and gpu-002."""
    nodes: Sequence[NodeState]
    counts: Counter[Said]
    """Nodes by their state."""
    check: RunRow | None = None
    """The newest run of `check` with one of the nodes that were seen last."""

    @property
    def verdict(self) -> Verdict:
        """READY where every node is good, NOT READY where one fails."""
        if self.counts["fail"]:
            return "NOT READY"
        return "UNKNOWN" if self.counts[""] else "READY"


@dataclass(frozen=True, slots=True)
class News:
    """Something that changed."""

    kind: str
    """As a finding's status, for its colour."""
    at: str
    """ISO 8601 in UTC."""
    node: NodeState
    text: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes, as of one moment."""

    nodes: Sequence[NodeState] = ()
    """By name."""
    groups: Sequence[Group] = ()
    cells: Sequence[Markup] = ()
    """Of each group a link for each node."""
    reasons: dict[str, str] = field(default_factory=dict)
    """By node what `reason` has found."""


def whole(index: StoredRuns) -> Fleet:
    """All nodes as they are now."""
    nodes = state(index)
    groups = groups_of(nodes)
    return Fleet(nodes, groups, [cells_of(one.nodes) for one in groups])


def groups_of(nodes: Iterable[NodeState]) -> list[Group]:
    """Those with failing nodes first, then the larger ones; single ones are put together."""
    by_name: dict[str, list[NodeState]] = defaultdict(list)
    for node in nodes:
        by_name[_NUMBER.sub("*", node.host)].append(node)
    single = [name for name, found in by_name.items() if len(found) == 1]
    if len(single) > 1 and len(by_name) > 2:
        by_name[_OTHERS] = [node for name in single for node in by_name.pop(name)]
    groups = [Group(name, found, Counter(n.said for n in found)) for name, found in by_name.items()]
    return sorted(groups, key=lambda one: (-one.counts["fail"], -len(one.nodes), one.name))


def cells_of(nodes: Iterable[NodeState]) -> Markup:
    """A link for each. Ten thousand are made in the time in which a template makes a thousand."""
    found = []
    for node in nodes:
        kind, link = CELLS[node.said], escape(node_link(node.host))
        words = escape(_PLAIN.text(f"{node.host}: {LOOKS[node.said][1]}"))
        found.append(f'<a class="{kind}" href="{link}" title="{words}"></a>')
    return Markup("".join(found))


def checked(index: StoredRuns, group: Group) -> Group:
    """The group with the newest check of it."""
    last = sorted(group.nodes, key=lambda node: node.last, reverse=True)[:_ASKED]
    found = [
        row
        for node in last
        for row in index.runs(RunFilter(node=node.host, command="check", finished=True, last=1))
    ]
    return replace(group, check=max(found, key=lambda row: row.run, default=None))


def reason(index: StoredRuns, whole: Fleet, node: NodeState) -> str:
    """Why it fails or warns: the title of the open finding that was told last, and its id."""
    if node.host not in whole.reasons:
        whole.reasons[node.host] = _reason(index, node)
    return whole.reasons[node.host]


def _reason(index: StoredRuns, node: NodeState) -> str:
    runs = {one.id: one.runs for one in node.open if one.status == node.said}
    if not runs:
        return ""
    found = index.findings(node=node.host, ids=runs, status=(node.said,))
    titles = (f"{one.title} ({one.id})" for one in reversed(found) if one.run in runs[one.id])
    return next(titles, listed(sorted(runs)))


def news(nodes: Iterable[NodeState], now: datetime) -> list[News]:
    """What is otherwise than a day ago, the worst and newest first."""
    yesterday = (now - timedelta(days=1)).isoformat()[:_SECOND]
    found = list(_changes(nodes, yesterday))
    order = {"fail": 0, "warn": 1, "pass": 2, "not_checked": 3}
    found.sort(key=lambda one: one.at, reverse=True)
    return sorted(found, key=lambda one: order[one.kind])


def _changes(nodes: Iterable[NodeState], yesterday: str) -> Iterator[News]:
    for node in nodes:
        new = node.first >= yesterday
        changed = bool(node.said) and node.since >= yesterday
        if changed and node.said in ("fail", "warn"):
            before = ", seen for the first time" if new else ", good before" if node.flaps else ""
            yield News(node.said, node.since, node, LOOKS[node.said][1] + before)
        elif new:
            yield News("not_checked", node.first, node, "seen for the first time")
        elif changed and node.flaps:
            yield News("pass", node.since, node, "good again")
