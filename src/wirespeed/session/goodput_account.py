"""Where the time of training went that lasted over many worlds of ranks, and what went wrong; pure.

Every moment is in seconds from the start of the first world, on the session's clock; lengths of steps,
of checkpoints and of a restore are rank 0's. A step is useful while the state that it led to is kept:
what comes after the last checkpoint is lost with its world.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, lgamma, log, sqrt
from typing import Literal

from wirespeed.model.lasting_records import Incident
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import format_duration
from wirespeed.session.findings import make_finding
from wirespeed.statistics import mean_interval
from wirespeed.watchdog import Outcome

PARTS = ("useful", "start", "restore", "checkpoint", "lost", "down", "other")
End = Literal["whole", "failed", "interrupted"]
"""How a world ended: in order and with its state, by a failure, or because somebody asked for it."""
_MOST_BATCHES = 512
_TAIL = 0.025


@dataclass(slots=True)
class _Stretch:
    """Steps between two checkpoints, or since the last one."""

    step: int
    """The last of them."""
    seconds: float
    count: int
    open: bool = True
    """No checkpoint has followed yet."""


class Account:
    """Takes what happened, in order; `parts` tells what became of the time."""

    def __init__(self) -> None:
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._kept: list[_Stretch] = []
        self._batches: list[tuple[float, int]] = []
        self._began: float | None = None
        self._ready = False
        self._last = 0.0
        self._down_since: float | None = None
        self._saved_at = 0.0
        self._longest_gap = 0.0
        self._restarts_s: list[float] = []
        self.first_step: int | None = None
        self.step = 0
        """The last one whose result is in the state as it is now."""
        self.saved = 0
        """The step of the newest checkpoint."""
        self.lost_steps = 0
        self.checkpoints = 0
        self.checkpoints_failed = 0
        self.checkpoint_s = 0.0
        """Of those that were written."""
        self.wall = 0.0

    def world_began(self, at: float) -> None:
        if self._down_since is not None:
            self._parts["down"] += at - self._down_since
        self._down_since, self._began, self._ready, self._last = None, at, False, at

    def ready(self, at: float, step: int, restore_s: float) -> None:
        """The trainer is there with the state of that step."""
        began = self._began if self._began is not None else at
        restore_s = min(restore_s, at - began)
        self._parts["restore"] += restore_s
        self._parts["start"] += at - began - restore_s
        self._restarts_s.append(at - began)
        if self.first_step is None:
            self.first_step = step
        self._go_back(step)
        self._ready, self._last, self._saved_at = True, at, at

    def stepped(self, at: float, step: int, seconds: float, count: int) -> None:
        """`count` steps up to that one took so long, without what lies between them."""
        if not self._kept or not self._kept[-1].open:
            self._kept.append(_Stretch(step, 0.0, 0))
        last = self._kept[-1]
        last.step, last.seconds, last.count = step, last.seconds + seconds, last.count + count
        self._parts["useful"] += seconds
        self._batches.append((seconds, count))
        if len(self._batches) > _MOST_BATCHES:
            self._batches = _halved(self._batches)
        self.step, self._last = step, at

    def saved_at(self, at: float, step: int, seconds: float, *, written: bool) -> None:
        """Training waited so long for a checkpoint."""
        self._parts["checkpoint"] += seconds
        self._last = at
        if not written:
            self.checkpoints_failed += 1
            return
        self.checkpoints, self.checkpoint_s = self.checkpoints + 1, self.checkpoint_s + seconds
        self.saved = step
        self._longest_gap = max(self._longest_gap, at - self._saved_at)
        self._saved_at = at
        if self._kept:
            self._kept[-1].open = False

    def world_ended(self, at: float, how: End) -> float:
        """Seconds of steps that are lost by it: all since the last checkpoint, unless it ended whole."""
        if self._began is None:
            return 0.0
        before = self._parts["lost"]
        if self._ready and how == "failed":
            self._down_since = self._last
        else:
            # Leaving is the other half of joining; a world that was never ready only started.
            self._parts["start"] += at - self._last
            self._down_since = at
        if how != "whole":
            self._go_back(self.saved)
        self._began, self.wall = None, at
        return self._parts["lost"] - before

    @property
    def last_at(self) -> float:
        """When something was last heard of the world that runs, or began."""
        return self._last

    def parts(self) -> dict[str, float]:
        """Seconds by cause; they add up to `wall`. To be asked between worlds, or after the last."""
        parts = dict(self._parts)
        if self._down_since is not None:
            parts["down"] += self.wall - self._down_since
        parts["other"] = self.wall - sum(parts.values())
        return parts

    def mean_step(self) -> tuple[float, float, float, int]:
        """Mean, ends of its 95 % interval, number of steps; the interval is that of batches of steps."""
        steps = sum(count for _, count in self._batches)
        if not steps:
            return 0.0, 0.0, 0.0, 0
        mean = sum(seconds for seconds, _ in self._batches) / steps
        interval = mean_interval([seconds / count for seconds, count in self._batches])
        known = interval.coverage > 0
        if not known:
            return mean, mean, mean, steps
        # Few batches on a busy machine reach below 0, where no time is.
        return mean, max(0.0, min(mean, interval.low)), max(mean, interval.high), steps

    def loss_at_most(self, interval_s: float | None) -> float:
        """The longest time between checkpoints, as asked for or as seen, and the longest restart."""
        gap = max(interval_s or 0.0, self._longest_gap)
        return gap + max(self._restarts_s, default=0.0)

    def _go_back(self, step: int) -> None:
        """The state is that of `step`: what came after it is lost."""
        while self._kept and self._kept[-1].step > step:
            gone = self._kept.pop()
            self._parts["useful"] -= gone.seconds
            self._parts["lost"] += gone.seconds
            self.lost_steps += gone.count
        self.step = self.saved = step


def _halved(batches: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Neighbours put together, so that days of steps need no more memory than minutes."""
    pairs = zip(batches[::2], batches[1::2], strict=False)
    merged = [(one[0] + two[0], one[1] + two[1]) for one, two in pairs]
    return merged + ([batches[-1]] if len(batches) % 2 else [])


