"""A closer look at a few steps: communication time with its spread, and the timeline of one step.

All cases take turns, as in the rounds that are timed: in each turn a case has one step to warm up and
a few under the profiler. Steps of one turn share the machine's mood, so the interval is made of the
means of turns. Before every turn of a case all ranks agree on whether the time for this is over: it is
exceeded by one such turn at most, and a case that had none is not told about. While a figure is of no
use yet (fewer than ten steps, and its interval wide) there is three times as much time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from wirespeed.model.training_records import PROFILED_STEPS, Spread
from wirespeed.plan import TrainCase
from wirespeed.rank.place import Place
from wirespeed.rank.steps import Tell
from wirespeed.rank.training.failures import CaseFull
from wirespeed.rank.training.rounds import is_narrow, spread_of
from wirespeed.rank.training.stage import Act, Stage
from wirespeed.training.trace import Span

if TYPE_CHECKING:
    from wirespeed.training.comm_time import ObservedStep


LEAST, FEWEST, MOST = 2, 6, 12
"""Turns: of what an interval is made of, where every interval is narrow enough, in any case."""
GOAL = 0.1
"""Half width of the 95 % interval of the mean, relative to it: more exact than this nobody reads it."""
SHARE, LONGEST = 0.5, 1.5
"""Of the time that rounds may take, for all cases together; and while some figure is of no use."""
USABLE_STEPS, USABLE = 10, 0.25
"""A figure is of use from so many steps on, or where its interval is within so much of it."""


@dataclass(slots=True)
class Probed:
    """One case's profiled steps, the same on every rank."""

    case: TrainCase
    turns: list[torch.Tensor] = field(default_factory=list)
    """By turn: seconds, shape (ranks of the case, steps, (communication, whole step))."""
    full: CaseFull | None = None
    """Memory ran out in it: it has no further turns."""
    spans: tuple[Span, ...] = ()
    """This rank's last step, an outer span with the case's name around it."""

    def communication(self) -> list[list[float]]:
        """By turn: seconds of each step with a collective under way, on the rank with the most."""
        return [turn[self._most(), :, 0].tolist() for turn in self.turns]

    def spread(self) -> Spread:
        """Of these, in seconds; no time is below 0, whatever the interval would be."""
        spread = spread_of(self.communication())
        return replace(spread, low=max(0.0, spread.low))

    def fraction(self) -> Spread:
        """Communication over the whole of each of these steps under the profiler, on the same rank."""
        most = self._most()
        spread = spread_of([(turn[most, :, 0] / turn[most, :, 1]).tolist() for turn in self.turns])
        return replace(spread, low=max(0.0, spread.low), high=min(1.0, spread.high))

    def narrow(self, goal: float = GOAL) -> bool:
        """Whether the interval is; nothing to send is exact."""
        return is_narrow([fmean(turn) for turn in self.communication()], goal)

    @property
    def usable(self) -> bool:
        """Whether its communication time says something."""
        return len(self.turns) * PROFILED_STEPS >= USABLE_STEPS or (
            bool(self.turns) and self.narrow(USABLE)
        )

    def _most(self) -> int:
        """The rank with the most communication, over all turns."""
        return int(torch.cat(self.turns, 1)[:, :, 0].sum(1).argmax())


def probe(
    stage: Stage, cases: Sequence[TrainCase], enter: Callable[[TrainCase], None]
) -> list[Probed]:
    """More steps of every case, under the profiler; collective over the whole world.

    enter: tells what begins. Where the time is over a case may have no turns.
    """
    every = [Probed(case) for case in cases]
    most, limit = most_turns(stage.plan.rounds), stage.plan.max_time_s
    begin, number = time.monotonic(), 0

    def spent() -> float:
        """The same on every rank."""
        return float(stage.place.control.matrix([time.monotonic() - begin]).max())

    def budget() -> float:
        usable = all(one.usable for one in every if one.full is None)
        return (SHARE if usable or most < USABLE_STEPS / PROFILED_STEPS else LONGEST) * limit

    while fitting := [one for one in every if one.full is None]:
        # Backwards first: the yardstick, which sends nothing, is the one to do without.
        for one in fitting[::-1] if number % 2 == 0 else fitting:
            if spent() > budget() or stage.limit.is_over():
                return every
            enter(one.case)
            try:
                _turn(stage, one)
            except CaseFull as full:
                one.full = full
        number += 1
        if enough(number, spent(), budget(), _narrow(every), most=most):
            break
    return every


