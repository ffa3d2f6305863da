"""The timeline of one step as a Chrome trace, which Perfetto and chrome://tracing open.

Ranks are processes, lanes are threads. The clocks of the ranks are brought together by barriers that
all of them pass: nobody leaves a barrier before the last has entered it. With clock_i = true + o_i,
each passage says enter_i - leave_j <= o_i - o_j <= leave_i - enter_j; over many passages the
narrowest of these bounds hold, and half of what lies between them is the largest error.

Format: "Trace Event Format" (Chrome project), complete events `X` and metadata `M`; times in
microseconds.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

Stretch = tuple[float, float]
"""(begin, end) in seconds of one clock; begin <= end."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that ran on one rank."""

    rank: int
    lane: str
    """`step` (its phases), `compute`, `communication`."""
    name: str
    begin_s: float
    """Seconds on that rank's clock (`time.perf_counter`), unless somebody has aligned them."""
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


def stretches(spans: Iterable[Span]) -> list[Stretch]:
    """Where spans lie; their rank, lane and name forgotten."""
    return [(span.begin_s, span.end_s) for span in spans]


def merged(parts: Iterable[Stretch]) -> list[Stretch]:
    """The same time as stretches in order that neither overlap nor touch; empty ones are dropped."""
    whole: list[Stretch] = []
    for begin, end in sorted(parts):
        if end <= begin:
            continue
        if whole and begin <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], end))
        else:
            whole.append((begin, end))
    return whole


def union_length(parts: Iterable[Stretch]) -> float:
    """Seconds in which at least one of them runs."""
    return sum(end - begin for begin, end in merged(parts))


def covered_length(parts: Iterable[Stretch], by: Iterable[Stretch]) -> float:
    """Seconds in which one of `parts` runs and one of `by` as well."""
    left, right = merged(parts), merged(by)
    total = 0.0
    i = j = 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def uncovered_length(parts: Iterable[Stretch], by: Iterable[Stretch]) -> float:
    """Seconds in which one of `parts` runs and none of `by`: what nothing hides."""
    left = merged(parts)
    return union_length(left) - covered_length(left, by)


LANES = ("step", "compute", "communication")
"""In the order in which they are shown; other lanes come after."""

Passage = tuple[float, float]
"""(entered, left) a barrier, in seconds on the rank's own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How far each rank's clock is ahead of the first rank's, in seconds."""

    offsets: tuple[float, ...]
    errors: tuple[float, ...]
    """The true offset lies within offset ± error, by rank."""


def passages(barrier: Callable[[], None], rounds: int = 20) -> list[Passage]:
    """Pass the barrier that often; when this rank entered and left. Collective."""
    seen = []
    for _ in range(rounds):
        entered = perf_counter()
        barrier()
        seen.append((entered, perf_counter()))
    return seen


def align(by_rank: Sequence[Sequence[Passage]], *, ends_together: bool = False) -> Alignment:
    """Offsets from every rank's passages of the same barriers, at least one.

    ends_together: all ranks leave at the same moment but for noise, as they do collectives in which
    each needs something of every other. Then a rank that always comes last is not taken for a clock.
    """
    first = by_rank[0]
    offsets, errors = [0.0], [0.0]
    for own in by_rank[1:]:
        pairs = list(zip(own, first, strict=True))
        low = max(mine[0] - theirs[1] for mine, theirs in pairs)
        high = min(mine[1] - theirs[0] for mine, theirs in pairs)
        offset = (low + high) / 2
        if ends_together:
            offset = min(max(median(mine[1] - theirs[1] for mine, theirs in pairs), low), high)
        offsets.append(offset)
        errors.append(max(abs(high - offset), abs(offset - low)))
    return Alignment(offsets=tuple(offsets), errors=tuple(errors))


def on_one_clock(spans: Iterable[Span], alignment: Alignment) -> list[Span]:
    """The spans on the first rank's clock; their ranks index the alignment."""
    return [
        replace(
            span,
            begin_s=span.begin_s - alignment.offsets[span.rank],
            end_s=span.end_s - alignment.offsets[span.rank],
        )
        for span in spans
    ]


def chrome_trace(
    spans: Sequence[Span], *, hosts: Sequence[str], about: Mapping[str, object] | None = None
) -> str:
    """The whole file as JSON: aligned spans, the host by rank, and words to keep beside them.

    The first span begins at 0. Events of a lane that overlap without one holding the other get rows
    of their own (`communication 2`), because a thread's events must nest.
    """
    zero = min((span.begin_s for span in spans), default=0.0)
    events: list[dict[str, object]] = []
    for rank in sorted({span.rank for span in spans}):
        # Process 0 and thread 0 are the idle task to Perfetto, which shows neither.
        pid = rank + 1
        host = f" on {hosts[rank]}" if rank < len(hosts) else ""
        events += _named("process", pid, 0, f"rank {rank}{host}", rank)
        rows = _rows([span for span in spans if span.rank == rank])
        for tid, (name, row) in enumerate(rows, 1):
            events += _named("thread", pid, tid, name, tid)
            events += [_event(span, pid, tid, zero) for span in row]
    whole = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about or {})}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False)


def _rows(spans: list[Span]) -> list[tuple[str, list[Span]]]:
    """(name, spans in order) of each thread of one rank."""
    lanes = {span.lane for span in spans}
    ordered = [lane for lane in LANES if lane in lanes] + sorted(lanes.difference(LANES))
    threads = []
    for lane in ordered:
        rows = _nesting([span for span in spans if span.lane == lane])
        threads += [(lane if i == 0 else f"{lane} {i + 1}", row) for i, row in enumerate(rows)]
    return threads


def _nesting(spans: list[Span]) -> list[list[Span]]:
    """As few rows as come, one after the other, such that spans of a row nest or do not meet."""
    rows: list[tuple[list[Span], list[float]]] = []  # spans, and ends of those still open
    for span in sorted(spans, key=lambda one: (one.begin_s, -one.end_s)):
        fitting = next((row for row in rows if _nests(span, row[1])), None)
        if fitting is None:
            fitting = ([], [])
            rows.append(fitting)
        fitting[0].append(span)
        fitting[1].append(span.end_s)
    return [row for row, _ in rows]


def _nests(span: Span, open_ends: list[float]) -> bool:
    """Whether it lies within the innermost span that is still open; closes those that are not."""
    while open_ends and open_ends[-1] <= span.begin_s:
        open_ends.pop()
    return not open_ends or span.end_s <= open_ends[-1]


def _event(span: Span, pid: int, tid: int, zero: float) -> dict[str, object]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.lane,
        "pid": pid,
        "tid": tid,
        "ts": round((span.begin_s - zero) * 1e6, 3),
        "dur": round(span.seconds * 1e6, 3),
    }


def _named(what: str, pid: int, tid: int, name: str, index: int) -> Iterator[dict[str, object]]:
    """Its name, and where it stands among the others."""
    told = {"name": {"name": name}, "sort_index": {"sort_index": index}}
    for key, args in told.items():
        yield {"ph": "M", "name": f"{what}_{key}", "pid": pid, "tid": tid, "args": args}
