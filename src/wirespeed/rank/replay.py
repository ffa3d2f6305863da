"""The collectives of one step of somebody's job, in its order and groups, timed without the job.

Twice: one behind the other, and with the job's own work between them, as sleep. Sleep leaves the
machine to the transfers, so that what is timed is the fabric and not the cores that the job shares.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle
from statistics import median

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.engines import Handle
from wirespeed.collectives.oracle import allocate, rotation
from wirespeed.model.bench_records import MedianTime, Replay, ReplayedCall
from wirespeed.model.codec import to_json
from wirespeed.plan import Measure, Plan, ReplayPlan
from wirespeed.rank.measure import Samples, sample, timer_for, warm_up
from wirespeed.rank.place import Place, Site, site_of, synchronize
from wirespeed.rank.steps import Reporter, teller
from wirespeed.rank.time_limit import TimeLimit
from wirespeed.statistics import median_interval

_SPUN_S = 2e-4
"""The end of a sleep, which the system overshoots by some 60 µs."""
_NAP_S = 1.0
"""A longer sleep tells the watchdog in between that nothing hangs."""


@dataclass(slots=True)
class _Slot:
    """A call on buffers of its own; `under_way` until it was waited for."""

    issue: Callable[[], Handle | None]
    under_way: Handle | None = None

    def start(self) -> None:
        self.wait()
        self.under_way = self.issue()

    def wait(self) -> None:
        if self.under_way is not None:
            self.under_way.wait()
            self.under_way = None


@dataclass(frozen=True, slots=True)
class _Turn:
    """One call of the sequence as this rank makes it."""

    slot: _Slot
    gap_s: float
    waited: bool


def run_replay(
    place: Place, plan: Plan, replay: ReplayPlan, heartbeat: Reporter, limit: TimeLimit
) -> None:
    """Time the sequence; its cases are checked and timed one by one already. Collective."""
    sites = [
        site_of(place, step.case, CATALOGUE[step.case.op], step.case.size_bytes)
        for step in plan.steps
    ]
    turns = _turns(place, replay, sites)
    how = limit.share(plan.steps[0].measure or Measure(), 2)
    if how is None:
        limit.left_out.append("the sequence of a step")
        return
    heartbeat.enter("the sequence of a step")
    unbroken = _timed(place, how, lambda: _play(place, turns))
    heartbeat.enter("the sequence of a step with its gaps")
    paced = _timed(place, how, lambda: _play_paced(place, turns))
    own = float(place.control.matrix([sum(turn.gap_s for turn in turns)]).max())
    tell = teller(place, heartbeat)
    tell("choices", {"choices": [asdict(one) for one in replay.choices]})
    tell("replay", to_json(_told(replay, sites, own, unbroken, paced)))


def _turns(place: Place, replay: ReplayPlan, sites: list[Site]) -> list[_Turn]:
    """This rank's own calls; those of one kind take its buffers in turn."""
    taken = {
        number: cycle(_slots(place, site, replay.in_job[number].calls))
        for number, site in enumerate(sites)
        if site.group is not None
    }
    return [
        _Turn(next(taken[call.step]), call.gap_s, call.waited)
        for call in replay.calls
        if call.step in taken
    ]


def _slots(place: Place, site: Site, calls: int) -> list[_Slot]:
    """As many as the step has calls, but no more than it takes to leave the cache, from 2 on."""
    each = site.dtype.itemsize * (
        site.collective.input_count(site.geometry) + site.collective.output_count(site.geometry)
    )
    slots = min(calls, max(2, rotation(each, place.cache_bytes)))
    buffers = allocate(
        *(site.collective, site.geometry, site.torch_dtype, place.device),
        in_place=False,
        slots=slots,
    )
    return [
        _Slot(place.engine.bind(site.call(one.input, one.output, blocking=False)))
        for one in buffers
    ]


def _play(place: Place, turns: list[_Turn]) -> None:
    for turn in turns:
        turn.slot.start()
        if turn.waited:
            turn.slot.wait()
        place.tick()
    _wait_for_all(turns)


def _play_paced(place: Place, turns: list[_Turn]) -> None:
    for turn in turns:
        _pause(place, turn.gap_s)
        turn.slot.start()
        if turn.waited:
            turn.slot.wait()
            synchronize(place.device)
        place.tick()
    _wait_for_all(turns)


def _wait_for_all(turns: list[_Turn]) -> None:
    for turn in turns:
        turn.slot.wait()


def _pause(place: Place, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        if left > _SPUN_S:
            time.sleep(min(left - _SPUN_S, _NAP_S))
            place.tick()


def _timed(place: Place, how: Measure, play: Callable[[], None]) -> Samples:
    # A sequence is longer than what hosts differ by.
    timer = timer_for(place.device, place.control.barrier, place.tick, lambda: None)
    warm_up(place, timer, cycle([play]), how, buffers=1)
    samples, _, _ = sample(place, timer, cycle([play]), how)
    return samples


def _median(samples: Samples) -> MedianTime:
    times = samples.slowest
    ends = median_interval(times)
    return MedianTime(median=median(times), low=ends.low, high=ends.high, samples=len(times))


def _told(
    replay: ReplayPlan, sites: list[Site], own_s: float, unbroken: Samples, paced: Samples
) -> Replay:
    last_rank, often = unbroken.last.most_common(1)[0]
    calls = [
        ReplayedCall(
            op=site.case.op,
            dtype=site.dtype.name,
            groups=site.case.groups,
            size_bytes=site.size_bytes,
            calls=one.calls,
            in_job=one.time,
            last=one.last_s,
        )
        for site, one in zip(sites, replay.in_job, strict=True)
    ]
    return Replay(
        source=replay.source,
        job_ranks=replay.job_ranks,
        job_steps=replay.job_steps,
        job_step=replay.job_step,
        own=own_s,
        calls=tuple(calls),
        unbroken=_median(unbroken),
        paced=_median(paced),
        last_rank=last_rank,
        last_share=often / len(unbroken.slowest),
    )
