"""One timed configuration: warm up until stable, sample until the interval is narrow enough.

Every decision (stop, next chunk, what fits) is taken from figures that all ranks gathered, so that
all take it alike. The time of one operation is the slowest rank's.

Clocks: perf_counter around a call on CPUs, CUDA events on GPUs. `each`: all ranks meet in a barrier,
then make one call; the sample is that call's time on this rank. `batch`: calls back to back with one
synchronisation at the end, as nccl-tests times; the sample is the batch's time over its calls.
`graph`: as `batch`, the calls replayed from one CUDA graph.

On GPUs ranks that left a barrier on their hosts launch some 10 µs apart, and a launch may take as long
as a small call. So an all_reduce goes before the first event, which lets all devices go on together,
and before a single call a kernel that keeps the device waiting while the host issues the rest.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter
from typing import cast

import torch

from wirespeed.collectives.engines import Handle, Issue
from wirespeed.collectives.oracle import allocate, rotation
from wirespeed.collectives.stopping import StopRule, WarmUp
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import CALLS_PER_BATCH, Measurement, StopReason
from wirespeed.plan import Measure
from wirespeed.rank.place import Place, Site, align_point, connect, sync_point
from wirespeed.statistics import time_stats

Shot = Callable[[], object]
Hook = Callable[[], object]

MOST_RANK_MEDIANS = 1024


class CpuTimer:
    """Blocking calls on the host's clock; `barrier` and `tick` (progress for the watchdog) run outside.

    `turn` gives the shots without end and goes on where the call before left it, so that every
    rotated buffer gets its turn however few shots a call takes.
    """

    def __init__(self, barrier: Hook, tick: Hook) -> None:
        self._barrier, self._tick = barrier, tick

    def each(self, turn: Iterator[Shot], count: int) -> list[float]:
        """Seconds of `count` shots, each after a barrier."""
        barrier, tick = self._barrier, self._tick
        times = []
        for _ in range(count):
            fire = next(turn)
            tick()
            barrier()
            begin = perf_counter()
            fire()
            end = perf_counter()
            times.append(end - begin)
        return times

    def batch(self, turn: Iterator[Shot], count: int) -> float:
        """Seconds for `count` shots back to back, after one barrier."""
        tick = self._tick
        self._barrier()
        begin = perf_counter()
        for _ in range(count):
            next(turn)()
            tick()
        return perf_counter() - begin


_HELD_CYCLES, _MOST_CYCLES = 200_000, 6_400_000
"""Of the GPU's clock, about 0.1 and 3 ms: to issue a call takes mostly less, and on a slow host more."""


class CudaTimer:
    """CUDA events on the current stream.

    barrier: keeps the hosts together; align: what is issued on the stream to keep the devices together.
    """

    def __init__(self, device: torch.device, barrier: Hook, tick: Hook, align: Hook) -> None:
        self._device, self._barrier, self._tick, self._align = device, barrier, tick, align
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._held = _HELD_CYCLES

    def each(self, turn: Iterator[Shot], count: int) -> list[float]:
        return [self._timed(turn, 1) for _ in range(count)]

    def batch(self, turn: Iterator[Shot], count: int) -> float:
        return self._timed(turn, count)

    def _timed(self, turn: Iterator[Shot], count: int) -> float:
        torch.cuda.synchronize(self._device)
        self._tick()
        self._barrier()
        if count == 1:
            _hold(self._held)
        self._align()
        self._begin.record()
        for _ in range(count):
            next(turn)()
        self._end.record()
        # The GPU waited for this host, and that is in the sample: the next ones hold it for longer.
        if count == 1 and self._begin.query():
            self._held = min(2 * self._held, _MOST_CYCLES)
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1e3


Timer = CpuTimer | CudaTimer


def timer_for(device: torch.device, barrier: Hook, tick: Hook, align: Hook) -> Timer:
    """The clock that fits the device."""
    if device.type == "cuda":
        return CudaTimer(device, barrier, tick, align)
    return CpuTimer(barrier, tick)


def _hold(cycles: int) -> None:
    """Keep the current stream waiting; nothing where this torch has no such kernel."""
    hold = getattr(torch.cuda, "_sleep", None)
    if hold is not None:
        hold(cycles)


def as_graphs(shots: Sequence[Shot], device: torch.device, calls: int, graphs: int) -> list[Shot]:
    """So many graphs of so many calls each, over the shots in turn; what comes back replays them.

    CUDA only, and on all ranks alike. Every shot is made once before, on the capturing stream: capture
    must meet connected communicators and registered buffers. What other threads ask of CUDA meanwhile
    (torch's watchdog looks at events) does not break the capture.
    """
    side, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    side.wait_stream(current)
    turn = cycle(shots)
    with torch.cuda.stream(side):
        for _ in range(calls * graphs):
            next(turn)()
    current.wait_stream(side)
    found: list[Shot] = []
    turn = cycle(shots)
    for _ in range(graphs):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            for _ in range(calls):
                next(turn)()
        found.append(graph.replay)
    return found


def shot(issues: Sequence[Issue], *, blocking: bool) -> Shot:
    """One timed unit: the single call itself where it blocks (nothing of ours is in between)."""
    if blocking and len(issues) == 1:
        return issues[0]

    def in_turn() -> None:
        for issue in issues:
            issue()

    def in_flight() -> None:
        handles = [issue() for issue in cast("Sequence[Callable[[], Handle]]", issues)]
        for handle in handles:
            handle.wait()

    return in_turn if blocking else in_flight


