"""What a soak found: wrong data, stalls, drift, failed worlds, growing memory, a full disk.

Pure: the same records always give the same findings. What a busy node does to all its ranks is told of
the machine, never of a rank.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from wirespeed.checks.registry import by_reason, first_lines, tell
from wirespeed.checks.soaking_trends import ChangePoints, drift_finding, memory_finding
from wirespeed.model.lasting_records import Incident, Soak, SoakStall, SoakWrong
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import counted, format_duration, format_size
from wirespeed.plan import Plan
from wirespeed.statistics import median_absolute_deviation

_MOST_EVIDENCE = 12
_RECURS = 3
"""So many stalls of one rank are no chance."""
_BUSY_SHARE = 0.05
"""Of the soak's time, within calls that waited for a core."""
_REGULAR = 0.15
"""Spread of the times between stalls, relative to them, below which they have a period."""
_FEW = 5
_SURE = 0.001
"""Chance that so many stalls end with one rank by luck."""


def soak_findings(
    soak: Soak,
    plan: Plan,
    *,
    skipped: Mapping[str, str],
    change_points: ChangePoints,
) -> list[Finding]:
    """All findings of a soak; change_points gives the indices at which a series changes its level."""
    found = [_data(soak, plan), _stalls(soak), drift_finding(soak, change_points)]
    found += [_restarts(soak), memory_finding(soak)]
    found += [*_disk(soak), *_busy(soak), *_skipped(skipped)]
    return found


def wrong_incident(wrong: SoakWrong) -> Incident:
    """A wrong result, as one incident."""
    return Incident(
        at=wrong.at,
        since_s=wrong.since_s,
        id="SOAK-001",
        title=f"{_call(wrong)} gave wrong data on rank {wrong.rank}",
        subject_kind="rank",
        subject=f"rank {wrong.suspect if wrong.suspect >= 0 else wrong.rank}",
        saw=f"{wrong.wrong} of {wrong.elements} elements; {wrong.example}",
        because=wrong.guess,
        world=wrong.world,
    )


def stall_incident(stall: SoakStall) -> Incident | None:
    """A stall, as one incident; None where a node was busy."""
    if stall.busy:
        return None
    who = stall.paused[0] if len(stall.paused) == 1 else stall.last_rank
    how = f"rank {who} stood still" if stall.paused == (who,) else f"rank {who} was last"
    if len(stall.paused) > 1:
        how = f"{len(stall.paused)} ranks stood still at once"
    alone = len(stall.paused) <= 1
    return Incident(
        at=stall.at,
        since_s=stall.since_s,
        id="SOAK-002",
        title=f"{_call(stall)} took {format_duration(stall.seconds)}, "
        f"as a rule {format_duration(stall.median)}; {how}",
        subject_kind="rank" if alone else "job",
        subject=f"rank {who}" if alone else "job",
        lost_s=stall.seconds,
        world=stall.world,
    )


def _call(one: SoakWrong | SoakStall) -> str:
    return f"{one.op} {one.dtype} {format_size(one.size_bytes, exact=True)}"


def _data(soak: Soak, plan: Plan) -> Finding:
    if not soak.wrong and not soak.calls:
        return tell("SOAK-001", "no calls")
    if not soak.wrong:
        # The rule of three: without any among n, a share of 3/n would have shown with 95 %.
        most = math.ceil(3e6 / soak.calls)
        gigabytes = soak.checked_bytes / 1e9
        return tell("SOAK-001", "good", calls=soak.calls, gigabytes=gigabytes, most=most)
    first = soak.wrong[0]
    blamed = {one.suspect if one.suspect >= 0 else one.rank for one in soak.wrong}
    who = f"rank {min(blamed)}" if len(blamed) == 1 else f"{len(blamed)} ranks"
    # A world that died in the middle of a window has told its wrong calls and not the window.
    wrong = max(soak.wrong_calls, len({(one.seed, one.call) for one in soak.wrong}))
    return tell(
        "SOAK-001",
        "wrong",
        subject=Subject("rank", who) if len(blamed) == 1 else None,
        evidence=first_lines(
            f"{one.at} rank {one.rank} ({one.host}): {_call(one)}, seed {one.seed}, call {one.call}: "
            f"{one.wrong} wrong, {one.example}"
            for one in soak.wrong
        ),
        wrong=wrong,
        calls=max(soak.calls, wrong),
        who=who,
        first=first,
        call=_call(first),
        because=f"pattern of the wrong elements: {first.guess}" if first.guess else "",
        next=_again(first, plan),
    )


def _again(wrong: SoakWrong, plan: Plan) -> str:
    """The same data in the same operation."""
    size, engine = wrong.size_bytes, f" --engine {plan.engine}" if plan.engine != "torch" else ""
    words = f"wirespeed bench {wrong.op} -b {size} -e {size} -d {wrong.dtype}"
    return f"{words} --seed {wrong.seed} -n 1000{engine}"


