"""Several values of --ranks, --backend or --batch: the worlds of a grid, and why some cannot run."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from wirespeed.cli.options import RunOptions
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.bench_records import GridPoint

if TYPE_CHECKING:
    from wirespeed.plan import Plan
    from wirespeed.session.grids import GridWorld


PlanFor = Callable[[GridPoint], "Plan"]


def grid_of(
    options: RunOptions, plan_for: PlanFor, batches: Sequence[int] = ()
) -> "list[GridWorld]":
    """Every combination in the order asked for; empty where nothing has several values.

    plan_for: may raise UsageError for a point that makes no sense, whose rows then say why.
    UsageError where none does.
    """
    if not options.grid and len(batches) < 2:
        return []
    refuse_grid_elsewhere(options)
    points = [
        GridPoint(ranks=ranks, backend=backend, batch=batch)
        for backend, ranks, batch in product(
            options.grid.get("backend", (options.backend,)),
            options.grid.get("ranks") or (_ranks(options),),
            batches or (0,),
        )
    ]
    worlds = [_world(point, plan_for) for point in points]
    errors = [error for _, error in worlds if error is not None]
    if len(errors) == len(worlds):
        raise errors[0]
    return [world for world, _ in worlds]


def refuse_grid_elsewhere(options: RunOptions) -> None:
    """UsageError where somebody else has decided how many ranks there are."""
    from wirespeed.node.identity import detect

    if options.where is None and detect(os.environ) is None:
        return
    raise UsageError(
        "a grid starts worlds of several sizes, on this machine only",
        expected="one value of --ranks, --backend and --batch with --on and under a launcher; `train "
        "--scaling 1,2,4` uses parts of one world",
        next="the same command once for each value; `wirespeed compare` sets the runs side by side",
    )


def _ranks(options: RunOptions) -> int:
    from wirespeed.node.limits import choose_ranks

    return int(choose_ranks(options.ranks, options.backend).value)


def _world(point: GridPoint, plan_for: PlanFor) -> "tuple[GridWorld, UsageError | None]":
    from wirespeed.session.grids import GridWorld
    from wirespeed.session.local import local_backend

    try:
        _refuse_impossible(point)
        plan = plan_for(point)
    except UsageError as error:
        return GridWorld(point=replace(point, reason=error.saw)), error
    except CannotMeasure as error:
        return GridWorld(point=replace(point, reason=error.saw)), None
    backend = local_backend(point.ranks, point.backend)
    return GridWorld(point=point, plan=plan, backend=backend), None


def _refuse_impossible(point: GridPoint) -> None:
    from wirespeed.node.limits import choose_ranks, count_gpus

    choose_ranks(point.ranks, point.backend)
    if point.backend == "nccl" and (gpus := count_gpus()) < point.ranks:
        here = f"{gpus or 'no'} GPU{'s' if gpus > 1 else ''} here"
        raise CannotMeasure(f"nccl needs a GPU a rank: {here}", expected="--backend gloo")
