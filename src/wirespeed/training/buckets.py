"""Buckets of gradients: which travel together, what a step takes with them, which size is best.

What travels together is planned once, from sizes alone, the same on every rank. No torch. The model:
a collective of x bytes takes t(x) = o + x / w (R. W. Hockney, The communication challenge for MPP,
1994). Gradients of s bytes leave in n = ceil(s / B) buckets of s / n bytes, one at a time: the k-th is
full when k / n of the backward pass (b) is over, and goes when the one before it has arrived. Either
the first bucket to wait is the last one, or all wait behind the first:

    max(b + t(s / n), b / n + n t(s / n))

The first falls with n, the second, b / n + s / w + n o, is least at n = sqrt(b / o); they are equal at
n = (b - s / w) / o. So the best n is the larger of the two, and B = s / n. Many calls in a long pass
pay as long as they stay hidden.

Left out: that sending and computing slow each other (one memory, the same cores), and that real
collectives change their algorithm with size.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.statistics import MAD_TO_SIGMA

MEGA = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One parameter's gradient."""

    size_bytes: int
    kind: str
    """What a buffer can hold only one of: dtype and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients of one kind that are sent by one call."""

    kind: str
    members: tuple[int, ...]
    """Indices of the pieces, in the order in which the backward pass should reach them."""
    size_bytes: int


def bucket_bytes(bucket_mb: float) -> int:
    """Bytes of a limit in megabytes (10**6), at least 1; UsageError where it is no positive number."""
    try:
        limit = float(bucket_mb)
    except (TypeError, ValueError):
        limit = math.nan
    if not limit > 0 or math.isinf(limit):
        raise UsageError(
            f"a bucket of {bucket_mb!r} MB",
            expected="a number of megabytes above 0; one smaller than a parameter is fine",
            next="bucket_mb=25",
        )
    return max(1, int(limit * MEGA))


def plan_buckets(pieces: Sequence[Piece], limit: int, first: int | None = None) -> list[Bucket]:
    """Buckets of at most `limit` bytes in the order in which they are expected to be complete.

    The pieces come in the order of registration and are taken in reverse, as a backward pass reaches
    them. A bucket exceeds the limit only where a single piece does, which then has it for itself.
    `first`: another limit for the first bucket of each kind; a small one lets sending begin early.
    """
    plan: list[tuple[int, Bucket]] = []
    filling: dict[str, list[int]] = {}
    limits: dict[str, int] = {}
    for index in reversed(range(len(pieces))):
        piece = pieces[index]
        members = filling.setdefault(piece.kind, [])
        held = sum(pieces[member].size_bytes for member in members)
        if members and held + piece.size_bytes > limits.get(piece.kind, first or limit):
            plan.append((-members[-1], _bucket(pieces, members)))
            limits[piece.kind] = limit
            members = filling[piece.kind] = []
        members.append(index)
    plan += [(-members[-1], _bucket(pieces, members)) for members in filling.values()]
    return [bucket for _, bucket in sorted(plan, key=lambda item: item[0])]


def _bucket(pieces: Sequence[Piece], members: Sequence[int]) -> Bucket:
    size = sum(pieces[member].size_bytes for member in members)
    return Bucket(kind=pieces[members[0]].kind, members=tuple(members), size_bytes=size)


@dataclass(frozen=True, slots=True)
class Link:
    """One collective's cost as a line."""

    latency_s: float
    """o: of one call."""
    bytes_per_s: float
    """w: bytes of the buffer (not of the bus) a second."""
    error: float = 0.0
    """Median distance of the measurements from the line, relative to them; 0.05 means 5 %."""

    def time_s(self, size_bytes: float) -> float:
        return self.latency_s + size_bytes / self.bytes_per_s


_BUCKETED = ("bucketed", "ddp", "ddp-view")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWithoutSync:
    """What the yardstick took, in seconds, and what would be sent."""

    backward_s: float
    rest_s: float
    """Forward, optimizer, data."""
    gradient_bytes: int
    tensors: int
    """Gradients that are sent one by one."""


def predicted_step_s(
    strategy: str, step: StepWithoutSync, link: Link, bucket_mb: float | None = None
) -> float | None:
    """Seconds of a step; None for a strategy that the model does not know.

    Backward pass b, gradients of s bytes in n parameters, a collective of x bytes takes o + x / w:

        naive, flat      b + s / w + o n   (flat: n = 1; copies are left out)
        overlap          max(b + t, b / n + n t), t = o + s / (n w): one message a parameter
        bucketed, ddp    the same with n = ceil(s / B) buckets (`bucketed_step_s`)

    The terms are those of S. Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel
    Training, 2020, section 3, with the cost of a message after R. W. Hockney (1994).
    """
    whole = step.rest_s + step.backward_s
    wire = step.gradient_bytes / link.bytes_per_s
    if strategy == "none":
        return whole
    if strategy == "naive":
        return whole + wire + step.tensors * link.latency_s
    if strategy == "flat":
        return whole + wire + link.latency_s
    if strategy == "overlap":
        calls = max(step.tensors, 1)
        return step.rest_s + pipelined_s(link, step.gradient_bytes, calls, step.backward_s)
    if strategy in _BUCKETED and bucket_mb is not None:
        return bucketed_step_s(
            link,
            gradient_bytes=step.gradient_bytes,
            backward_s=step.backward_s,
            bucket_bytes=bucket_mb * 1e6,
            rest_s=step.rest_s,
        )
    return None


_HUBER = 1.345
"""Residuals above this many sigmas count linearly (P. J. Huber, 1964: 95 % efficient if normal)."""
_ROUNDS = 50
_NOISE_FLOOR, _LEAST_SHARE = 1e-6, 1e-3
"""Residuals below the first are rounding, not noise; models are no less than the second of a time."""


