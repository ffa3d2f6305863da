"""Does each strategy train as one process does? Before anything is timed, on this world.

With SGD, which shows the size of gradients (AdamW does not), on a few small batches. Models that
are too large to be trained twice on each rank are stood in for by the smallest transformer, which
takes the same course through the strategy.
"""

from typing import Any

from wirespeed.plan import TrainCase
from wirespeed.ranks.training.stage import Stage, precision
from wirespeed.training.contract import ModelSpec, Setup
from wirespeed.training.strategies.registry import STRATEGIES

__all__ = ["prove"]

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

    import torch

    setup = stage.setup(case, samples=1)
    if setup is None:
        return None
    sgd = {"lr": _LEARNING_RATE}
    return replace(setup, optimizer_class=torch.optim.SGD, optimizer_options=sgd)
