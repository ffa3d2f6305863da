"""The steps of a watched rank, made of what its training thread has noted, by the thread that tells.

A step ends with the first optimizer's `step` after a backward; in a program without optimizers, with
a backward. The time that a rank waits in communication is known without comparing clocks: within
`Work.wait`, and from the end of autograd's own work to the return of `backward`, where DDP and FSDP
wait for their last buckets.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, NamedTuple

from _wirespeed_gpu import BEGIN, EDGE, END, GpuStep, StepMarks

STEP, BLOCKED, DATA, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, GC, CPU, WAITED, LOAD = range(11)
"""Columns of a row, as `wirespeed.watch.steps.COLUMNS` has them."""
PHASES = {
    "wait": BLOCKED,
    "sync": BLOCKED,
    "data": DATA,
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
    "checkpoint": CHECKPOINT,
}
"""With the column that their seconds go into."""
_MARKS = (BEGIN, END, EDGE)
_OVER = {f"-{phase}": phase for phase in PHASES}
_APART = (BLOCKED, DATA, CHECKPOINT)
_NESTED = {("wait", "sync"), *((phase, phase) for phase in PHASES)}
"""(inner, outer): what counts in the outer one alone."""
_BEFORE_FORWARD = ("data", "backward", "optimizer")
"""What follows these, up to the next backward, is a forward."""
_ALONE = 20
"""Backwards without any optimizer's step after which a step is taken to be a backward."""
_STALE = 10
"""Steps of other optimizers after which the one that ended steps is forgotten."""
_MOST_ROWS = 20_000
_MOST_SPANS = 400
_MOST_NESTED = 64
_FIRST_SAMPLED = 8
_LACKS, _SMOOTH = 0.02, 0.1
"""Share of a step without a core from which on waits are looked at, too; smoothed over ten steps."""
_UNKNOWN = -1.0

Event = tuple[Any, ...]
"""(what, when, …), times by `time.perf_counter`:

- a phase, or `-` and the phase where it ends; seconds that the thread had no core by then, negative:
  not looked at. Then for a `-data` the elements of its batch, or None; for an `-optimizer` its identity,
  and for what may end a step the CPU time of the thread by then, negative: not read;
- `step`, which ends one by the program's own word: seconds as above, 0, CPU time;
- `gc`, seconds; `bad`: the loss of the backward that follows is no number;
- marks of the GPU (`_wirespeed_gpu`), with CUDA's event.
"""


class Stretch(NamedTuple):
    """Something that the training thread is in."""

    phase: str
    """`wait`, `sync` (the end of a backward), `data`, `backward`, `optimizer`, `checkpoint`; empty:
    the program's own code."""
    begin: float
    apart: float
    """Seconds by then of what is counted apart: waiting, loading, writing checkpoints."""
    counts: bool = True
    """False within one that counts all of it."""


