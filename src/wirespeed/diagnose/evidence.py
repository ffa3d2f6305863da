"""What the rules saw in all logs of a job, gathered in bounded memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wirespeed.diagnose.resolved import Episodes, is_over
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit, Line

__all__ = ["Evidence", "Seen", "earlier"]

_KEPT = 256
"""Hits kept of a rule: the first of each rank (or host, or log), up to so many."""
_COMPARED = 4096
"""As many where ranks are compared, so that the odd one among thousands is not missed."""


@dataclass(slots=True)
class Seen:
    """What one rule saw."""

    rule: Rule
    count: int = 0
    first: Hit | None = None
    """The earliest, by time where it is known."""
    hits: list[Hit] = field(default_factory=list)
    """The first of each writer."""
    _writers: set[object] = field(default_factory=set)
    episodes: Episodes | None = None
    """Of a rule that may end well, and of what tells that it did."""

    def add(self, hit: Hit) -> None:
        self.count += 1
        if self.episodes is not None:
            self.episodes.add(hit)
        if self.first is None or earlier(hit.line, self.first.line):
            self.first = hit
        writer = _writer(hit)
        most = _COMPARED if self.rule.alike else _KEPT
        if writer not in self._writers and len(self._writers) < most:
            self._writers.add(writer)
            self.hits.append(hit)

    @property
    def start(self) -> Hit:
        """The earliest hit; a rule is kept only with one."""
        if self.first is None:
            raise LookupError(self.rule.id)
        return self.first

    @property
    def ranks(self) -> list[int]:
        return sorted({rank for hit in self.hits if (rank := rank_of(hit)) is not None})

    @property
    def hosts(self) -> list[str]:
        return sorted({host for hit in self.hits if (host := host_of(hit))})


def rank_of(hit: Hit) -> int | None:
    """The rank that the line itself names, or else who wrote it."""
    told = hit.groups.get("rank", "")
    return int(told) if told.isdecimal() else hit.line.rank


def host_of(hit: Hit) -> str | None:
    return hit.groups.get("host") or hit.line.host


def _writer(hit: Hit) -> object:
    told = (rank_of(hit), host_of(hit), hit.line.gpu)
    values = tuple(sorted(hit.groups.items())) if len(hit.groups) < 8 else ()
    return (told if any(one is not None for one in told) else hit.line.source, values)


def earlier(one: Line, other: Line) -> bool:
    """Whether a line was written before another: by time on one clock, else in reading order."""
    known = one.time is not None and other.time is not None and one.clock == other.clock
    if known and one.time != other.time:
        return (one.time or 0.0) < (other.time or 0.0)
    return one.order < other.order


class Evidence:
    """All that was seen, by rule's id."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.last: dict[tuple[str, str], Hit] = {}
        """By rule and log: the last line of rules that tell how a log begins and ends."""
        self.trains = False
        """Whether the logs end with steps of a training."""
        self.ranks: set[int] = set()
        self.hosts: set[str] = set()
        """Who wrote anything at all, as far as that is known."""

    def add(self, hits: Iterable[Hit]) -> None:
        for hit in hits:
            found = self.seen.get(hit.rule.id)
            if found is None:
                found = self.seen[hit.rule.id] = Seen(hit.rule)
                if hit.rule.until or hit.rule.ends:
                    found.episodes = Episodes()
            found.add(hit)
            if hit.rule.last:
                self.last[hit.rule.id, hit.line.source] = hit

    def settle(self, rules: Iterable[Rule], counts: Mapping[str, int]) -> None:
        """Apply what rules ask of each other, once all logs are read."""
        for id, found in self.seen.items():
            found.count = max(found.count, counts.get(id, 0))
        self._end_well()
        for rule in rules:
            if rule.derive is not None and self._hold(rule):
                self.add(rule.derive(self))
            elif not rule.anchors and rule.needs and self._hold(rule):
                self._add_combined(rule)
        for id, found in list(self.seen.items()):
            if not self._hold(found.rule) or found.count < found.rule.least:
                del self.seen[id]

    def _end_well(self) -> None:
        """Leave out what a later line tells to be over; of several pods, those that still wait stay."""
        for id, found in list(self.seen.items()):
            ends = [self.seen[one].episodes for one in found.rule.until if one in self.seen]
            known = [one for one in ends if one is not None]
            if not known or found.episodes is None:
                continue
            open_still = [hit for hit in found.episodes.latest.values() if not is_over(hit, known)]
            del self.seen[id]
            for hit in open_still:
                self.add([hit])

    def _hold(self, rule: Rule) -> bool:
        return all(id in self.seen for id in rule.needs) and not any(
            id in self.seen for id in rule.absent
        )

    def _add_combined(self, rule: Rule) -> None:
        """It stands where the first of what it needs does, with the groups of all of them."""
        parts = [self.seen[id].start for id in rule.needs]
        groups = {name: value for part in reversed(parts) for name, value in part.groups.items()}
        found = self.seen[rule.id] = Seen(rule)
        for part in parts:
            found.add(Hit(rule, part.line, groups))

    def of(self, *roles: str) -> list[Seen]:
        return [found for found in self.seen.values() if found.rule.role in roles]

    def silent(self, told: Iterable[Seen], few: int = 0) -> tuple[str, ...]:
        """Ranks, or else hosts, that wrote lines, but none of those that are `told`: few among many.

        Where all others say that they wait, the one that is waited for is among these. few: as many
        are told even if they are more than the others.
        """
        waiting = list(told)
        ranks = {rank for found in waiting for rank in found.ranks}
        hosts = {host for found in waiting for host in found.hosts}
        quiet = sorted(self.ranks - ranks)
        if ranks and quiet and len(quiet) <= max(len(ranks), few):
            return tuple(f"rank {rank}" for rank in quiet)
        away = sorted(self.hosts - hosts)
        if waiting and away and len(away) <= max(len(hosts), len(ranks)):
            return tuple(away)
        return ()
