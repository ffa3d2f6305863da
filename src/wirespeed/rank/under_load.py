"""What computing and sending cost each other, several groups at once, and uneven all_to_all.

Each activity is timed alone and with others at the same time, in interleaved rounds. Together, all
begin after one barrier with amounts of work that take about the same time alone, and what counts is how
far each gets in the stretch in which every activity is at work; so a call that runs on after the others
have finished dilutes nothing. A round's figure is the mean of its calls there, of the slowest rank;
ratios are taken round by round.

On CPUs each activity has a thread (torch lets go of Python's lock while it computes or waits) and its
calls are timed by the host's clock. On CUDA each has a stream and its calls are timed by events; one
thread issues them in turn, in the same order on every rank, as NCCL asks of several communicators in
use at once.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil
from statistics import median
from threading import Barrier
from time import perf_counter

import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE, exchanged
from wirespeed.errors import CannotMeasure
from wirespeed.model.training_records import Ends, LoadFigures, Ratio
from wirespeed.model.units import format_size
from wirespeed.plan import Measure
from wirespeed.rank.measure import shots_of
from wirespeed.rank.place import Place, Site
from wirespeed.statistics import LEAST_SAMPLES, median_interval, paired_ratio, sure_interval

_ROUND_S = 0.05
"""Seconds that each activity's calls are meant to take alone in one round."""
_LEAST_CALLS, _MOST_CALLS = 4, 2000
_MOST_ROUNDS = 40
_WAIT_S = 600.0
"""No rank's threads wait longer for each other than this."""

Call = tuple[float, float]
"""(begin, end) in seconds."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that all ranks do at once; `call` is one piece of it, blocking on CPUs."""

    name: str
    call: Callable[[], object]


