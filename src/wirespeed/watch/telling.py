"""Findings of what was judged: subjects, steps, figures; the words are in findings.yaml."""

from collections.abc import Iterator, Sequence

import numpy as np

from wirespeed.checks.registry import tell
from wirespeed.model.records import Finding, Status, Subject
from wirespeed.model.units import (
    counted,
    format_bandwidth,
    format_duration,
    format_size,
    listed,
    spans,
)
from wirespeed.model.watch_records import StepChange, Traffic
from wirespeed.statistics import Interval
from wirespeed.watch.causes import Cause, Growth, Starved
from wirespeed.watch.change_points import Change
from wirespeed.watch.costs import Cost
from wirespeed.watch.late import Late
from wirespeed.watch.memory_growth import Grown
from wirespeed.watch.network import SlowPart
from wirespeed.watch.own_work import Floats, OwnWork, median_over, sample
from wirespeed.watch.places import Place
from wirespeed.watch.steps import StepTable
from wirespeed.watch.whole_job import JobChange

_HOLES = 0.05
_CAUSES = {"data": "WATCH-003", "gc": "WATCH-004", "checkpoint": "WATCH-005", "load": "WATCH-007"}
_LARGER = 1024


def whose(seen: OwnWork, ranks: Sequence[int]) -> tuple[str, str]:
    """Kind and name of a subject; ranks: rows of OwnWork, none: the whole job."""
    if not ranks:
        return "job", "job"
    if len(ranks) == 1:
        return "rank", f"rank {seen.ranks[ranks[0]]}"
    return "node", seen.hosts[ranks[0]]


def whose_part(seen: OwnWork, ranks: Sequence[int]) -> str:
    """` of rank 3`; nothing of the whole job."""
    return f" of {whose(seen, ranks)[1]}" if ranks else ""


def _who(seen: OwnWork, ranks: Sequence[int]) -> str:
    """As a sentence begins."""
    if not ranks:
        return "every rank"
    host = seen.hosts[ranks[0]]
    if len(ranks) > 1:
        return f"{host} ({counted(len(ranks), 'rank')})"
    rank = f"rank {seen.ranks[ranks[0]]}"
    return f"{rank} on {host}" if host else rank


def _subject(seen: OwnWork, ranks: Sequence[int]) -> Subject:
    kind, name = whose(seen, ranks)
    return Subject("node" if kind == "node" else "rank" if kind == "rank" else "job", name)


def _since(seen: OwnWork, onset: Change | None) -> str:
    if onset is None:
        return "since the begin"
    first, low, high = _steps(seen, onset)
    return f"since step {first} (95 %: {low} … {high})"


def _steps(seen: OwnWork, onset: Change) -> tuple[int, int, int]:
    """The step, and the ends of its interval."""
    last = seen.step_at(onset.high) + int(seen.each[onset.high]) - 1
    return seen.step_at(onset.at), seen.step_at(onset.low), last


def _times_slower(cost: Cost) -> str:
    return (
        f"the job is {cost.ratio:.2f} times slower for it (95 %: {cost.low:.2f} … {cost.high:.2f})"
    )


def step_change(seen: OwnWork, onset: Change, kind: str, name: str) -> StepChange:
    step, low, high = _steps(seen, onset)
    times = seen.step_s
    return StepChange(
        step=step,
        low_step=low,
        high_step=high,
        subject_kind=kind,
        subject=name,
        before=float(np.median(times[: onset.at])),
        after=float(np.median(times[onset.at :])),
    )


def late(
    seen: OwnWork,
    ranks: Sequence[int],
    one: Late,
    cost: Cost,
    grown: Growth,
    status: Status,
    place: Place | None,
) -> Finding:
    own = float(np.median(median_over(seen.own[list(ranks)], 0)[one.rows]))
    rest = median_over(sample(np.delete(seen.own, list(ranks), axis=0)), 0)[one.rows]
    where = f", in {grown.phase}" if grown.phase else ""
    saw = (
        f"own work {format_duration(own)}, the others' {format_duration(float(np.median(rest)))}"
        f"{where}; in {int(seen.each[one.rows].sum())} of {int(seen.each.sum())} steps"
    )
    if place is not None:
        saw += f"; at {place.sentence} in {place.share:.0%} of looks, the others {place.others:.0%}"
    return tell(
        "WATCH-001",
        grown.case,
        status=status,
        subject=_subject(seen, ranks),
        who=_who(seen, ranks),
        host=seen.hosts[ranks[0]] or "that host",
        delay=format_duration(one.typical_s),
        when=f"{_how_often(one)} {_since(seen, one.onset)}{_until(seen, one)}",
        saw=saw,
        cpu=min(1.0, grown.cpu),
        waited=min(1.0, grown.waited),
        cost=_times_slower(cost),
    )


