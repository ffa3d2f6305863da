"""What the pages about nodes are made of: states in groups, and what changed since yesterday."""

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from wirespeed.fleet.nodes import NodeState, moment_ago, state
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import FindingRow, RunRow
from wirespeed.runs.source import StoredRuns
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
ORDER = ("fail", "warn", "", "pass")
_NUMBER = re.compile(r"\d+")
_OTHERS = "others"
_ASKED = 3
"""Nodes of a group whose checks are looked for: those that were seen last."""
_MOST_FINDINGS = 20_000


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes whose names differ in numbers only: a cluster, as far as names tell."""

    name: str
    """`gpu-*` of gpu-001 and gpu-002."""
    nodes: Sequence[NodeState]
    counts: Counter[str]
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
    host: str
    text: str
    run: str = ""


@dataclass(eq=False, slots=True)
class States:
    """The states of all nodes, made anew when a run has come, gone or ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    key: tuple[object, ...] = ()
    known: list[NodeState] = field(default_factory=list)

    def of(self, index: StoredRuns) -> list[NodeState]:
        """By name."""
        newest = [row.run for row in index.runs(RunFilter(last=1))]
        key = (*newest, index.count(), index.count(RunFilter(finished=False)), moment_ago(0)[:13])
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


def reasons(index: StoredRuns, days: float) -> dict[str, FindingRow]:
    """By host: the newest finding that failed or warns because of it."""
    since = RunFilter(since=moment_ago(days))
    found = index.findings(status=("fail", "warn"), which=since)[-_MOST_FINDINGS:]
    return {one.host: one for one in found if one.host}


def news(nodes: Sequence[NodeState], why: dict[str, FindingRow], now: datetime) -> list[News]:
    """What is otherwise than a day ago, the worst and newest first."""
    yesterday = now - timedelta(days=1)
    found = list(_changes(nodes, why, yesterday))
    order = {"fail": 0, "warn": 1, "pass": 2, "not_checked": 3}
    found.sort(key=lambda one: one.at, reverse=True)
    return sorted(found, key=lambda one: order[one.kind])


def _changes(
    nodes: Iterable[NodeState], why: dict[str, FindingRow], yesterday: datetime
) -> Iterator[News]:
    for node in nodes:
        new = moment(node.first) >= yesterday
        if node.said and moment(node.since) >= yesterday:
            reason = why.get(node.host)
            text = reason.title if reason and node.said != "pass" else ""
            run = reason.run if reason and text else node.latest.run
            if node.said in ("fail", "warn"):
                yield News(node.said, node.since, node.host, text or LOOKS[node.said][1], run)
            elif node.flaps and not new:
                yield News("pass", node.since, node.host, "good again", run)
        if new:
            yield News(
                "not_checked", node.first, node.host, "seen for the first time", node.latest.run
            )
