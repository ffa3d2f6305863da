"""Where the memory of a step goes, beside what the formulas say; and the largest batch that fits."""

from dataclasses import asdict, fields
from typing import Any

from wirespeed.plan import TrainCase
from wirespeed.ranks.training.stage import Stage
from wirespeed.records_training import TrainingMemory
from wirespeed.training.contract import Setup
from wirespeed.training.strategies.registry import build_of
from wirespeed.units import format_size
from wirespeed.world.facts import memory_available_bytes

__all__ = ["Space", "fit", "space"]

Space = tuple[TrainingMemory | None, TrainingMemory | None]
"""(measured on the rank that needs most, predicted)."""
_SHARE = 0.7
"""Of the free memory that a batch may need where no budget was given."""


def space(stage: Stage, case: TrainCase) -> Space:
    """Collective over the world."""
    from wirespeed.training.memory.measured import measure_memory

    setup = stage.setup(case)
    mine = None
    if setup is not None:
        mine = measure_memory(stage.model, build_of(case.strategy), setup, seed=stage.seed)
    return _most(stage, mine), _predicted(stage, case, setup)


def _most(stage: Stage, mine: TrainingMemory | None) -> TrainingMemory | None:
    """Of the rank with the highest peak; the same on every rank."""
    names = [field.name for field in fields(TrainingMemory)]
    row = [float(getattr(mine, name) or 0) if mine else -1.0 for name in names]
    rows = stage.place.control.matrix(row)
    best = rows[int(rows[:, names.index("peak")].argmax())].tolist()
    figures = {name: int(value) for name, value in zip(names, best, strict=True)}
    resident = figures.pop("resident")
    return TrainingMemory(**figures, resident=resident or None)


def _predicted(stage: Stage, case: TrainCase, setup: Setup | None) -> TrainingMemory | None:
    from wirespeed.errors import CannotMeasure
    from wirespeed.training.memory.dry import footprint
    from wirespeed.training.memory.predicted import PREDICTED, predict

    if case.strategy not in PREDICTED or setup is None:
        return None
    try:
        model = footprint(
            stage.model,
            setup.samples,
            setup.optimizer_class,
            setup.optimizer_options,
            setup.device,
        )
    except CannotMeasure:
        return None
    return predict(case.strategy, model, ranks=case.ranks, bucket_mb=case.bucket_mb)


def fit(stage: Stage, case: TrainCase) -> dict[str, Any]:
    """A `trouble` record that is none: the largest micro batch of a rank. Collective."""
    from wirespeed.training.memory.fitting import fit_batch

    setup = stage.setup(case)
    limit = stage.plan.budget_bytes or _limit(stage)
    found = (
        fit_batch(stage.model, build_of(case.strategy), setup, limit_bytes=limit) if setup else None
    )
    told = asdict(found) if found else {}
    told.pop("memory", None)
    best = told.get("samples", 0)
    above = told.get("too_many")
    beyond = f"; {above} do not" if above else "; more were not tried"
    return {
        "id": "TRAIN-005",
        "status": "pass" if best else "warn",
        "title": f"{case.label}: {best} samples of a rank fit in {format_size(limit)}{beyond}",
        "saw": f"refused by prediction {told.get('foretold')}, ran out at {told.get('ran_out')}",
        "fix": "" if best else "--dtype bf16, fewer --layers, or a strategy that shards more",
    }


def _limit(stage: Stage) -> int:
    """The same on every rank."""
    place = stage.place
    if place.device.type == "cuda":
        import torch

        free = float(torch.cuda.mem_get_info(place.device)[0])
    else:
        free = _SHARE * memory_available_bytes() / place.local_ranks_here
    return int(place.control.matrix([free]).min())
