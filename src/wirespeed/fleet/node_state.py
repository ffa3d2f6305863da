"""A node's state: which findings about its hardware, system and network are open.

A finding that fails, or warns, at a node opens. A later run closes it that judged the same thing at that
node and did not name it; no verdict of a run does, and no finding about a program opens one. What a
finding says of a node, and what closes it, is in checks/findings.yaml (`NodeRule`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from wirespeed.checks.registry import EXPLAINED, NodeRule
from wirespeed.runs.rows import NodeMark, RunMark

Said = Literal["pass", "warn", "fail", ""]
"""A node's state: a failed finding is open, a warning is; none is, and the node was found good as a
whole, or what had failed was found good; else empty, which is not known."""
ALONE = "alone"
"""Role of a node in a run without another."""
_GATE = "gate"
_OF_A_JOB = NodeRule()
NODE_TROUBLES = frozenset(
    {
        *("clock-skew", "driver-not-loaded", "fabric-manager", "gpu-failed", "gpu-gsp", "gpu-lost"),
        *("gpu-memory-error", "gpu-thermal", "gpu-xid", "iommu-fault", "machine-check"),
        *("nic-failed", "nic-link-down", "node-failure", "nvlink-error", "p2p-data-wrong"),
        *("p2p-failed", "pcie-error", "storage-error"),
    }
)
"""Categories of what `diagnose` names that are a node's; the others may be a program's, its settings' or
somebody's wish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFinding:
    """A finding that failed or warned at a node and was not found good there since."""

    id: str
    status: Literal["warn", "fail"]
    since: str
    """When the run began in which it opened (ISO 8601 in UTC)."""
    runs: tuple[str, ...]
    """Names of the folders of the runs that told it since then, oldest first."""
    by_gate: bool
    """Whether looks of a gate alone have told it."""
    look_again: str
    """The command that closes it, if the node is good."""


def rule_of(id: str) -> NodeRule:
    """Return the rule for findings of that id; an id that nobody explains is about a job."""
    known = EXPLAINED.get(id)
    return known.of_node if known else _OF_A_JOB


def is_about_node(id: str, category: str = "") -> bool:
    """Return whether such a finding is about a node's hardware, system or network.

    category: the category that `diagnose` gave it; empty elsewhere.
    """
    return rule_of(id).about != "job" or category in NODE_TROUBLES


def look_again(id: str) -> str:
    """The command that closes an open finding of that id."""
    return rule_of(id).look_again or f"wirespeed check --only {id}"


@dataclass(slots=True)
class _Open:
    status: Literal["warn", "fail"]
    since: str
    runs: list[str]
    backend: str
    """Of the run that told it last."""
    together: bool
    """Whether any of these runs had other nodes."""
    by_gate: bool
    """Whether gates alone have told it."""


