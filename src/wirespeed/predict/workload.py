"""What a `train` run tells of a step: computation, gradients, and what the cost model missed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.errors import UsageError
from wirespeed.predict.points import cores_of
from wirespeed.predict.timeline import gradients_of
from wirespeed.records import Run
from wirespeed.records_prediction import Refusal, WorldSize
from wirespeed.records_training import Training
from wirespeed.training.models.sizes import (
    CONVNETS,
    MLPS,
    TRANSFORMERS,
    ConvnetSize,
    MlpSize,
    TransformerSize,
)

__all__ = ["Workload", "workload_of"]

_OPTIONS = ("context", "layers", "vocab", "tied")


@dataclass(frozen=True, slots=True)
class Workload:
    """One model's step as it was measured."""

    model: str
    backward_s: float
    rest_s: float
    """Forward, optimizer, data."""
    gradients: tuple[int, ...]
    """Bytes of each, in the order in which the model registers its parameters."""
    uncertainty: float
    """Standard error of the step without synchronisation, relative to it."""
    world: WorldSize
    measured: tuple[Training, ...]
    """The strategies that were measured beside it."""
    rounds: int
    run: str
    cores: int = 0
    """That the ranks of a node share (`points.cores_of`)."""

    @property
    def alone_s(self) -> float:
        return self.backward_s + self.rest_s

    def sharing(self, world: WorldSize) -> float:
        """How many times as long as here computing takes there: ranks beyond the cores take turns."""
        if not self.cores:
            return 1.0
        there, here = (max(1.0, w.ranks_per_node / self.cores) for w in (world, self.world))
        return there / here


def workload_of(runs: Sequence[Run], model: str | None) -> Workload | Refusal | None:
    """The last training run's (of `model`); None where none was given and none asked for."""
    helps = f"wirespeed train --model {model or 'small'} --strategy flat,overlap,bucketed,ddp"
    found = [(run, one) for run in runs for one in run.training if _is_yardstick(one, model)]
    if not found:
        trained = sorted({one.model for run in runs for one in run.training})
        if not trained and model is None:
            return None
        why = f"training of {', '.join(trained)} only" if trained else "no training run"
        return Refusal(f"steps of {model or 'any model'}", f"{why} with its step alone", helps)
    run, alone = found[-1]
    size = _size(alone.model, run.config)
    if isinstance(size, Refusal):
        return size
    backward = alone.parts["backward"] / max(alone.micro_batches, 1)
    mates = [one for one in run.training if one.study == "compare" and one.model == alone.model]
    return Workload(
        model=alone.model,
        backward_s=min(backward, alone.step.mean),
        rest_s=max(alone.step.mean - backward, 0.0),
        gradients=gradients_of(size),
        uncertainty=(alone.step.high - alone.step.low) / (2 * 1.96 * alone.step.mean),
        world=WorldSize(max(alone.nodes, 1), max(alone.ranks // max(alone.nodes, 1), 1)),
        measured=tuple(one for one in mates if one.strategy != "none"),
        rounds=alone.rounds,
        run=run.id,
        cores=cores_of(run),
    )


def _is_yardstick(one: Training, model: str | None) -> bool:
    known = one.step.mean > 0 and one.parts.get("backward", 0) > 0
    wanted = model is None or one.model == model
    return known and wanted and one.strategy == "none" and one.study == "compare"


def _size(model: str, config: dict[str, Any]) -> TransformerSize | MlpSize | ConvnetSize | Refusal:
    """Its size by formula; a Refusal for a user's own model, whose size only torch knows."""
    from dataclasses import replace

    sizes: dict[str, TransformerSize | MlpSize | ConvnetSize] = {
        **TRANSFORMERS,
        **MLPS,
        **CONVNETS,
    }
    if model not in sizes:
        why = "only the models of `wirespeed train --list` have a size by formula"
        return Refusal(f"steps of {model}", why, "wirespeed train --list")
    size = sizes[model]
    changes = {name: config[name] for name in _OPTIONS if config.get(name) is not None}
    if not changes or not isinstance(size, TransformerSize):
        return size
    try:
        return replace(size, **changes)
    except (TypeError, UsageError) as error:
        return Refusal(f"steps of {model}", f"its run was configured in a strange way: {error}", "")