@dataclass(slots=True)
class Samples:
    """Per-sample figures, the same on every rank."""

    slowest: list[float] = field(default_factory=list)
    skew: list[float] = field(default_factory=list)
    last: Counter[int] = field(default_factory=Counter)
    by_rank: list[torch.Tensor] = field(default_factory=list)
    elapsed_s: float = 0.0

    def add(self, times: torch.Tensor, elapsed_s: float) -> None:
        """times: seconds, shape (world size, samples)."""
        slowest, who = times.max(0)
        self.slowest += slowest.tolist()
        self.skew += (slowest - times.min(0).values).tolist()
        self.last.update(who.tolist())
        self.by_rank.append(times)
        self.elapsed_s = elapsed_s


def measure(place: Place, site: Site, how: Measure, wrong: int | None) -> Measurement:
    """Time a case that can run here (see `reason_not_to_run`); collective."""
    if how.timing == "graph" and place.device.type != "cuda":
        raise CannotMeasure(
            f"a graph of calls on {place.device.type}, with the backend {place.engine.backend}",
            expected="ranks on GPUs: CUDA graphs",
            next=f"wirespeed bench {site.case.op} --timing batch",
        )
    connect(place, site)
    align = align_point(place.device, site.group)
    timer = timer_for(place.device, sync_point(place, site), place.tick, align)
    shots = shots_of(place, site, how)
    # The v variants give ranks buffers of different sizes, so they rotate through different numbers.
    buffers = int(place.control.matrix([float(len(shots))]).max())
    if how.timing == "graph":
        calls = _batches(how)[0]
        buffers = -(-buffers // calls)
        if site.group is not None:
            shots = as_graphs(shots, place.device, calls, buffers)
    turn = cycle(shots)
    warmup = warm_up(place, timer, turn, how, buffers)
    samples, stopped_by, per_sample = sample(place, timer, turn, how)
    stats = time_stats(samples.slowest)
    medians = torch.cat(samples.by_rank, 1).median(1).values.tolist()
    last_rank, times_last = samples.last.most_common(1)[0]
    # Where nothing moves, as in a group of one rank, there is a time and no rate.
    moves = site.ranks > 1 and stats.median > 0
    algbw = site.size_bytes / stats.median if moves else 0.0
    return Measurement(
        **site.told(place.engine.name),
        timing=how.timing,
        blocking=how.blocking,
        in_flight=how.in_flight,
        warmup=warmup,
        iterations=len(samples.slowest) * per_sample,
        stopped_by=stopped_by,
        time=stats,
        algbw=algbw,
        busbw=algbw * site.collective.bus_factor(site.ranks),
        wrong=wrong,
        skew=sorted(samples.skew)[len(samples.skew) // 2],
        last_rank=last_rank,
        last_share=times_last / len(samples.slowest),
        rank_medians=tuple(medians) if place.world_size <= MOST_RANK_MEDIANS else (),
    )


def shots_of(place: Place, site: Site, how: Measure) -> list[Shot]:
    """What to time, over rotating buffers; a rank outside of every group does nothing."""
    if site.group is None:
        return [lambda: None]
    slots = slots_of(place, site, how)
    buffers = allocate(
        site.collective,
        site.geometry,
        site.torch_dtype,
        place.device,
        in_place=site.case.in_place,
        slots=slots,
    )
    blocking = how.blocking and how.in_flight == 1
    issues = [
        place.engine.bind(site.call(slot.input, slot.output, blocking=blocking)) for slot in buffers
    ]
    groups = [issues[i : i + how.in_flight] for i in range(0, slots, how.in_flight)]
    return [shot(group, blocking=blocking) for group in groups if len(group) == how.in_flight]


def slots_of(place: Place, site: Site, how: Measure) -> int:
    """Pairs of buffers that are rotated through."""
    per_slot = site.dtype.itemsize * (
        site.collective.input_count(site.geometry) + site.collective.output_count(site.geometry)
    )
    return max(rotation(per_slot, place.cache_bytes), how.in_flight)


def warm_up(place: Place, timer: Timer, turn: Iterator[Shot], how: Measure, buffers: int) -> int:
    """Run until the times no longer fall; how many shots that took."""
    rule = WarmUp(fixed=how.warmup, max_time_s=how.max_time_s, buffers=buffers)
    seen: list[float] = []
    begin, elapsed = time.monotonic(), 0.0
    while count := rule.next_chunk(seen, elapsed):
        times = timer.each(turn, count)
        rows = place.control.matrix([*times, time.monotonic() - begin])
        seen += rows[:, :-1].max(0).values.tolist()
        elapsed = float(rows[:, -1].max())
    return len(seen)


def sample(
    place: Place, timer: Timer, turn: Iterator[Shot], how: Measure
) -> tuple[Samples, StopReason, int]:
    """The samples, why it stopped, and how many calls are in one sample."""
    per_sample, fixed = (1, how.iterations) if how.timing == "each" else _batches(how)
    rule = StopRule(
        precision=how.precision,
        max_time_s=how.max_time_s,
        interval_s=how.interval_s,
        fixed=fixed,
    )
    samples = Samples()
    begin = time.monotonic()
    while count := rule.next_chunk(samples.slowest, samples.elapsed_s):
        if how.timing == "batch":
            times = [timer.batch(turn, per_sample) for _ in range(count)]
        else:
            times = timer.each(turn, count)
        rows = place.control.matrix([*times, time.monotonic() - begin])
        samples.add(rows[:, :-1] / (how.in_flight * per_sample), float(rows[:, -1].max()))
    return samples, rule.reason(samples.slowest, samples.elapsed_s), per_sample


def _batches(how: Measure) -> tuple[int, int | None]:
    """(calls in a batch, number of batches or None): a fixed count is kept as near as it divides."""
    if how.iterations is None:
        return CALLS_PER_BATCH, None
    batches = min(CALLS_PER_BATCH, how.iterations)
    return -(-how.iterations // batches), batches
