"""Traces of a job as the table of its steps, its traffic and who came late: one file after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wirespeed.diagnose.findings import ranks_told
from wirespeed.diagnose.flight_read import Dump
from wirespeed.errors import InputError
from wirespeed.model.units import counted
from wirespeed.model.watch_records import Traffic
from wirespeed.watch.step_grid import StepGrid
from wirespeed.watch.steps import StepTable
from wirespeed.watch.traces.arrival import Arrivals
from wirespeed.watch.traces.boundaries import repeats_in
from wirespeed.watch.traces.files import find_traces
from wirespeed.watch.traces.rank_trace import RankTrace
from wirespeed.watch.traces.reading import Progress, Traces
from wirespeed.watch.traces.step_rows import StepRows, step_rows
from wirespeed.watch.traces.traffic import TrafficSums
from wirespeed.watch.traces.waiting import Waiting


@dataclass(slots=True, kw_only=True)
class Analysed:
    """What came of the traces."""

    table: StepTable
    world_size: int
    traffic: tuple[Traffic, ...]
    arrivals: Arrivals
    dumps: list[Dump]
    damaged: list[InputError]
    """Of files that cannot be read, where others can."""
    unseen: list[str]
    """What could not be seen, and why."""
    files: int
    bytes: int


def analysed(paths: Sequence[str], progress: Progress = lambda name, number, all: None) -> Analysed:
    """Raises InputError where there is no trace, or no one of them can be read."""
    files, _ = find_traces(paths)
    traces = Traces(files, progress)
    builder = _Builder(len(files))
    for trace in traces:
        builder.add(trace)
    if not builder.read:
        raise traces.unread[0]
    if traces.by_order:
        several = counted(len(traces.by_order), "file")
        builder.unseen.append(
            f"the rank of {several}, such as {traces.by_order[0]}: neither content nor name tells "
            "it, so files are numbered in their order"
        )
    return builder.finished(traces)


@dataclass(slots=True)
class _Builder:
    files: int
    read: int = 0
    bytes: int = 0
    grid: StepGrid = field(default_factory=lambda: StepGrid(1))
    hosts: dict[int, str] = field(default_factory=dict)
    world_size: int = 0
    boundaries: set[str] = field(default_factory=set)
    described: dict[str, str] = field(default_factory=dict)
    arrivals: Arrivals = field(default_factory=Arrivals)
    traffic: dict[str, TrafficSums] = field(default_factory=dict)
    """By kind of trace: several of one rank tell the same calls."""
    told: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """By rank: from when to when its traces reach."""
    unseen: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    without: dict[str, dict[int, None]] = field(default_factory=dict)
    """Ranks by what their traces lack."""

    def add(self, trace: RankTrace) -> None:
        waiting = Waiting(trace)
        rows = step_rows(trace, waiting)
        self.read += 1
        self.bytes += trace.bytes
        members = max((ranks[-1] for ranks in trace.groups.values() if ranks), default=-1)
        self.world_size = max(self.world_size, trace.world_size, trace.rank + 1, members + 1)
        self.hosts[trace.rank] = self.hosts.get(trace.rank) or trace.host
        self.described |= trace.described
        self._place(trace, rows)
        step_of = _step_of(trace, rows)
        traffic = self.traffic.setdefault(trace.kind, TrafficSums())
        traffic.add(trace.rank, trace.calls, step_of, waiting)
        if trace.kind == "kineto":
            self.arrivals.add(trace.rank, trace.zero_s, trace.calls, step_of)
        self._note(trace, rows, waiting)

    def _place(self, trace: RankTrace, rows: StepRows) -> None:
        if trace.rank >= self.grid.ranks:
            known = min(self.world_size, self.files)
            self.grid = self.grid.widened(max(trace.rank + 1, known, 2 * self.grid.ranks))
        if rows.boundary:
            self.boundaries.add(rows.boundary)
        for run in rows.runs():
            begin_s = float(rows.begins[run.start]) + trace.zero_s
            first = int(rows.numbers[run.start])
            self._span(trace, begin_s, float(rows.ends[run][-1]) + trace.zero_s)
            if not self.grid.put(trace.rank, first, 1, rows.values[run], begin_s):
                self._lacks("steps of the same numbers as the others", trace.rank)

    def _span(self, trace: RankTrace, begin_s: float, end_s: float) -> None:
        spans = self.told.setdefault(trace.rank, [])
        if any(begin_s < end and begin < end_s for begin, end in spans):
            self._lacks("which job it is: there are several traces of the same time", trace.rank)
        spans.append((begin_s, end_s))

    def _note(self, trace: RankTrace, rows: StepRows, waiting: Waiting) -> None:
        if trace.cut:
            self.cut.append(f"{trace.source}: {trace.cut}")
        if trace.skipped:
            self.unseen.append(f"{trace.source}: {trace.skipped} events that are no JSON")
        if trace.more_calls:
            self.unseen.append(f"{trace.source}: {trace.more_calls} collectives beyond the first")
        if trace.kind == "chakra":
            self._lacks("times, which execution traces do not hold", trace.rank)
        elif not rows.boundary and trace.kind == "kineto":
            self._lacks("steps: no ProfilerStep, optimizer or backward is in it", trace.rank)
        elif not waiting.known and trace.kind == "kineto":
            self._lacks("what it waits in communication", trace.rank)

    def _lacks(self, what: str, rank: int) -> None:
        self.without.setdefault(what, {})[rank] = None

    def finished(self, traces: Traces) -> Analysed:
        size = max(self.hosts, default=-1) + 1
        first, each, begin_s, columns = self.grid.snapshot()
        order = ("annotation", "optimizer", "backward", "collectives")
        table = StepTable(
            hosts=[self.hosts.get(rank, "") for rank in range(size)],
            first=first,
            each=each,
            columns={name: column[:size] for name, column in columns.items()},
            begin_s=begin_s,
            boundary=next((one for one in order if one in self.boundaries), ""),
            waits_known=not np.isnan(columns["blocked"][:size]).all(),
        )
        kinds = ("kineto", "recorder", "chakra")
        traffic = next((self.traffic[kind] for kind in kinds if kind in self.traffic), None)
        lacking = [f"{what} of {ranks_told(list(ranks))}" for what, ranks in self.without.items()]
        return Analysed(
            table=table,
            world_size=self.world_size,
            traffic=traffic.rows(self.described) if traffic else (),
            arrivals=self.arrivals,
            dumps=traces.dumps,
            damaged=traces.unread,
            unseen=[*self.cut, *(f"{one.saw}" for one in traces.unread), *self.unseen, *lacking],
            files=self.read,
            bytes=self.bytes,
        )


def _step_of(trace: RankTrace, rows: StepRows) -> NDArray[np.int64]:
    """By call the number of the step in which it began; -1: none."""
    begins = np.array([one.begin_s for one in trace.calls])
    if not len(rows.numbers):
        starts = repeats_in(trace.calls)  # without times, too
        at = np.searchsorted(starts, np.arange(len(begins)), "right") - 1
        return np.where(at < len(starts) - 1, at, -1)
    at = np.searchsorted(rows.begins, begins, "right") - 1
    inside = (at >= 0) & (begins < rows.ends[at])
    return np.where(inside, rows.numbers[at], -1)
