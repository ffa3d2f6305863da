"""Where the memory of a step goes, beside what the formulas say; and the largest batch that fits."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wirespeed.errors import CannotMeasure
from wirespeed.model.training_records import TrainingMemory
from wirespeed.model.units import format_size
from wirespeed.plan import TrainCase
from wirespeed.rank.training.failures import free_what_is_left
from wirespeed.rank.training.findings import trouble
from wirespeed.rank.training.stage import Stage, free_bytes, precision
from wirespeed.training.contract import Setup
from wirespeed.training.strategies.registry import build_of

Space = tuple[TrainingMemory | None, TrainingMemory | None]
"""(measured on the rank that needs most, predicted)."""
_SHARE = 0.7
"""Of the free memory (and address space) that a batch may need where no budget was given."""


def space(stage: Stage, case: TrainCase) -> Space:
    """Collective over the world."""
    from wirespeed.training.memory.measured import measure_memory

    setup = stage.setup(case)
    mine = None
    free_what_is_left()  # else the next strategy's resident size holds what this one left
    if setup is not None:
        mine = measure_memory(
            stage.model,
            build_of(case.strategy),
            setup,
            seed=stage.seed,
            precision=precision(stage.plan),
        )
    return _most(stage, mine), predicted(stage, case, setup)


def resident_of_all(stage: Stage) -> dict[str, Any] | None:
    """A `trouble` record where the resident size cannot be told of a single step; collective."""
    from wirespeed.training.memory.measured import reset_highest_resident

    on_cpu = stage.place.device.type == "cpu"
    if stage.place.control.all_true(not on_cpu or reset_highest_resident()):
        return None
    return trouble("resident_of_all")


def _most(stage: Stage, mine: TrainingMemory | None) -> TrainingMemory | None:
    """Of the rank with the highest peak; the same on every rank."""
    names = [field.name for field in fields(TrainingMemory)]
    row = [float(getattr(mine, name) or 0) if mine else -1.0 for name in names]
    rows = stage.place.control.matrix(row)
    best = rows[int(rows[:, names.index("peak")].argmax())].tolist()
    figures = {name: int(value) for name, value in zip(names, best, strict=True)}
    optional = [field.name for field in fields(TrainingMemory) if field.default is None]
    known = {name: value for name, value in figures.items() if value or name not in optional}
    return TrainingMemory(**known)


def predicted(stage: Stage, case: TrainCase, setup: Setup | None) -> TrainingMemory | None:
    """None for a strategy without a formula, and on ranks that the case leaves out."""
    from wirespeed.training.memory.predicted import PREDICTED

    if case.strategy not in PREDICTED or setup is None:
        return None
    try:
        return _foretold(stage, case, setup, setup.samples)
    except CannotMeasure:
        return None


def _foretold(stage: Stage, case: TrainCase, setup: Setup, samples: int) -> TrainingMemory:
    """By the formulas, with that many samples in a micro batch."""
    from wirespeed.training.memory.dry import footprint
    from wirespeed.training.memory.predicted import predict

    model = footprint(
        stage.model,
        samples,
        setup.optimizer_class,
        setup.optimizer_options,
        setup.device,
        precision=precision(stage.plan),
    )
    sharding = stage.place.local_ranks_here if case.strategy == "hsdp" else case.ranks
    return predict(
        case.strategy,
        model,
        ranks=min(sharding, case.ranks),
        bucket_mb=case.bucket_mb,
        host_counts=setup.device.type == "cpu",
    )


@dataclass(frozen=True, slots=True)
class Fitted:
    """The largest micro batch of a rank, in samples; 0: none."""

    samples: int
    too_many: int
    """The fewest that did not fit; 0: the search ended before."""
    limit_bytes: int
    ended: bool = False
    """The time was over before the search was: more than `samples` may fit."""


def fit(stage: Stage, case: TrainCase) -> Fitted:
    """Found by doubling and bisection over real steps; collective, the same on every rank.

    For as long as the rounds may take, and to the end of the step that is on its way then.
    """
    from wirespeed.training.memory.fitting import fit_batch

    def agreed(holds: bool) -> bool:
        return stage.agree(case, holds)

    setup, limit = stage.setup(case), limit_bytes(stage)
    within_s = max(0.0, min(stage.plan.max_time_s, stage.limit.left()))
    row = [0.0, 0.0, 0.0]
    if setup is not None:
        foreseen = predicted(stage, case, setup)  # whether there is a formula at all
        found = fit_batch(
            stage.model,
            build_of(case.strategy),
            setup,
            limit_bytes=limit,
            expect=(lambda samples: _foretold(stage, case, setup, samples).peak)
            if foreseen
            else None,
            all_hold=agreed if case.ranks == stage.place.world_size else None,
            within_s=within_s,
        )
        row = [float(found.samples), float(found.too_many or 0), float(found.ended)]
    samples, too_many, ended = stage.place.control.matrix(row)[0].tolist()
    return Fitted(int(samples), int(too_many), limit, bool(ended))


def too_large(case: TrainCase, found: Fitted) -> dict[str, Any]:
    """A `trouble` record: what would fit of a case that was left out."""
    asked, limit = case.samples // case.ranks, format_size(found.limit_bytes)
    if found.samples >= asked:
        return trouble("fits_by_itself", case=case, found=found, asked=asked, limit=limit)
    least = "at least " if found.ended else ""
    each, fix = (
        "not even one sample fits",
        "--dtype bf16, fewer --layers, or a strategy that shards more",
    )
    if found.samples:
        each = f"{least}{found.samples} samples of a rank fit"
        fix = f"--batch {found.samples * case.ranks}"
    return trouble("too_large", case=case, each=each, asked=asked, limit=limit, fix=fix)


def address_space_left() -> float:
    """Bytes that this process may still map (`ulimit -v`); infinite where nothing limits it."""
    try:
        import resource
    except ImportError:  # no POSIX
        return math.inf
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return math.inf
    try:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return float(most)
    return float(max(0, most - mapped))


def limit_bytes(stage: Stage) -> int:
    """What a rank may use: the budget that was given, else a share of what is free; collective."""
    place = stage.place
    if stage.plan.budget_bytes is not None:
        return stage.plan.budget_bytes
    free = free_bytes(place) / len(place.sharers(place.rank))
    if place.device.type == "cpu":
        free = _SHARE * min(free, address_space_left())
    return int(place.control.matrix([free]).min())