def time_between_failures(wall_s: float, failures: int) -> tuple[float, float, float] | None:
    """Mean time between failures and its 95 % interval; None below two failures.

    For failures that come at random over a fixed time: the exact interval of a Poisson count (F.
    Garwood, Fiducial limits for the Poisson distribution, Biometrika 28, 1936), the same as that of
    chi-square with 2n+2 and 2n degrees of freedom.
    """
    if failures < 2 or wall_s <= 0:
        return None
    most = _mean_where(lambda mean: _at_most(failures, mean) > _TAIL, failures)
    fewest = _mean_where(lambda mean: 1 - _at_most(failures - 1, mean) < _TAIL, failures)
    return wall_s / failures, wall_s / most, wall_s / fewest


def best_interval(checkpoint_s: float, mtbf_s: float) -> float:
    """Seconds between checkpoints with the least loss: sqrt(2 C M).

    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (9), 1974;
    refined by J. T. Daly, Future Generation Computer Systems 22 (3), 2006.
    """
    return sqrt(2 * checkpoint_s * mtbf_s)


def _mean_where(below: Callable[[float], bool], failures: int) -> float:
    """The mean at which `below`, true for small means, becomes false; by bisection."""
    low, high = 0.0, 2.0 * failures + 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high


def _at_most(count: int, mean: float) -> float:
    """Probability of so many or fewer, of a Poisson count."""
    logs = (i * log(mean) - mean - lgamma(i + 1) for i in range(count + 1))
    return min(1.0, sum(map(exp, logs)))


SHOWN = 16
"""Findings of failures that are shown one by one."""


def failure_of(outcome: Outcome) -> Finding:
    """What ended a world before its time: the watchdog's first cause."""
    for finding in outcome.findings:
        if finding.status != "pass":
            return finding
    return make_finding("unknown_end", kind=outcome.kind.replace("_", " "))


@dataclass(slots=True)
class Failure:
    """A world that ended before its time."""

    finding: Finding
    at: str
    """ISO 8601 in UTC."""
    since_s: float
    """When something was last heard of it."""
    world: int
    steps_s: float
    """Of steps that were lost with it."""
    until_s: float
    """When the work went on, or the next failure came, or all ended."""
    resumed: int | None = None
    """The step that the next world went on from; None: none did."""

    def incident(self) -> Incident:
        finding = self.finding
        return Incident(
            at=self.at,
            since_s=self.since_s,
            id=finding.id,
            title=finding.title,
            subject_kind=finding.subject.kind,
            subject=finding.subject.name,
            saw=finding.saw,
            because=finding.because,
            lost_s=self.lost_s,
            world=self.world,
        )

    @property
    def lost_s(self) -> float:
        return self.steps_s + self.until_s - self.since_s


def failure_findings(failures: Sequence[Failure]) -> list[Finding]:
    """One that fails for each, up to `SHOWN`; the rest together."""
    found = [_failed(one) for one in failures[:SHOWN]]
    if rest := failures[SHOWN:]:
        lost = sum(one.lost_s for one in rest)
        title = f"{len(rest)} more failures, which cost {format_duration(lost)}"
        found.append(replace(found[-1], title=title, subject=Subject("job", "job"), costs=""))
    return found


def _failed(failure: Failure) -> Finding:
    cost = format_duration(failure.lost_s)
    if failure.resumed is None:
        costs = f"{cost}; no time was left to start again"
    elif failure.resumed:
        costs = f"{cost}, with steps made again; training went on from step {failure.resumed:,}"
    else:
        costs = f"{cost}, with steps made again; training began anew, as there was no checkpoint"
    when = f"{format_duration(failure.since_s)} after the start, at {failure.at}"
    finding = failure.finding
    return replace(finding, status="fail", costs=costs, evidence=(when, *finding.evidence))