class Steps:
    """Of one process of the job."""

    def __init__(self, begin: float) -> None:
        self.boundary = "optimizer"
        self.number = 0
        """Steps that have ended."""
        self.moves = 0
        """Counts what the training thread does: who stands still does nothing."""
        self.told: list[tuple[int, float, list[float], GpuStep | None]] = []
        """(step, its begin, row, marks of the GPU) of steps that ended and were not taken yet."""
        self.anchor = 0
        """Identity of the optimizer that ends steps."""
        self.look_every_s = math.inf
        """Seconds between looks at the kernel's account within waits: two a step; none where there are
        cores enough."""
        self.bad_loss = -1
        """Step of the first loss that is no number."""
        self.sample_every = 1 << 30
        """Steps with a number that it divides are sampled, the same on all ranks: a power of two;
        and 8, 128 and so on, so that short jobs have some, too."""
        self.sampled: Any = None
        """(step, its begin, its (phase, begin, end), marks of the GPU) of the last that was sampled."""
        self._marks = StepMarks()
        self._spans: list[tuple[str, float, float]] | None = None
        self._within = [Stretch("", begin, 0.0)]
        self._others = self._backwards = self._since_boundary = 0
        self._bad = False
        self._apart = 0.0
        self._cpu = self._lacked = _UNKNOWN
        self._looked_at = self._waiting = self._lacks = self._typical_s = 0.0
        self._fresh(begin)

    @property
    def at(self) -> Stretch:
        """What the training thread is in."""
        return self._within[-1]

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.moves += 1
            kind, when = event[:2]
            if kind in _OVER:
                self._leave(_OVER[kind], event)
            elif kind in PHASES:
                self._enter(kind, when, event[2])
            elif kind == "gc":
                self._row[GC] += event[2]
            elif kind in _MARKS:
                self._marks.take(kind, when, event[2])
            elif kind == "bad":
                self._bad = True
            elif kind == "step":
                self.boundary = "step()"
                if event[2] >= 0:
                    self._look(when, event[2])
                self._end(event)

    def _enter(self, phase: str, when: float, lacked: float) -> None:
        if lacked >= 0:
            self._look(when, lacked)
        if phase == "backward":
            self._count(self._mark, when)
        if len(self._within) > _MOST_NESTED:
            del self._within[1:]  # of what lasts so long no end is to come
        counts = (phase, self._within[-1][0]) not in _NESTED
        self._within.append(_new(Stretch, (phase, when, self._apart, counts)))

    def _leave(self, phase: str, event: Event) -> None:
        when, within = event[1], self._within
        if within[-1][0] != phase and all(one[0] != phase for one in within):
            return  # its begin was lost
        one = within.pop()
        self._count(one, when)
        while one[0] != phase:
            one = within.pop()
            self._count(one, when)
        if event[2] >= 0:
            self._look(when, event[2])
        if phase == "backward":
            self._backward_over(event)
        elif phase == "optimizer":
            self._optimizer_over(event)
        elif phase == "data" and event[3] is not None:
            self._row[LOAD] = max(self._row[LOAD], 0.0) + event[3]
        if phase in _BEFORE_FORWARD:
            self._mark = _new(Stretch, ("forward", when, self._apart, True))

    def _count(self, one: Stretch, end: float) -> None:
        """Its seconds go into its column, without those within it that are counted apart."""
        phase, begin, apart, counts = one
        if not counts:
            return
        column = PHASES[phase]
        seconds = end - begin - (self._apart - apart)
        if seconds > 0:
            self._row[column] += seconds
            if column in _APART:
                self._apart += seconds
            if column == BLOCKED:
                self._waiting += seconds
        if self._spans is not None and len(self._spans) < _MOST_SPANS:
            self._spans.append((phase, begin, end))

    def _look(self, when: float, lacked: float) -> None:
        """Without a core by then; as far as it waited since the last look, it waited for nobody else."""
        if self._lacked >= 0:
            grown = max(lacked - self._lacked, 0.0)
            waiting = min(self._waiting, self._row[BLOCKED])
            not_waiting = min(grown * waiting / max(when - self._looked_at, 1e-9), waiting)
            self._row[WAITED] = max(self._row[WAITED], 0.0) + grown
            self._row[BLOCKED] -= not_waiting
            self._apart -= not_waiting
        self._lacked, self._looked_at, self._waiting = lacked, when, 0.0

    def _backward_over(self, event: Event) -> None:
        self._backwards += 1
        self._since_boundary += 1
        if self._bad and self.bad_loss < 0:
            self.bad_loss = self.number
        self._bad = False
        if self.boundary == "backward":
            self._end(event)
        elif self.boundary == "optimizer" and not self.anchor and self._backwards > _ALONE:
            self.boundary, self.number = "backward", self._backwards
            self._cpu = _UNKNOWN
            self._fresh(event[1])

    def _optimizer_over(self, event: Event) -> None:
        if self.boundary == "step()":
            return
        if not self.anchor or self._others > _STALE:
            self.anchor, self._others = event[3], 0
            self.boundary = "optimizer"
        if event[3] != self.anchor:
            self._others += 1
        elif self._since_boundary or not self._backwards:
            self._others = 0
            self._end(event)

    def _end(self, event: Event) -> None:
        """The row of the step that ends here is kept; the next one begins."""
        _, end, _, _, cpu = event
        row = self._row
        row[STEP] = end - self._begin
        row[CPU], self._cpu = _grown(self._cpu, cpu), cpu
        self._lacks += _SMOOTH * (max(row[WAITED], 0.0) / max(row[STEP], 1e-9) - self._lacks)
        self._typical_s += _SMOOTH * (row[STEP] - self._typical_s)
        self.look_every_s = self._typical_s / 2 if self._lacks > _LACKS else math.inf
        gpu = self._marks.ended()
        if len(self.told) < _MOST_ROWS:
            self.told.append((self.number, self._begin, row, gpu))
        if self._spans is not None:
            self.sampled, self._spans = (self.number, self._begin, self._spans, gpu), None
        self.number += 1
        power = self.number.bit_length() if not self.number & (self.number - 1) else 0
        alone = self.number >= _FIRST_SAMPLED and power % 4 == 0 < power
        if alone or self.number % self.sample_every == 0:
            self._spans = []
        self._fresh(end)

    def _fresh(self, begin: float) -> None:
        self._row = [0.0] * LOAD + [_UNKNOWN]
        self._row[WAITED] = 0.0 if self._lacked >= 0 else _UNKNOWN
        self._begin, self._since_boundary = begin, 0
        self._mark = Stretch("forward", begin, self._apart)


_new: Any = tuple.__new__
"""A fifth of the time that the class's own takes."""


def _grown(before: float, after: float) -> float:
    return after - before if before >= 0 and after >= 0 else _UNKNOWN
