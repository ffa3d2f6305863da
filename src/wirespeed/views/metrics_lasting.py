"""The metrics of work that lasts: goodput of `train --for`, and `check -l soak`."""

from collections import Counter
from collections.abc import Callable, Iterator

from wirespeed.records import Run
from wirespeed.records_lasting import Goodput, Soak
from wirespeed.views.metric_family import Family, Sample
from wirespeed.views.soak import calls_of

__all__ = ["LASTING_METRICS"]

_TRAINED = ("model", "strategy", "ranks")
_SOAKED = ("ranks",)
_CALLED = ("op", "dtype", "size_bytes", "ranks")
_NOT_KEPT = "not kept"
"""Stands for the id of incidents that were counted only, since there were too many."""


def _goodput(value: Callable[[Goodput], float | None]) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        figure = value(run.goodput) if run.goodput else None
        if run.goodput and figure is not None:
            yield _trained(run.goodput), figure

    return samples


def _trained(g: Goodput) -> dict[str, object]:
    return dict(zip(_TRAINED, (g.model, g.strategy, g.ranks), strict=True))


def _parts(run: Run) -> Iterator[Sample]:
    if run.goodput:
        for cause, seconds in run.goodput.parts_s.items():
            yield {**_trained(run.goodput), "cause": cause}, seconds


def _soak(value: Callable[[Soak], float]) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        if run.soak:
            yield {"ranks": run.world.size}, value(run.soak)

    return samples


def _incidents(run: Run) -> Iterator[Sample]:
    """None at all is a sample too: of the ids that any soak may have."""
    if run.soak is None:
        return
    counted = Counter({"SOAK-001": 0, "SOAK-002": 0})
    counted.update(one.id for one in run.soak.incidents)
    if more := run.soak.uncounted.get("incidents", 0):
        counted[_NOT_KEPT] += more
    for id, number in sorted(counted.items()):
        yield {"ranks": run.world.size, "id": id}, number


def _calls(name: str) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        for one in calls_of(run.soak) if run.soak else ():
            how = (one.op, one.dtype, one.size_bytes, run.world.size)
            yield dict(zip(_CALLED, how, strict=True)), getattr(one, name)

    return samples


LASTING_METRICS: tuple[Family, ...] = (
    Family(
        "wirespeed_goodput_ratio",
        "Useful time over wall time of training that lasted (wirespeed train --for).",
        _TRAINED,
        _goodput(lambda one: one.ratio),
    ),
    Family(
        "wirespeed_goodput_seconds",
        "Where the wall time went, by cause: useful, and what was lost to each other one; they add up.",
        (*_TRAINED, "cause"),
        _parts,
    ),
    Family(
        "wirespeed_goodput_wall_seconds",
        "From the start of the first world of ranks to the end of the last.",
        _TRAINED,
        _goodput(lambda one: one.wall_s),
    ),
    Family(
        "wirespeed_goodput_restarts",
        "Worlds of ranks that were started after one that failed.",
        _TRAINED,
        _goodput(lambda one: one.restarts),
    ),
    Family(
        "wirespeed_goodput_failed_worlds",
        "Worlds of ranks that failed.",
        _TRAINED,
        _goodput(lambda one: one.failures),
    ),
    Family(
        "wirespeed_goodput_steps",
        "Steps of the run whose results are in the final state.",
        _TRAINED,
        _goodput(lambda one: one.steps),
    ),
    Family(
        "wirespeed_goodput_lost_steps",
        "Steps that had to be made again, or are not in the final state.",
        _TRAINED,
        _goodput(lambda one: one.lost_steps),
    ),
    Family(
        "wirespeed_goodput_step_seconds",
        "Mean step, without anything between steps.",
        _TRAINED,
        _goodput(lambda one: one.step_s if one.step_samples else None),
    ),
    Family(
        "wirespeed_goodput_checkpoints",
        "Checkpoints that were written whole.",
        _TRAINED,
        _goodput(lambda one: one.checkpoints),
    ),
    Family(
        "wirespeed_goodput_checkpoint_seconds",
        "Mean time that a checkpoint kept training waiting.",
        _TRAINED,
        _goodput(lambda one: one.checkpoint_s if one.checkpoints else None),
    ),
    Family(
        "wirespeed_soak_seconds",
        "How long was soaked (wirespeed check -l soak).",
        _SOAKED,
        _soak(lambda one: one.elapsed_s),
    ),
    Family(
        "wirespeed_soak_calls",
        "Calls whose results were compared, element by element.",
        _SOAKED,
        _soak(lambda one: one.calls),
    ),
    Family(
        "wirespeed_soak_compared_bytes",
        "Results that were compared, over all ranks.",
        _SOAKED,
        _soak(lambda one: one.checked_bytes),
    ),
    Family(
        "wirespeed_soak_wrong_calls",
        "Calls with a wrong element on some rank.",
        _SOAKED,
        _soak(lambda one: one.wrong_calls),
    ),
    Family(
        "wirespeed_soak_stalled_calls",
        "Calls that took many times as long as that operation takes.",
        _SOAKED,
        _soak(lambda one: one.stall_calls),
    ),
    Family(
        "wirespeed_soak_incidents",
        "Incidents by the finding that tells of them (wirespeed check --explain ID).",
        (*_SOAKED, "id"),
        _incidents,
    ),
    Family(
        "wirespeed_soak_worlds",
        "Worlds of ranks that soaked, one after the other.",
        _SOAKED,
        _soak(lambda one: one.worlds),
    ),
    Family(
        "wirespeed_soak_failed_worlds",
        "Worlds of ranks that failed.",
        _SOAKED,
        _soak(lambda one: len(one.failures)),
    ),
    Family(
        "wirespeed_soak_call_seconds",
        "Middle window's median time of a call on its slowest rank.",
        _CALLED,
        _calls("median"),
    ),
    Family(
        "wirespeed_soak_call_p99_seconds",
        "Highest 99th percentile of any window.",
        _CALLED,
        _calls("p99"),
    ),
    Family(
        "wirespeed_soak_call_slowest_seconds",
        "Slowest call of all.",
        _CALLED,
        _calls("max"),
    ),
)
