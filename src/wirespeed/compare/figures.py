"""What each run measured, by what was measured: the figures that are compared."""

import math
from collections.abc import Collection, Iterator
from statistics import NormalDist, fmean

from wirespeed.compare.estimate import Figure
from wirespeed.compare.student import quantile
from wirespeed.errors import UsageError
from wirespeed.records import Measurement, Run
from wirespeed.records_comparison import What
from wirespeed.records_training import Training
from wirespeed.statistics import LEAST_SAMPLES

__all__ = ["COLLECTIVE", "FIELDS", "TRAINING", "figures_of"]

COLLECTIVE = (
    "op",
    "engine",
    "dtype",
    "redop",
    "root",
    "in_place",
    "size_bytes",
    "ranks",
    "groups",
    "timing",
    "blocking",
    "in_flight",
    "setting",
)
TRAINING = (
    "strategy",
    "bucket_mb",
    "model",
    "ranks",
    "batch",
    "micro_batches",
    "precision",
    "study",
)
FIELDS = tuple(dict.fromkeys(COLLECTIVE + TRAINING))
"""What must be alike; `--across` takes one of them out."""


def figures_of(run: Run, across: Collection[str] = ()) -> dict[What, Figure]:
    """The run's figures; one that was measured twice is the mean of both.

    Raises UsageError when a field in `across` has several values within this one run.
    """
    found: dict[What, list[Figure]] = {}
    seen: dict[What, set[tuple[object, ...]]] = {}
    for what, left_out, figure in _all(run, across):
        found.setdefault(what, []).append(figure)
        seen.setdefault(what, set()).add(left_out)
        if len(seen[what]) > 1:
            raise UsageError(
                f"run {run.id} has several figures that differ in {' and '.join(across)} only",
                expected="one value in each run for what --across pairs",
                next=f"wirespeed runs show {run.id}",
            )
    return {
        what: figures[0] if len(figures) == 1 else _mean(figures) for what, figures in found.items()
    }


def _all(run: Run, across: Collection[str]) -> Iterator[tuple[What, tuple[object, ...], Figure]]:
    for m in run.measurements:
        if m.time.median > 0:
            fields = tuple((n, getattr(m, n)) for n in COLLECTIVE if n not in across)
            left_out = tuple(getattr(m, n) for n in COLLECTIVE if n in across)
            yield What("collective", fields), left_out, _of_measurement(m)
    for t in run.training:
        if t.step.mean > 0:
            fields = tuple((n, getattr(t, n)) for n in TRAINING if n not in across)
            left_out = tuple(getattr(t, n) for n in TRAINING if n in across)
            yield What("training", fields), left_out, _of_training(t)


def _of_measurement(m: Measurement) -> Figure:
    # Below 6 samples the interval is the whole range, which holds the median less often.
    confidence = 0.95 if m.iterations >= LEAST_SAMPLES else 1 - 2 * 0.5 ** max(m.iterations, 2)
    reach = NormalDist().inv_cdf((1 + confidence) / 2)
    return Figure(
        log=math.log(m.time.median),
        within=_error(m.time.low, m.time.high, reach),
        busbw=m.busbw,
        samples=m.iterations,
        wrong=bool(m.wrong),
    )


def _of_training(t: Training) -> Figure:
    reach = quantile(0.95, t.rounds - 1) if t.rounds > 1 else math.inf
    return Figure(
        log=math.log(t.step.mean),
        within=_error(t.step.low, t.step.high, reach),
        samples=t.step.samples,
        wrong=t.equal is False,
    )


def _error(low: float, high: float, reach: float) -> float | None:
    """Standard error of the logarithm; None where there is no interval, as in an import."""
    if not 0 < low < high < math.inf:
        return None
    return math.log(high / low) / 2 / reach


def _mean(figures: list[Figure]) -> Figure:
    errors = [f.within for f in figures if f.within is not None]
    return Figure(
        log=fmean(f.log for f in figures),
        within=math.hypot(*errors) / len(errors) if errors else None,
        busbw=fmean(f.busbw for f in figures),
        samples=sum(f.samples for f in figures),
        wrong=any(f.wrong for f in figures),
    )