def _stalls(soak: Soak) -> Finding:
    told = [one for one in soak.stalls if not one.busy]
    if not soak.calls:
        return tell("SOAK-002", "no calls")
    rank, of_rank = _culprit(told, soak)
    if not told or (rank is None and not _many(told, soak)):
        few = f"; {len(told)} took long without a pattern" if told else ""
        busy = len(soak.stalls) - len(told)
        return tell(
            "SOAK-002", "good", few=few, stalls=soak.stall_calls, calls=soak.calls, busy=busy
        )
    shown = of_rank or told
    period = _period([one.since_s for one in shown])
    case = "stood still" if any(one.paused for one in shown) else "stalls"
    how = case if case == "stood still" else "was last"
    return tell(
        "SOAK-002",
        case,
        status="fail" if rank is not None and len(shown) >= _RECURS else "warn",
        subject=None if rank is None else Subject("rank", f"rank {rank}"),
        evidence=first_lines(
            f"{one.at} (+{one.since_s:.0f} s) {_call(one)}: {format_duration(one.seconds)}, as a rule "
            f"{format_duration(one.median)}; last rank {one.last_rank}"
            + (f", stood still {list(one.paused)}" if one.paused else "")
            for one in shown
        ),
        count=len(shown),
        how="" if rank is None else f" as rank {rank} {how}",
        name="job" if rank is None else f"rank {rank}",
        period=f", about every {format_duration(period)}" if period else "",
        longest=format_duration(max(one.seconds for one in shown)),
        first=shown[0],
        last=shown[-1],
        lost=format_duration(sum(one.seconds for one in shown)),
        elapsed=format_duration(soak.elapsed_s),
    )


def _culprit(told: Sequence[SoakStall], soak: Soak) -> tuple[int | None, list[SoakStall]]:
    """The rank that stood still alone in the most of them; else one that was last beyond chance."""
    alone = Counter(one.paused[0] for one in told if len(one.paused) == 1)
    if alone:
        rank, count = alone.most_common(1)[0]
        if count >= _RECURS or count == len(told):
            return rank, [one for one in told if one.paused == (rank,)]
    ranks = max((len(one.last_share) for one in soak.windows), default=1)
    other = [one for one in told if not one.paused]
    last = Counter(one.last_rank for one in other)
    if last and ranks > 1:
        rank, count = last.most_common(1)[0]
        if count >= _FEW and _by_luck(count, len(other), 1 / ranks) * ranks < _SURE:
            return rank, [one for one in other if one.last_rank == rank]
    return None, []


def _by_luck(count: int, of: int, share: float) -> float:
    """P(at least `count` of `of`) where each has that share."""
    return sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(count, of + 1))


def _many(told: Sequence[SoakStall], soak: Soak) -> bool:
    """Whether calls that nobody explains cost enough to be told."""
    return len(told) >= _FEW and sum(one.seconds for one in told) > 0.01 * soak.elapsed_s


def _period(times: Sequence[float]) -> float:
    """Seconds between regular events; 0 where they are not."""
    gaps = [b - a for a, b in pairwise(times)]
    if len(gaps) < _FEW or not (middle := median(gaps)):
        return 0.0
    return middle if median_absolute_deviation(gaps) < _REGULAR * middle else 0.0


def _restarts(soak: Soak) -> Finding:
    failed = soak.failures
    if not failed:
        return tell("SOAK-004", "good" if soak.calls else "no calls")
    subjects = Counter((one.subject_kind, one.subject) for one in failed)
    (kind, name), times = subjects.most_common(1)[0]
    first = next(one for one in failed if one.subject == name)
    return tell(
        "SOAK-004",
        "failed",
        subject=Subject(kind, name),  # type: ignore[arg-type]
        evidence=first_lines(
            f"{one.at} (+{one.since_s:.0f} s) {one.subject}: {one.title}" for one in failed
        ),
        count="once" if len(failed) == 1 else f"{len(failed)} times",
        more=f", {times} times {name}" if name != "job" and len(failed) > 1 else "",
        first=first,
        seen=first.saw or first.title,
        lost=_total(failed),
    )


def _total(incidents: Iterable[Incident]) -> str:
    return format_duration(sum(one.lost_s for one in incidents))


def _disk(soak: Soak) -> list[Finding]:
    full = [one for one in soak.incidents if one.id == "SOAK-006"]
    lines = first_lines(f"{one.at}: for {format_duration(one.lost_s)}" for one in full)
    if not full:
        return []
    return [tell("SOAK-006", "full", evidence=lines, lasted=_total(full), saw=full[0].saw)]


def _busy(soak: Soak) -> list[Finding]:
    busy = [one for one in soak.stalls if one.busy]
    lost = sum(one.seconds for one in busy)
    if not busy or lost < _BUSY_SHARE * soak.elapsed_s:
        return []
    ranks = Counter(rank for one in busy for rank in one.busy)
    most = ", ".join(f"rank {rank} in {count}" for rank, count in ranks.most_common(4))
    return [tell("SOAK-007", "busy", calls=len(busy), lost=format_duration(lost), most=most)]


def _skipped(skipped: Mapping[str, str]) -> list[Finding]:
    reasons = by_reason((reason, label) for label, reason in skipped.items())
    return [
        tell(
            "CAP-001",
            "not soaked",
            evidence=labels[:_MOST_EVIDENCE],
            configurations=counted(len(labels), "configuration"),
            reason=reason,
        )
        for reason, labels in reasons.items()
    ]