def gemm(
    device: torch.device,
    rows: int,
    inner: int | None = None,
    columns: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Activity:
    """One product of matrices, rows × inner times inner × columns; square where only `rows` is told."""
    inner, columns = inner or rows, columns or rows
    first = torch.randn(rows, inner, device=device).to(dtype)
    second = torch.randn(inner, columns, device=device).to(dtype)
    out = torch.empty(rows, columns, device=device, dtype=dtype)
    name = str(rows) if rows == inner == columns else f"{rows} × {inner} × {columns}"
    return Activity(f"GEMM {name}", lambda: torch.mm(first, second, out=out))


def all_reduce(
    name: str, size_bytes: int, group: dist.ProcessGroup, device: torch.device
) -> Activity:
    """One all_reduce of float32 over that group, named with it (`all_reduce tensor`)."""
    buffer = torch.zeros(max(1, size_bytes // 4), device=device)
    return Activity(name, lambda: dist.all_reduce(buffer, group=group))


def beside_each_other(
    activities: Sequence[Activity],
    *,
    control: dist.ProcessGroup,
    device: torch.device,
    rounds: int | None = 8,
    max_time_s: float = 0.0,
    is_over: Callable[[], bool] = lambda: False,
    tick: Callable[[], object] = lambda: None,
) -> list[LoadFigures]:
    """Each activity alone and beside all others: one record each. Collective over `control`.

    `control` is a group of all ranks for CPU tensors, which none of the activities uses; activities that
    send must have groups of their own. A rank outside an activity's group gives it a call that does
    nothing. rounds: None: as many as fit into `max_time_s`, but enough for an interval. tick: called
    after each call, by any thread. is_over: whether a limit of all measuring ends it after a round;
    collective. CannotMeasure: their calls never overlapped in a round.
    """
    bench = _Bench(control, device, tick)
    counts, times = bench.calibrated(activities)
    alone, together = [], []
    for _ in range(rounds or _fitting(counts, times, max_time_s)):
        alone.append(bench.each_alone(activities, counts))
        together.append(bench.slowest(_paces(bench.run(activities, counts))))
        if is_over():
            break
    gain = _gain(alone, together)
    by_activity = zip(
        activities, zip(*alone, strict=True), zip(*together, strict=True), strict=True
    )
    found = []
    for activity, apart, at_once in by_activity:
        others = ", ".join(other.name for other in activities if other is not activity)
        found.append(replace(_figures(activity.name, others, apart, at_once), gain=gain))
    return found


def _fitting(counts: Sequence[int], times: Sequence[float], max_time_s: float) -> int:
    """Rounds for so much time: each takes the calls one activity after the other, and again at once."""
    round_s = 2 * sum(count * one for count, one in zip(counts, times, strict=True))
    return max(LEAST_SAMPLES, min(_MOST_ROUNDS, int(max_time_s / max(round_s, 1e-9))))


def _gain(alone: Sequence[Sequence[float]], together: Sequence[Sequence[float]]) -> Ratio | None:
    """How much quicker all of it is at once than in turn, by round; None where nothing overlapped.

    At once each activity gets 1 / together done a second, which in turn would take alone / together.
    """
    whole = [pair for pair in zip(alone, together, strict=True) if min(*pair[0], *pair[1]) > 0]
    found = [sum(a / b for a, b in zip(*pair, strict=True)) for pair in whole]
    if not found:
        return None
    ends = sure_interval(found)
    return Ratio(value=median(found), low=ends.low, high=ends.high)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where activities are timed."""

    control: dist.ProcessGroup
    device: torch.device
    tick: Callable[[], object]

    def calibrated(self, activities: Sequence[Activity]) -> tuple[list[int], list[float]]:
        """Calls of each that take about as long as those of the others, and the seconds of a call; equal
        on all ranks."""
        self.each_alone(activities, [2] * len(activities))  # the first calls take longer
        times = self.each_alone(activities, [3] * len(activities))
        whole = max(_ROUND_S, _LEAST_CALLS * max(times))
        counts = [ceil(whole / max(one, 1e-9)) for one in times]
        return [max(_LEAST_CALLS, min(_MOST_CALLS, count)) for count in counts], times

    def each_alone(self, activities: Sequence[Activity], counts: Sequence[int]) -> list[float]:
        """Seconds of a call of each, one activity after the other, of the slowest rank."""
        found = []
        for activity, count in zip(activities, counts, strict=True):
            found += self.slowest(_paces(self.run([activity], [count])))
        return found

    def run(self, activities: Sequence[Activity], counts: Sequence[int]) -> list[list[Call]]:
        """Begin and end of every call of each activity, all of them at once, after a barrier."""
        dist.all_reduce(torch.zeros(1), group=self.control)
        if self.device.type == "cuda":
            return _on_streams(activities, counts, self.device, self.tick)
        return _on_threads(activities, counts, self.tick)

    def slowest(self, values: Sequence[float]) -> list[float]:
        """The largest of each over all ranks."""
        row = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(row, dist.ReduceOp.MAX, group=self.control)
        return [float(value) for value in row]


def _on_threads(
    activities: Sequence[Activity], counts: Sequence[int], tick: Callable[[], object]
) -> list[list[Call]]:
    together = Barrier(len(activities))
    threads = torch.get_num_threads()

    def work(activity: Activity, count: int) -> list[Call]:
        torch.set_num_threads(threads)  # a new thread would take every core for its products
        together.wait(_WAIT_S)
        calls = []
        for _ in range(count):
            begin = perf_counter()
            activity.call()
            calls.append((begin, perf_counter()))
            tick()
        return calls

    with ThreadPoolExecutor(len(activities)) as pool:
        jobs = [pool.submit(work, *pair) for pair in zip(activities, counts, strict=True)]
        return [job.result() for job in jobs]


def _on_streams(
    activities: Sequence[Activity],
    counts: Sequence[int],
    device: torch.device,
    tick: Callable[[], object],
) -> list[list[Call]]:
    """The calls spread evenly over the issuing order, so that each stream always has work."""
    torch.cuda.synchronize(device)
    streams = [torch.cuda.Stream(device) for _ in activities]
    order = sorted(
        (turn / count, index) for index, count in enumerate(counts) for turn in range(count)
    )
    zero = torch.cuda.Event(enable_timing=True)
    zero.record(torch.cuda.current_stream(device))
    marks: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in activities]
    for _, index in order:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(streams[index]):
            begin.record(streams[index])
            activities[index].call()
            end.record(streams[index])
        marks[index].append((begin, end))
        tick()
    torch.cuda.synchronize(device)
    return [
        [(zero.elapsed_time(begin) / 1e3, zero.elapsed_time(end) / 1e3) for begin, end in pairs]
        for pairs in marks
    ]


def _paces(lanes: Sequence[Sequence[Call]]) -> list[float]:
    """Seconds a call of each lane within the stretch in which all lanes were at work; else negative.

    Of calls that lie partly within it their part counts: those wholly within are the short ones.
    """
    begin = max(lane[0][0] for lane in lanes)
    end = min(lane[-1][1] for lane in lanes)
    found = []
    for lane in lanes:
        parts = [(min(end, last) - max(begin, first), last - first) for first, last in lane]
        done = sum(within / max(whole, 1e-9) for within, whole in parts if within > 0)
        found.append((end - begin) / done if done > 0 else -1.0)
    return found


def _figures(
    name: str, beside: str, alone: Sequence[float], together: Sequence[float]
) -> LoadFigures:
    """Rounds in which the activities never were at work at once are left out."""
    pairs = [(a, b) for a, b in zip(alone, together, strict=True) if a > 0 and b > 0]
    if not pairs:
        raise CannotMeasure(
            f"{name} never ran beside {beside}",
            expected="calls that overlap; pieces of about the same length",
            next="smaller pieces of the longer one",
        )
    apart, beside_s = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    value, interval = paired_ratio(beside_s, apart)
    return LoadFigures(
        name=name,
        beside=beside,
        alone=median(apart),
        together=median(beside_s),
        ratio=Ratio(value=value, low=interval.low, high=interval.high),
        rounds=len(pairs),
        alone_interval=_ends(apart),
        together_interval=_ends(beside_s),
    )


def _ends(times: Sequence[float]) -> Ends:
    interval = median_interval(times)
    return Ends(low=interval.low, high=interval.high)


def expert_splits(rows: int, ranks: int, share: float) -> list[int]:
    """Rows that a rank sends to each rank when `share` of its rows goes to the expert on the first.

    The rest is spread evenly over the others; sums to `rows`. A share of 1/ranks is even.
    """
    if ranks == 1:
        return [rows]
    hot = round(rows * share)
    each, more = divmod(rows - hot, ranks - 1)
    return [hot, *(each + (index < more) for index in range(ranks - 1))]


def to_experts(site: Site, rows: int, width: int, share: float) -> Site:
    """all_to_all_v of so many rows of `width` elements from each rank, `share` of them to the first."""
    given = [width * each for each in expert_splits(rows, site.ranks, share)]
    split = exchanged(lambda sender, receiver, count: given[receiver])
    collective = replace(CATALOGUE["all_to_all_v"], size_factor=lambda ranks: 1, **split)
    return replace(site, collective=collective, count=rows * width)


def in_turn(name: str, place: Place, sites: Sequence[Site]) -> Activity:
    """One call is one of each operation, through rotating buffers."""
    turns = [cycle(shots_of(place, site, Measure())) for site in sites]

    def turn() -> None:
        for shots in turns:
            next(shots)()

    return Activity(name, turn)


def skewed_all_to_all(
    place: Place,
    experts: Mapping[float, Site],
    *,
    control: dist.ProcessGroup,
    device: torch.device,
    rounds: int | None = 8,
    max_time_s: float = 0.0,
    is_over: Callable[[], bool] = lambda: False,
    tick: Callable[[], object] = lambda: None,
) -> list[LoadFigures]:
    """Each exchange of `to_experts`, by its share, against the first, in which shares are even.

    One record a share: `alone` is even, `together` is skewed. Collective over `control`, whose ranks are
    in such groups. rounds, max_time_s, is_over, tick: as of `beside_each_other`.
    """
    activities = [in_turn(_expert_name(*one), place, [one[1]]) for one in experts.items()]
    bench = _Bench(control, device, tick)
    counts, seconds = bench.calibrated(activities)
    number = rounds or 2 * _fitting(counts, seconds, max_time_s)
    times = []
    for _ in range(min(number, _MOST_ROUNDS)):
        times.append(bench.each_alone(activities, counts))
        if is_over():
            break
    even, *uneven = zip(*times, strict=True)
    return [
        _figures(activity.name, "even shares", even, seconds)
        for activity, seconds in zip(activities[1:], uneven, strict=True)
    ]


def _expert_name(share: float, site: Site) -> str:
    return f"all_to_all_v {format_size(site.size_bytes)}, {share:.0%} to one expert"