def _how_often(one: Late) -> str:
    if not one.bursts:
        return "in every step"
    return f"every {one.every} steps" if one.every > 1 else "now and then"


def _until(seen: OwnWork, one: Late) -> str:
    return f", until step {seen.step_at(one.over) - 1}" if one.over >= 0 else ""


def cause(seen: OwnWork, one: Cause, cost: Cost, onset: Change | None, status: Status) -> Finding:
    span = slice(onset.at if onset else 0, None)
    extra = float(np.average(one.extra[span], weights=seen.each[span]))
    saw = (
        f"{format_duration(extra)} of a step of {format_duration(float(seen.step_s[span].mean()))}"
    )
    uneven = one.name == "load"
    return tell(
        _CAUSES[one.name],
        "batches" if uneven else "slow",
        status="warn" if uneven else status,
        subject=_subject(seen, one.ranks),
        who="one rank or another" if uneven and not one.ranks else _who(seen, one.ranks),
        extra=format_duration(extra),
        when=f" {_since(seen, onset)}" if onset else "",
        saw=f"{saw} in the mean, for which the others wait" if one.ranks else f"{saw} in the mean",
        cost=_times_slower(cost),
    )


def stages(seen: OwnWork, count: int, ratio: float) -> Finding:
    spread = np.percentile(np.nan_to_num(median_over(seen.own, 1)), (5, 95))
    low, high = (format_duration(float(one)) for one in spread)
    return tell(
        "WATCH-007",
        "stages",
        count=count,
        ranks=len(seen.ranks),
        saw=f"own work of 5 % of the ranks is below {low}, of 5 % above {high}",
        cost=f"steps could be up to {ratio:.2f} times quicker",
    )


def node_of(part: SlowPart) -> tuple[str, str]:
    if part.node:
        return "node", part.node
    return "link", f"{part.route.source} -> {part.route.target}"


def network(seen: OwnWork, part: SlowPart, waits: Floats) -> Finding:
    kind, name = node_of(part)
    after = seen.first >= part.since if part.since >= 0 else np.ones(len(waits), np.bool_)
    after = after if after.any() else ~after
    lost = waits[after] * (1 - 1 / part.factor)
    share = float(np.average(lost / seen.step_s[after], weights=seen.each[after]))
    return tell(
        "WATCH-002",
        "node" if part.node else "link",
        subject=Subject("node" if kind == "node" else "link", name),
        status="fail" if share >= 0.05 else "warn",
        host=part.node,
        way={"both": "is", "sends": "sends", "receives": "receives"}.get(part.way, ""),
        factor=part.factor,
        since=f" since step {part.since}" if part.since >= 0 else "",
        source=part.route.source,
        target=part.route.target,
        rate=format_bandwidth(part.route.rate),
        usual=format_bandwidth(part.usual),
        busy=part.route.busy,
        rtt=format_duration(part.route.rtt_s),
        retransmits=part.route.retransmits,
        cost=f"the job is up to {1 / max(0.05, 1 - share):.2f} times slower for it: all ranks wait "
        f"{format_duration(float(np.median(waits[after])))} a step",
    )


def changed(seen: OwnWork, one: JobChange) -> Finding:
    return tell("WATCH-011", one.grown, saw=_before_and_now(one), **_change(seen, one))


def starved(table: StepTable, seen: OwnWork, one: JobChange, hungry: Starved) -> Finding:
    return tell(
        "WATCH-001",
        "threads",
        subject=Subject("rank", f"rank {hungry.rank}"),
        who=_rank(table, hungry.rank),
        host=table.hosts[hungry.rank] or "that host",
        lacked=hungry.lacked,
        others=hungry.others,
        steps=_before_and_now(one),
        **_change(seen, one),
    )


def _before_and_now(one: JobChange) -> str:
    return f"{format_duration(one.before)} before, {format_duration(one.after)} now"