@dataclass(slots=True)
class NodeTrack:
    """A node's state, run by run."""

    said: Said = ""
    said_at: str = ""
    """When the last run began that confirmed or changed it."""
    changes: list[tuple[Said, NodeMark]] = field(default_factory=list)
    """Each new state, with the run that made it so."""
    good_together: str = ""
    """When the last run with other nodes began that found it good as a whole."""
    good: bool = False
    """Whether it was found good as a whole, or what had failed was found good."""
    open: dict[str, _Open] = field(default_factory=dict)

    def findings(self) -> tuple[OpenFinding, ...]:
        """What is open, failures first, then by when it opened."""
        found = [
            OpenFinding(
                id=id,
                status=one.status,
                since=one.since,
                runs=tuple(one.runs),
                by_gate=one.by_gate,
                look_again=look_again(id),
            )
            for id, one in self.open.items()
        ]
        return tuple(sorted(found, key=lambda one: (one.status, one.since, one.id)))

    def take(self, mark: NodeMark, run: RunMark, *, counts: bool) -> None:
        """What that run says of the node. counts: whether it is late enough to vouch for it."""
        failed, warned = about_node(mark.failed), about_node(mark.warned)
        if run.command == _GATE and run.nodes_good:
            failed = frozenset()  # seen once, and not yet a fault: see `gate/decision.py`
        together = mark.role != ALONE
        closed = [id for id in self.open if self._closes(id, run, together, named=failed | warned)]
        for id in closed:
            failure = self.open.pop(id).status == "fail"
            self.good |= counts and failure
        for id in failed:
            self._tell(id, "fail", mark, run, together)
        for id in warned - failed:
            self._tell(id, "warn", mark, run, together)
        if run.nodes_good and counts:
            self.good = True
            if together:
                self.good_together = mark.started
        if failed or warned or closed or run.nodes_good:
            self._settle(mark)

    def renew(self, mark: NodeMark) -> None:
        """The node was repaired, or is another machine: nothing is known of it as it is now."""
        self.open.clear()
        self.good, self.good_together = False, ""
        self._settle(mark)

    def _tell(
        self, id: str, status: Literal["warn", "fail"], mark: NodeMark, run: RunMark, together: bool
    ) -> None:
        known, by_gate = self.open.get(id), run.command == _GATE
        if known is None or (known.status, status) == ("warn", "fail"):
            self.open[id] = _Open(status, mark.started, [mark.run], run.backend, together, by_gate)
        elif known.status == status:
            known.runs.append(mark.run)
            known.backend = run.backend
            known.together |= together
            known.by_gate &= by_gate

    def _closes(self, id: str, run: RunMark, together: bool, named: Collection[str]) -> bool:
        """Whether that run looked at the same thing, and found it good at this node."""
        rule, opened = rule_of(id), self.open[id]
        if id in named:
            return False
        if opened.by_gate and run.command == _GATE and run.nodes_good:
            return True  # a gate that says good has looked at all that a gate can find
        if rule.about == "traffic" and opened.together and not together:
            return False
        other_backend = run.backend != opened.backend and run.backend and opened.backend
        if other_backend and rule.about in ("traffic", "device"):
            return False
        if _any_is(rule.not_cleared_with, _ids(run.unjudged)):
            return False
        looked = [look for look in rule.cleared_by or (id,) if _any_is([look], _ids(run.judged))]
        return bool(looked) and not _any_is(rule.cleared_by, named)

    def _settle(self, mark: NodeMark) -> None:
        statuses = {one.status for one in self.open.values()}
        said: Said = "fail" if "fail" in statuses else "warn" if statuses else ""
        said = said or ("pass" if self.good else "")
        self.said_at = mark.started
        if said != self.said:
            self.changes.append((said, mark))
        self.said = said


def tracks(
    marks: Iterable[NodeMark],
    runs: Iterable[RunMark],
    renewals: Mapping[str, Sequence[str]],
    *,
    since: str = "",
) -> dict[str, NodeTrack]:
    """Each node's state by host, from what runs say of it, in order.

    renewals: by host when it was repaired or became another machine, in order. since: what was good
    before then vouches for nothing; what was bad stays so until it is looked at again.
    """
    by_run = {run.run: run for run in runs}
    found: dict[str, NodeTrack] = {}
    last: dict[str, NodeMark] = {}
    waiting = {host: list(moments) for host, moments in renewals.items()}
    for mark in marks:
        track = found.setdefault(mark.host, NodeTrack())
        while waiting.get(mark.host) and waiting[mark.host][0] <= mark.started:
            track.renew(mark._replace(started=waiting[mark.host].pop(0)))
        run = by_run.get(mark.run) or RunMark(mark.run, mark.command, "", "", "", False)
        track.take(mark, run, counts=mark.started >= since)
        last[mark.host] = mark
    for host, mark in last.items():
        for moment in waiting.get(host, ()):
            found[host].renew(mark._replace(started=moment))
    return found


@lru_cache(maxsize=4096)
def about_node(ids: str) -> frozenset[str]:
    """Of a row's ids those that are about a node."""
    return frozenset(id for id in _ids(ids) if is_about_node(id))


@lru_cache(maxsize=4096)
def _ids(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _any_is(looks: Collection[str], ids: Iterable[str]) -> bool:
    """Whether any of these ids is one of `looks`, or begins with one."""
    return any(id == look or id.startswith(f"{look}-") for id in ids for look in looks)