def bucketed_step_s(
    link: Link,
    *,
    gradient_bytes: int,
    backward_s: float,
    bucket_bytes: float,
    rest_s: float = 0.0,
) -> float:
    """Seconds of a step with buckets of that size; rest_s: forward, optimizer, data loading.

    A bucket larger than all gradients is one bucket of all of them. 0 gradients: nothing is sent.
    """
    _need(bucket_bytes > 0, f"a bucket of {bucket_bytes} bytes")
    _need(gradient_bytes >= 0 and backward_s >= 0, "negative gradients or times")
    if gradient_bytes == 0:
        return rest_s + backward_s
    calls = math.ceil(gradient_bytes / min(bucket_bytes, gradient_bytes))
    return rest_s + pipelined_s(link, gradient_bytes, calls, backward_s)


def pipelined_s(link: Link, gradient_bytes: int, calls: int, backward_s: float) -> float:
    """Seconds of a backward pass whose gradients leave in so many equal messages, one at a time."""
    one = link.time_s(gradient_bytes / calls)
    return max(backward_s + one, backward_s / calls + calls * one)


def best_bucket_bytes(link: Link, *, gradient_bytes: int, backward_s: float) -> int:
    """The bucket size with the least predicted step: gradients in equal buckets, as many as pay.

    Without latency the smallest bucket is best, which is one element (4 bytes).
    """
    _need(gradient_bytes > 0, "no gradients to send")
    if link.latency_s <= 0:
        return min(4, gradient_bytes)
    hidden = (backward_s - gradient_bytes / link.bytes_per_s) / link.latency_s
    best = max(math.sqrt(backward_s / link.latency_s), hidden)
    # The formula's number of buckets is no whole number: the better of its two neighbours.
    calls = min(max(best, 1), gradient_bytes)
    whole = {math.floor(calls), math.ceil(calls)}
    sizes = sorted(math.ceil(gradient_bytes / one) for one in whole)
    return min(
        sizes,
        key=lambda one: bucketed_step_s(
            link, gradient_bytes=gradient_bytes, backward_s=backward_s, bucket_bytes=one
        ),
    )


def fit_link(measured: Iterable[tuple[float, float]]) -> Link:
    """o and w from pairs (bytes, seconds), at least two sizes.

    Least squares of log(model / measured), so that 1 KB counts as much as 100 MB and a time twice
    too long as much as one twice too short, with Huber's weights, so that a few disturbed times do
    not bend the line; several times of one size count as their median. Neither o nor 1 / w is let
    below 0. Raises CannotMeasure where the times do not grow with the size, and ValueError for
    times that are not positive.
    """
    points = _medians(measured)
    if len(points) < 2:
        raise CannotMeasure(
            f"a line through {len(points)} size", expected="times of at least 2 sizes"
        )
    line = _solve([(1 / t, x / t, 1.0, 1.0) for x, t in points])
    for _ in range(_ROUNDS):
        before, line = line, _solve(_linearised(points, line))
        if all(math.isclose(*pair, rel_tol=1e-9) for pair in zip(before, line, strict=True)):
            break
    if line[1] <= 0:
        raise CannotMeasure(
            "the collective took no longer for more bytes, so that no bandwidth can be told",
            expected="times of sizes that differ by a factor of 100 or more",
        )
    error = median(abs((line[0] + line[1] * x) / t - 1) for x, t in points)
    return Link(line[0], 1 / line[1], error)


_Row = tuple[float, float, float, float]
"""(a, b, target, weight) of one equation a o + b / w = target."""


def _linearised(points: Sequence[tuple[float, float]], line: tuple[float, float]) -> list[_Row]:
    """A step of Gauss and Newton for the logarithms, with Huber's weights at this line."""
    # A model of nothing (no latency, 0 bytes) has no logarithm.
    models = [max(line[0] + line[1] * x, _LEAST_SHARE * t) for x, t in points]
    residuals = [math.log(m / t) for m, (_, t) in zip(models, points, strict=True)]
    sigma = max(MAD_TO_SIGMA * median(map(abs, residuals)), _NOISE_FLOOR)
    return [
        (1 / m, x / m, 1 - r, min(1.0, _HUBER * sigma / max(abs(r), _NOISE_FLOOR)))
        for m, r, (x, _) in zip(models, residuals, points, strict=True)
    ]


def _medians(measured: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    by_size: dict[float, list[float]] = defaultdict(list)
    for size, seconds in measured:
        _need(size >= 0 and seconds > 0, f"{size} bytes in {seconds} s")
        by_size[size].append(seconds)
    return [(size, median(times)) for size, times in sorted(by_size.items())]


def _solve(rows: Sequence[_Row]) -> tuple[float, float]:
    """(o, 1 / w) with the least weighted squares, neither below 0."""
    aa = sum(weight * a * a for a, _, _, weight in rows)
    ab = sum(weight * a * b for a, b, _, weight in rows)
    bb = sum(weight * b * b for _, b, _, weight in rows)
    at = sum(weight * a * target for a, _, target, weight in rows)
    bt = sum(weight * b * target for _, b, target, weight in rows)
    determinant = aa * bb - ab * ab
    if determinant > 0:
        latency, slope = (at * bb - bt * ab) / determinant, (aa * bt - ab * at) / determinant
        if latency >= 0 and slope >= 0:
            return latency, slope
        if latency >= 0:
            return at / aa, 0.0
    return 0.0, max(bt / bb, 0.0) if bb else 0.0


def _need(true: bool, what: str) -> None:
    if not true:
        raise ValueError(what)
