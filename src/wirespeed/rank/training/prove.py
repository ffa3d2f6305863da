"""Does each strategy train as one process does? Before anything is timed, on this world.

With SGD, which shows the size of gradients (AdamW does not), on a few small batches. Models that
are too large to be trained twice on each rank are stood in for by the smallest transformer, which
takes the same course through the strategy.
"""

from typing import Any

import torch

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.units import format_size
from wirespeed.plan import TrainCase
from wirespeed.rank.training.failures import CaseFull, NoMemory, does_not_fit
from wirespeed.rank.training.findings import trouble
from wirespeed.rank.training.space import limit_bytes, predicted
from wirespeed.rank.training.stage import Stage, precision
from wirespeed.training.contract import ModelSpec, Setup
from wirespeed.training.strategies.registry import STRATEGIES

LARGEST = 40_000_000
"""Parameters; above, the stand-in is trained."""
STAND_IN = "tiny"
STEPS = 3
_LEARNING_RATE = 0.1
_EXACT = (1e-4, 1e-6)
"""(rtol, atol): float32 sums of another order, carried through a few steps of a transformer."""
_ROUNDED = (2e-2, 1e-3)
"""For sums of numbers that bfloat16 (8 bits of precision) or float16 (11) have rounded."""


def prove(stage: Stage, case: TrainCase) -> dict[str, Any] | None:
    """What a `proof` record tells of a strategy; None where there is nothing to prove. Collective."""
    if not STRATEGIES[case.strategy].synchronises or case.ranks < 2:
        return None
    model = _model(stage.model)
    setup = _setup(stage, case)
    if setup is None:
        return {}
    from wirespeed.training.equivalence import Proof, differences

    how = precision(stage.plan)
    rtol, atol = _ROUNDED if setup.variant == "bf16" or how != "float32" else _EXACT
    proof = Proof(steps=STEPS, seed=stage.seed, precision=how, rtol=rtol, atol=atol)
    found = differences(model, stage.builder(case), setup, proof)
    stand_in = "" if model is stage.model else f" (shown on the model {STAND_IN})"
    return {
        "label": case.strategy + stand_in,
        "strategy": case.strategy,
        "bucket_mb": case.bucket_mb,
        "equal": not found,
        "names": [one.name for one in found],
        "difference": found[0].largest if found else 0.0,
        "tolerance": f"rtol {rtol:g}, atol {atol:g}",
        "steps": STEPS,
    }


def _model(model: ModelSpec) -> ModelSpec:
    if model.parameters <= LARGEST:
        return model
    from wirespeed.training.models.catalogue import model_named

    return model_named(STAND_IN)


def _setup(stage: Stage, case: TrainCase) -> Setup | None:
    from dataclasses import replace

    setup = stage.setup(case, samples=1)
    if setup is None:
        return None
    sgd = {"lr": _LEARNING_RATE}
    return replace(setup, optimizer_class=torch.optim.SGD, optimizer_options=sgd)


_DONE = "done"


def rehearse(stage: Stage, case: TrainCase) -> dict[str, Any] | None:
    """A `trouble` record where the case does not fit in memory on some rank; collective.

    It is foretold first, where there is a formula: on CPUs the kernel ends a process, and not always
    the right one, rather than refuse it memory. Then one step is made.
    """
    setup, limit = stage.setup(case), limit_bytes(stage)
    foreseen = predicted(stage, case, setup)
    if not stage.place.control.all_true(foreseen is None or foreseen.peak <= limit):
        needs = f"a step needs {format_size(foreseen.peak)} by the formulas" if foreseen else ""
        return does_not_fit(case, saw=needs, limit=limit)
    try:
        end = stage.attempt(case, lambda: _first_step(stage, case))
    except CaseFull as full:
        return does_not_fit(case, saw=f"in its first step {full.saw}", limit=limit)
    ends = stage.place.control.objects(end, str)
    refused = [end for end in ends if end != _DONE]
    return trouble("cannot", case=case, because=refused[0]) if refused else None


def _first_step(stage: Stage, case: TrainCase) -> str:
    """How this rank's first step ended; a reason where the strategy cannot be used here."""
    from wirespeed.training.step import LossNotFinite

    try:
        with stage.act(case) as act:
            stage.share(0.0) if act is None else act.run()
    except (CannotMeasure, UsageError) as error:
        if isinstance(error, (LossNotFinite, NoMemory)):
            raise
        return error.saw
    return _DONE
