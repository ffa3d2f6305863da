"""Hits of rules that no single line shows, made from those of the rules that they need.

A rule names its function with `derive`; the function gets that rule and all that was seen.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import gt, itemgetter, lt

from wirespeed.diagnose.allocations import Reason, read_allocation
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit, Line
from wirespeed.diagnose.watchdog_lines import (
    RECORDER_FIELDS,
    calls_of,
    mismatches,
    recorder_words,
)

# What the rules saw in all logs of a job, gathered in bounded memory.

_POD = re.compile(
    r"\bpods?/(?P<event>[\w.-]+)|\bassigned [\w.-]+/(?P<assigned>[\w.-]+) to "
    r"|^(?:[\w-]+\s+)?(?P<row>[a-z0-9][\w.-]*)\s+\d+/\d+\s+[A-Z]\w+"
)
_ROW = re.compile(r"\s\d+/\d+\s+[A-Z]\w+\s")
_AGE = re.compile(r"(?:^|\s)(?=\d+[dhms])(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?=[\s(]|$)")
_AGE_WITHIN = 120
"""Characters at a line's beginning in which an event's age stands."""
_PODS = 4_096


class Episodes:
    """The latest line on each pod that one rule saw; a line that names none is of the pod ``."""

    def __init__(self) -> None:
        self.latest: dict[str, Hit] = {}

    def add(self, hit: Hit) -> None:
        pod = _pod(hit.line)
        known = self.latest.get(pod)
        if known is None and len(self.latest) >= _PODS:
            return
        if known is None or _is_later(hit.line, known.line):
            self.latest[pod] = hit


def is_over(trouble: Hit, ends: Iterable[Episodes]) -> bool:
    """Whether a later line tells that what `trouble` says of its pod ended well."""
    pod = _pod(trouble.line)
    for end in ends:
        for name, hit in end.latest.items():
            if (name == pod or not name or not pod) and _is_later(hit.line, trouble.line):
                return True
    return False


def _pod(line: Line) -> str:
    found = _POD.search(line.text)
    return next((name for name in found.groups() if name), "") if found else ""


def _is_later(one: Line, other: Line) -> bool:
    """By time, else by the ages that kubectl shows, else by reading order."""
    if one.time is not None and other.time is not None and one.clock == other.clock:
        return (one.time, one.order) > (other.time, other.order)
    mine, theirs = _age(one.text), _age(other.text)
    if mine is not None and theirs is not None and one.source == other.source and mine != theirs:
        return mine < theirs
    return one.order > other.order


def _age(text: str) -> int | None:
    """Seconds of `40s`, `3m12s`, `2d4h`; of `40s (x2 over 5m)` the latest.

    None for the row of a pod: its age is not that of an event.
    """
    if _ROW.search(text):
        return None
    found = _AGE.search(text[:_AGE_WITHIN])
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_KEPT = 256
"""Hits kept of a rule: the first of each rank (or host, or log), up to so many."""
_COMPARED = 4096
"""As many where ranks are compared, so that the odd one among thousands is not missed."""
_RANKS_COMPARED = frozenset({"WD-001", "WD-003", "WD-012"})
"""Rules beside the alike ones whose hits are compared across ranks."""


@dataclass(slots=True)
class Seen:
    """What one rule saw."""

    rule: Rule
    count: int = 0
    first: Hit | None = None
    """The earliest, by time where it is known."""
    hits: list[Hit] = field(default_factory=list)
    """The first of each writer."""
    own: Hit | None = None
    """The first whose line no more specific rule knows."""
    _writers: set[object] = field(default_factory=set)
    episodes: Episodes | None = None
    """Of a rule that may end well, and of what tells that it did."""

    def add(self, hit: Hit) -> None:
        self.count += 1
        if self.own is None and not hit.folded:
            self.own = hit
        if self.episodes is not None:
            self.episodes.add(hit)
        if self.first is None or earlier(hit.line, self.first.line):
            self.first = hit
        writer = _writer(hit)
        compared = self.rule.alike or self.rule.id in _RANKS_COMPARED
        most = _COMPARED if compared else _KEPT
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


Derive = Callable[[Rule, "Evidence"], Iterable[Hit]]


class Evidence:
    """All that was seen, by rule's id."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.last: dict[tuple[str, str], Hit] = {}
        """By rule and log: the last line of rules that tell how a log begins and ends."""
        self.exceptions: list[tuple[Line, str]] = []
        """Exceptions that nothing caught and no rule knows: where each stands, and its message."""
        self.trains = False
        """Whether the logs end with steps of a training."""
        self.raised = False
        """Whether the logs end with the stack of an exception."""
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

    def settle(
        self, rules: Iterable[Rule], counts: Mapping[str, int], derived: Mapping[str, Derive]
    ) -> None:
        """Apply what rules ask of each other, once all logs are read.

        counts: lines that each rule matched, those that are not kept included. derived: what makes
        the hits of rules that no single line shows, by the name that they call it.
        """
        for id, found in self.seen.items():
            found.count = max(found.count, counts.get(id, 0))
        self._end_well()
        for rule in rules:
            if rule.derive and self._hold(rule):
                self.add(derived[rule.derive](rule, self))
            elif not rule.anchors and rule.needs and self._hold(rule):
                self._add_combined(rule)
        for id, found in list(self.seen.items()):
            if not self._hold(found.rule) or found.count < found.rule.least:
                del self.seen[id]
        self._name_recorder()

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

    def _name_recorder(self) -> None:
        """Fill `{recorder}` and `{dumps}`: what to do with the flight recorder of this torch."""
        dumped = self.seen.get("WD-021")
        file = dumped.start.groups.get("file", "") if dumped else ""
        words = recorder_words(self.seen, file)

        def named(hit: Hit) -> Hit:
            return replace(hit, groups=hit.groups | words)

        for found in self.seen.values():
            texts = (found.rule.next, *found.rule.checks)
            if any(field in text for field in RECORDER_FIELDS for text in texts):
                found.hits = [named(hit) for hit in found.hits]
                found.first = named(found.first) if found.first else None
                found.own = named(found.own) if found.own else None

    def _add_combined(self, rule: Rule) -> None:
        """It stands where the first of what it needs does, with the groups of all of them."""
        parts = [self.seen[id].start for id in rule.needs]
        groups = {name: value for part in reversed(parts) for name, value in part.groups.items()}
        found = self.seen[rule.id] = Seen(rule)
        for part in parts:
            found.add(Hit(rule, part.line, groups))

    def hits(self, id: str) -> list[Hit]:
        """Of a rule, none where it saw nothing."""
        return self.seen[id].hits if id in self.seen else []

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