def most_turns(rounds: int | None) -> int:
    """rounds: that were asked for; the share of a step is then not looked at closer than the step."""
    return MOST if rounds is None else min(MOST, max(LEAST, rounds))


def turns_at_least(rounds: int | None) -> int:
    """That are made, where the time allows."""
    return min(FEWEST, most_turns(rounds))


def enough(turns: int, spent: float, budget: float, narrow: bool, *, most: int = MOST) -> bool:
    """After so many turns in `spent` seconds; all ranks give the same figures and stop alike."""
    if turns >= most or (turns >= FEWEST and narrow):
        return True
    return turns >= LEAST and spent * (turns + 1) / turns > budget


def _narrow(every: Sequence[Probed]) -> bool:
    return all(one.narrow() for one in every if one.full is None)


def _turn(stage: Stage, one: Probed) -> None:
    def work() -> tuple[list[float], tuple[Span, ...]]:
        with stage.act(one.case) as act:
            if act is not None:
                row, spans = _observed(stage, one.case, act)
            else:
                row, spans = [0.0] * (2 * PROFILED_STEPS), ()
                for _ in range(PROFILED_STEPS + 1):
                    stage.place.control.barrier()
                    stage.share(0.0)
        stage.share(0.0)  # what the profiler saw takes memory, too
        return row, spans

    row, one.spans = stage.attempt(one.case, work)
    rows = stage.place.control.matrix(row)[: one.case.ranks]
    one.turns.append(rows.reshape(one.case.ranks, PROFILED_STEPS, 2))


def _observed(stage: Stage, case: TrainCase, act: Act) -> tuple[list[float], tuple[Span, ...]]:
    """(communication, whole step) of this rank's steps in a row, and the spans of the last."""
    from wirespeed.training.comm_time import observe

    place = stage.place
    phases: list[tuple[Span, ...]] = []

    def step() -> None:
        place.tick()
        phases.append(act.run().phases)

    seen = observe(
        step,
        steps=PROFILED_STEPS,
        rank=place.rank,
        device=place.device,
        barrier=place.control.barrier,
    )
    ends = [parts[-1].end_s for parts in phases[-PROFILED_STEPS:]]
    seen = [_until(one, end) for one, end in zip(seen, ends, strict=True)]
    last = seen[-1]
    outer = Span(place.rank, "step", case.label, last.begin_s, last.end_s)
    spans = (outer, *phases[-1], *last.compute, *last.communication)
    row = [
        seconds for step in seen for seconds in (step.communication_s, step.end_s - step.begin_s)
    ]
    return row, tuple(replace(span, rank=place.rank) for span in spans)


def _until(step: "ObservedStep", end_s: float) -> "ObservedStep":
    """The step up to the end of its last part: what ranks tell each other after it is no part of it."""
    return replace(
        step,
        end_s=end_s,
        communication=tuple(span for span in step.communication if span.begin_s < end_s),
        compute=tuple(span for span in step.compute if span.begin_s < end_s),
    )


_PIECE = 200_000
"""Characters of one record."""
_GAP = 0.1
"""Of a step, between two strategies."""


def tell_trace(place: Place, steps: Sequence[Sequence[Span]], tell: Tell) -> None:
    """steps: this rank's spans of each strategy's step. Collective; rank 0 tells."""
    from wirespeed.training.trace import align, chrome_trace, on_one_clock, passages

    passed = passages(place.control.barrier)
    alignment = align(place.control.objects(passed, ((float, float),) * len(passed)))
    moved: list[Span] = []
    at = 0.0
    for mine in steps:
        told = place.control.objects(list(mine), [Span])
        # Whose they are is known by who sent them.
        spans = [replace(span, rank=rank) for rank, theirs in enumerate(told) for span in theirs]
        if not spans:
            continue
        spans = on_one_clock(spans, alignment)
        begin = min(span.begin_s for span in spans)
        shift, length = at - begin, max(span.end_s for span in spans) - begin
        moved += [
            replace(span, begin_s=span.begin_s + shift, end_s=span.end_s + shift) for span in spans
        ]
        at += length * (1 + _GAP)
    if place.rank:
        return
    text = chrome_trace(
        moved, hosts=place.hosts, about={"clock error, s": max(alignment.errors, default=0.0)}
    )
    for start in range(0, len(text), _PIECE):
        tell("trace", {"text": text[start : start + _PIECE]})
