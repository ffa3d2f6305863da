"""What the pages about nodes are made of: states in groups, and what changed since yesterday."""

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from wirespeed.fleet.nodes import NodeState, Said, moment_ago, state
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import RunRow
from wirespeed.runs.source import StoredRuns
from wirespeed.site.framing import version_of
from wirespeed.site.pictures import moment

CELLS = {"fail": "f", "warn": "w", "pass": "g", "": "u"}
"""By what is said of a node: the class of its cell."""
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
_ASKED = 3
"""Nodes of a group whose checks are looked for: those that were seen last."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes whose names differ in numbers only: a cluster, as far as names tell."""

    name: str
    """`gpu-*` of gpu-001 and gpu-002."""
    nodes: Sequence[NodeState]
    counts: Counter[Said]
    """Nodes by what is said of them."""
    check: RunRow | None = None
    """The newest run of `check` with one of the nodes that were seen last."""


@dataclass(frozen=True, slots=True)
class News:
    """Something that changed."""

    kind: str
    """As a finding's status, for its colour."""
    at: str
    """ISO 8601 in UTC."""
    node: NodeState
    text: str


@dataclass(eq=False, slots=True)
class States:
    """The states of all nodes, made anew when a run has come, gone or ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    key: tuple[object, ...] = ()
    known: list[NodeState] = field(default_factory=list)

    def of(self, index: StoredRuns) -> list[NodeState]:
        """By name."""
        key = (*version_of(index), moment_ago(0)[:13])  # what is counted ages, by the hour
        with self.lock:
            if key != self.key:
                self.known, self.key = state(index), key
            return self.known


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


def checked(index: StoredRuns, group: Group) -> Group:
    """The group with the newest check of it."""
    last = sorted(group.nodes, key=lambda node: node.last, reverse=True)[:_ASKED]
    found = [
        row
        for node in last
        for row in index.runs(RunFilter(node=node.host, command="check", finished=True, last=1))
    ]
    return replace(group, check=max(found, key=lambda row: row.run, default=None))


def reason(index: StoredRuns, node: NodeState) -> str:
    """Why it fails or warns: what the newest run that blames it says."""
    found = index.findings(node=node.host, status=(node.said,), which=RunFilter(last=1))
    return next((one.title for one in found if one.host == node.host), "")


def news(nodes: Iterable[NodeState], now: datetime) -> list[News]:
    """What is otherwise than a day ago, the worst and newest first."""
    found = list(_changes(nodes, now - timedelta(days=1)))
    order = {"fail": 0, "warn": 1, "pass": 2, "not_checked": 3}
    found.sort(key=lambda one: one.at, reverse=True)
    return sorted(found, key=lambda one: order[one.kind])


def _changes(nodes: Iterable[NodeState], yesterday: datetime) -> Iterator[News]:
    for node in nodes:
        new = moment(node.first) >= yesterday
        changed = bool(node.said) and moment(node.since) >= yesterday
        if changed and node.said in ("fail", "warn"):
            before = ", seen for the first time" if new else ", good before" if node.flaps else ""
            yield News(node.said, node.since, node, LOOKS[node.said][1] + before)
        elif new:
            yield News("not_checked", node.first, node, "seen for the first time")
        elif changed and node.flaps:
            yield News("pass", node.since, node, "good again")