def _change(seen: OwnWork, one: JobChange) -> dict[str, str]:
    ratio = one.after / one.before
    return {
        "when": _since(seen, one.change) if one.change else "little by little",
        "cost": f"steps take {ratio:.2f} times as long, surely {min(ratio, 1 + one.low):.2f} times",
    }


def synchronises(place: Place, looks: int) -> Finding:
    most = 1 / max(place.share, 1 - place.share)
    return tell(
        "WATCH-006",
        "waits",
        where=place.sentence,
        share=place.share,
        low=place.low,
        high=place.high,
        looks=looks,
        cost=f"steps could be up to {most:.2f} times quicker without",
    )


def memory(table: StepTable, grown: Sequence[Grown]) -> Finding:
    worst, more = grown[0], len(grown) - 1

    def rate(bytes_per_step: float) -> str:
        return format_size(int(1000 * bytes_per_step))

    return tell(
        "WATCH-010",
        "grows",
        subject=Subject("rank", f"rank {worst.rank}"),
        who=_rank(table, worst.rank),
        rate=rate(worst.per_step),
        more=f", and of {counted(more, 'more rank')}" if more else "",
        low=rate(worst.low),
        high=rate(worst.high),
        since=worst.since,
        size=format_size(worst.rss_bytes),
        evidence=(f"rank {one.rank}: {rate(one.per_step)} each 1,000 steps" for one in grown),
    )


def _rank(table: StepTable, rank: int) -> str:
    host = table.hosts[rank] if rank < len(table.hosts) else ""
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def bad_loss(table: StepTable) -> Finding:
    step = min(table.bad_loss.values())
    first = sorted(rank for rank, at in table.bad_loss.items() if at == step)
    one = len(first) == 1
    later = len(table.bad_loss) - len(first)
    return tell(
        "WATCH-012",
        "first",
        subject=Subject("rank", f"rank {first[0]}") if one else Subject("job", "job"),
        who=_rank(table, first[0]) if one else f"ranks {spans(first)}",
        step=step,
        saw=f"{counted(later, 'more rank')} after it" if later else "no other rank",
        because="its batch, or what it computed there" if one else "the ranks had it at once",
    )


def exposed(
    seen: OwnWork, share: float, interval: Interval, traffic: Sequence[Traffic], bound: float
) -> Finding:
    step = float(np.median(seen.step_s))
    known = sorted((one for one in traffic if one.exposed), key=lambda one: -(one.exposed or 0))
    worst = f"; most in {known[0].op} of {known[0].group}" if known else ""
    return tell(
        "WATCH-013",
        "exposed" if interval.low >= bound else "good",
        share=share,
        low=interval.low,
        high=interval.high,
        worst=worst,
        step=format_duration(step),
        possible=format_duration(step * (1 - share)),
        evidence=tuple(_exposed_line(one) for one in known[:12]),
    )


def _exposed_line(one: Traffic) -> str:
    return (
        f"{one.op} of {one.group} ({counted(one.ranks, 'rank')}): {one.calls:.3g} calls and "
        f"{format_size(int(one.bytes_per_step))} a step, {format_duration(one.exposed or 0)} exposed"
    )


def not_seen(
    seen: OwnWork | None, world_size: int, unseen: Sequence[str], least: int
) -> Iterator[Finding]:
    steps = int(seen.each.sum()) if seen else 0
    if seen is None or steps < least:
        yield tell("WATCH-014", "few steps", steps=steps, least=least)
    else:
        yield from _missing(seen, world_size)
    if unseen:
        yield tell("WATCH-014", "unseen", because=listed(unseen, 3), evidence=unseen)


def _missing(seen: OwnWork, world_size: int) -> Iterator[Finding]:
    silent = sorted(set(range(min(world_size, _LARGER * 16))) - set(seen.ranks.tolist()))
    if silent:
        yield tell("WATCH-014", "ranks", count=len(silent), world=world_size, who=spans(silent))
    holes = np.isnan(seen.step)
    if holes.mean() >= _HOLES:
        most = seen.ranks[np.argsort(-holes.mean(axis=1))[:4]]
        yield tell("WATCH-014", "holes", share=float(holes.mean()), who=listed(most.tolist()))
    if np.isnan(seen.own).mean() > 0.5:
        yield tell("WATCH-014", "waiting")