def _told_by(rule: Rule, hits: Iterable[Hit], **more: str) -> Iterator[Hit]:
    """The rule's hits where another has these."""
    return (Hit(rule, hit.line, {**hit.groups, **more}) for hit in hits)


def _behind(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """Ranks whose last enqueued work comes before the one in which others timed out.

    A work's number counts within its process group, so only ranks of one group are compared; lines
    that name no group are of one.
    """
    waits = evidence.hits("WD-001")
    last: dict[tuple[str, int], tuple[int, Hit]] = {}
    for hit in evidence.hits("WD-003"):
        rank = _rank(hit)
        if rank is not None:
            key = hit.groups.get("group", ""), rank
            number = _number(hit, "enqueued")
            last[key] = max(last.get(key, (-1, hit)), (number, hit), key=itemgetter(0))
    stuck = Counter(_number(hit, "seq") for hit in waits)
    number, times = stuck.most_common(1)[0]
    wait = next(hit for hit in waits if _number(hit, "seq") == number)
    waiting = {_rank(hit) for hit in waits if _number(hit, "seq") == number}
    group = next((group for (group, rank) in last if rank in waiting), "")
    late = {rank: found for (of, rank), found in last.items() if of == group and found[0] < number}
    # A rank that timed out elsewhere waits for somebody too: who is to blame cannot be told.
    if not late or len(late) > times or {_rank(hit) for hit in waits} & set(late):
        return
    for rank, (enqueued, hit) in sorted(late.items()):
        told = {"rank": str(rank), "enqueued": str(enqueued), "waiting": str(times)}
        yield Hit(rule, hit.line, wait.groups | told)


def _compare_collectives(rule: Rule, evidence: Evidence, *, grouped: bool) -> Iterator[Hit]:
    """Yield the lines of ranks that are in different collectives at one number of one group.

    grouped: whether lines of the same rank name the group. Without them the numbers may be of several
    groups, so a difference only suggests a mismatch.
    """
    calls = calls_of(evidence.hits("WD-001"), evidence.hits("WD-012"))
    for mismatch in mismatches(calls, grouped=grouped)[:1]:
        for call in mismatch.calls:
            yield Hit(rule, call.hit.line, {"rank": str(call.rank), **mismatch.words})


def _allocations(rule: Rule, evidence: Evidence, reason: Reason) -> Iterator[Hit]:
    """Yield the refused allocations whose own numbers say this reason."""
    for hit in evidence.hits("PY-001"):
        allocation = read_allocation(hit.line.text)
        if allocation.reason == reason:
            yield Hit(rule, hit.line, {**hit.groups, **allocation.words()})


def _warned_of_architecture(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """Yield the warnings that torch has no code for a GPU, where nothing comes after them.

    Code of the same major version may run, so a job that trains, or that fails otherwise, shows that the
    warning is not the cause.
    """
    silent = not evidence.trains and not evidence.raised
    alone = not any(found.rule.derive == "" for found in evidence.of("cause", "symptom"))
    yield from _told_by(rule, evidence.hits("ARCH-001") if silent and alone else ())


_FRAMES = 60
"""Lines of a Python stack, at most, between the call that pins memory and the error."""


def _pinned(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """Yield errors without a size that stand below a stack in which host memory is pinned."""
    calls = evidence.hits("ALLOC-020")
    for hit in evidence.hits("PY-001"):
        if "size" in hit.groups:
            continue
        for call in calls:
            lines = hit.line.number - call.line.number
            if call.line.source == hit.line.source and 0 <= lines <= _FRAMES:
                yield Hit(rule, hit.line, {**hit.groups, **call.groups})
                break


def _rank(hit: Hit) -> int | None:
    told = hit.groups.get("group_rank", "")
    own = rank_of(hit)
    return own if own is not None else int(told) if told.isdecimal() else None


def _number(hit: Hit, name: str) -> int:
    return int(hit.groups[name])


def _without_rank_0(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """The early barrier's lines, unless rank 0 waits at it too: then it prepares nothing.

    Of torch's timeouts every rank that waits prints one, so one who prints none is awaited.
    """
    waits = evidence.seen["WD-011"]
    told = evidence.hits("WD-001")
    if 0 in waits.ranks or any(_rank(hit) == 0 for hit in told):
        return
    yield from _told_by(rule, waits.hits)


def _over_hosts(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """The refused loopback addresses of a job that is known to have several hosts."""
    hosts = len(evidence.hosts)
    yield from _told_by(rule, evidence.hits("GLOO-002") if hosts > 1 else (), hosts=str(hosts))


def _lost(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """Which GPU fell off the bus; the driver may name it on the line before."""
    said = {hit.line.source for hit in evidence.hits("KERN-001")}
    for hit in evidence.hits("KERN-055"):
        device = next(iter(hit.groups.values()), "?")
        if hit.line.source in said:
            yield Hit(rule, hit.line, {"device": device})


def _copies(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """A second rank 0, listed before any copy had printed its summary, or by another process.

    Tests that run one after another list theirs after the summary of the one before, by the same
    rank of the launcher: they are no copies.
    """
    devices = evidence.hits("NT-003")
    firsts = [hit for hit in devices if hit.groups.get("rank") == "0"]
    summary = evidence.seen.get("NT-005")
    end = summary.start.line if summary is not None else None
    first = firsts[0] if firsts else None
    together = [
        hit
        for hit in firsts
        if first is not None
        and hit.line.source == first.line.source
        and (end is None or end.source != hit.line.source or hit.line.order < end.order)
    ]
    writers = {hit.line.rank for hit in firsts if hit.line.rank is not None}
    hosts = sorted({host for hit in firsts if (host := host_of(hit))})
    largest = max((int(hit.groups["rank"]) for hit in devices), default=0) + 1
    # A pipe gives each copy's lines at its end: whole, one after another, each on a host of its own.
    apart = len(writers) > 1 or (largest == 1 and len(hosts) == len(firsts))
    copies = firsts if apart else together
    if len(copies) < 2:
        return
    ranks = "one rank" if largest == 1 else f"{largest} ranks"
    for hit in copies[1:]:
        told = {"copies": str(len(copies)), "ranks": ranks, "hosts": ", ".join(hosts[:6])}
        yield Hit(rule, hit.line, told)


def _several_hosts(evidence: Evidence) -> bool:
    told = evidence.seen.get("ADDR-003")
    nodes = (int(hit.groups["nodes"]) for hit in told.hits) if told else ()
    return len(evidence.hosts) > 1 or any(count > 1 for count in nodes)


def _between_hosts(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """Addresses that lead to the own machine, where there are several."""
    if evidence.trains or not _several_hosts(evidence):
        return
    for hit in evidence.hits("ADDR-002"):
        interface = hit.groups.get("interface", "")
        address = hit.groups.get("address") or hit.groups.get("at", "")
        told = f"{address} of {interface}" if interface else address
        yield Hit(rule, hit.line, {**hit.groups, "told": told})


def _without_success(rule: Rule, evidence: Evidence) -> Iterator[Hit]:
    """Retries, unless the job trains on after them: then they are of its start."""
    return _told_by(rule, () if evidence.trains else evidence.hits("RETRY-002"))


def _joined(
    rule: Rule, evidence: Evidence, by: str, apart: Callable[[int, int], bool]
) -> Iterator[Hit]:
    """The lines of that rule in which more (or fewer) have joined than the world size says.

    Too few are told only of what timed out: while it waits, fewer have joined in healthy jobs too.
    """
    hits = evidence.hits(by)
    return _told_by(
        rule, (one for one in hits if apart(_number(one, "joined"), _number(one, "world")))
    )


_CALL_LINES = 3
"""Lines between the frame that made a call and the error of that call."""
_STACK_LINES = 60
"""Lines between a frame and the end of its stack."""


def _after_frame(
    rule: Rule, evidence: Evidence, frame: str, error: str, within: int
) -> Iterator[Hit]:
    """Yield the errors that stand a few lines below a frame of the stack, in the same log.

    An error that names no operation is read with the call that raised it.
    """
    frames = evidence.hits(frame)
    for hit in evidence.hits(error):
        if any(_follows(hit.line, call.line, within) for call in frames):
            yield Hit(rule, hit.line, hit.groups)


def _follows(line: Line, before: Line, within: int) -> bool:
    return line.source == before.source and 0 < line.number - before.number <= within


def _refused(rule: Rule, evidence: Evidence, in_launcher: bool) -> Iterator[Hit]:
    """Yield the paths that a shell tool was refused, in a launcher's output or in other logs.

    A job that trains on did without what it was refused.
    """
    launched = any(
        seen.rule.header or seen.rule.category == "container-gpu" for seen in evidence.seen.values()
    )
    if launched == in_launcher and (launched or not evidence.trains):
        yield from _told_by(rule, evidence.hits("ERRNO-023"))


_RETRIES = 5
"""Requests for one file before the hub's library gives it up."""
_NO_WAY = re.compile(r"name resolution|not known|unreachable|no route|no address", re.IGNORECASE)
"""Reasons that do not pass by themselves, so one request shows them."""


def _unreached(rule: Rule, evidence: Evidence, retries: str, least: int) -> Iterator[Hit]:
    """Yield the failed requests of a job that never went on after them."""
    found = evidence.seen[retries]
    lasting = any(_NO_WAY.search(hit.groups.get("reason", "")) for hit in found.hits)
    went_on = evidence.trains or any(id.startswith("GOOD-") for id in evidence.seen)
    if not went_on and (lasting or found.count >= least):
        yield from _told_by(rule, found.hits)


_SILENT = ("RAS-006", "RAS-007", "RAS-008", "WD-001")
"""Ranks that do not answer, or a collective that timed out: this job makes no progress."""


def _snapshots(evidence: Evidence) -> list[list[Hit]]:
    """Lines with operations, those of one communicator's list together.

    A list's lines follow each other; equal lines of a later report are not kept.
    """
    ids = ("RAS-002", "RAS-003", "RAS-004")
    lines = sorted(
        (hit for id in ids for hit in evidence.hits(id)),
        key=lambda hit: (hit.line.source, hit.line.number),
    )
    found: list[list[Hit]] = []
    for hit in lines:
        last = found[-1][-1].line if found else None
        if last and (last.source, last.number + 1) == (hit.line.source, hit.line.number):
            found[-1].append(hit)
        else:
            found.append([hit])
    return found


def _operations(lines: Iterable[Hit]) -> dict[int, int]:
    """How many ranks have launched up to which operation."""
    told: Counter[int] = Counter()
    for hit in lines:
        if "operation" in hit.groups:
            told[_number(hit, "operation")] += int(hit.groups.get("ranks", "1"))
    return told


def _is_stuck(evidence: Evidence, told: Iterable[int]) -> bool:
    """Ranks that launch one after the other differ by one for a moment, in a healthy job too."""
    numbers = list(told)
    return max(numbers) - min(numbers) > 1 or any(id in evidence.seen for id in _SILENT)


def _counts(rule: Rule, evidence: Evidence, stuck: bool) -> Iterator[Hit]:
    """The operations that most ranks and the others have launched, and who the others are.

    stuck: whether to tell the lists that no running job gives, or those that one may give.
    """
    first = evidence.seen["RAS-001"].start
    for lines in _snapshots(evidence):
        told = _operations(lines)
        if len(told) < 2 or _is_stuck(evidence, told) != stuck:
            continue
        ranks_named = {hit.groups["ras_rank"] for hit in lines if "ras_rank" in hit.groups}
        named = sorted(ranks_named, key=int)
        counts = (f"{ranks} at operation {number}" for number, ranks in sorted(told.items()))
        groups = {
            **first.groups,
            "counts": ", ".join(counts),
            "named": ", ".join(named[:16]) + (" and more" if len(named) > 16 else "") or "?",
        }
        yield from (Hit(rule, hit.line, groups | hit.groups) for hit in (first, *lines))


def _unknown_exceptions(rule: Rule, evidence: Evidence, runtime: bool) -> Iterator[Hit]:
    """Exceptions that no rule knows; each is the first of its chain.

    runtime: whether to take RuntimeErrors, which often only report another's end, or all others.
    """
    for line, message in evidence.exceptions:
        if message.startswith("RuntimeError") == runtime:
            yield Hit(rule, line, {"what": message})


DERIVED: dict[str, Derive] = {
    "addresses-between-hosts": _between_hosts,
    "allocation-beside-others": partial(_allocations, reason="others"),
    "allocation-in-fragments": partial(_allocations, reason="fragments"),
    "allocation-larger-than-gpu": partial(_allocations, reason="larger"),
    "allocation-of-pinned-memory": _pinned,
    "allocation-on-full-gpu": partial(_allocations, reason="full"),
    "allocation-over-own-cap": partial(_allocations, reason="cap"),
    "allocation-with-free-memory": partial(_allocations, reason="free"),
    "architecture-warning-alone": _warned_of_architecture,
    "collectives-differ": partial(_compare_collectives, grouped=True),
    "collectives-differ-perhaps": partial(_compare_collectives, grouped=False),
    "copies": _copies,
    "fell-off-the-bus": _lost,
    "full-at-semaphore": partial(
        _after_frame, frame="ERRNO-005", error="PY-027", within=_CALL_LINES
    ),
    "half-written-cache": partial(
        _after_frame, frame="CACHE-002", error="CACHE-003", within=_STACK_LINES
    ),
    "hub-unreached": partial(_unreached, retries="OFFLINE-001", least=_RETRIES),
    "joined-by-too-few": partial(_joined, by="STORE-040", apart=lt),
    "joined-by-too-many": partial(_joined, by="STORE-040", apart=gt),
    "loopback-over-hosts": _over_hosts,
    "rank-behind": _behind,
    "no-lock-operation": partial(
        _after_frame, frame="LOCK-003", error="LOCK-004", within=_CALL_LINES
    ),
    "ras-counts-differ": partial(_counts, stuck=False),
    "ras-counts-stuck": partial(_counts, stuck=True),
    "refused-elsewhere": partial(_refused, in_launcher=False),
    "refused-in-launcher": partial(_refused, in_launcher=True),
    "retries-without-success": _without_success,
    "tracker-unreached": partial(_unreached, retries="OFFLINE-007", least=1),
    "unknown-exceptions": partial(_unknown_exceptions, runtime=False),
    "unknown-runtime-errors": partial(_unknown_exceptions, runtime=True),
    "without-rank-0": _without_rank_0,
}
"""By the name that rules call them."""
