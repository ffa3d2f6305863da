"""What is foretold without memory, against the same step in earnest."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import ModelSpec, Setup
from wirespeed.training.memory.dry import footprint, optimizer_layout
from wirespeed.training.memory.measured import measure_memory
from wirespeed.training.memory.predicted import predict
from wirespeed.training.models.networks import Transformer, class_loss
from wirespeed.training.models.sizes import TRANSFORMERS
from wirespeed.training.strategies.plain import PlainTrainer
from wirespeed.training.synchroniser import Synchroniser

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")
TINY = TRANSFORMERS["tiny"]


class NoOne(Synchroniser):
    """Synchronises with nobody, without a process group."""

    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def begin(self):
        pass

    def finish(self):
        pass

    def close(self):
        pass


def alone(model, setup):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = setup.optimizer_class(trained, **setup.optimizer_options)
    return PlainTrainer(model, NoOne(model), optimizer)


def transformer_spec():
    def batch(seed, samples):
        tokens = torch.randint(0, TINY.vocab, (samples, TINY.context + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return ModelSpec(
        name="tiny",
        build=lambda: Transformer(TINY),
        batch=batch,
        loss=class_loss,
        parameters=TINY.parameters,
        gradient_bytes=TINY.gradient_bytes,
        tokens_per_sample=TINY.context,
    )


def vector_spec(build, loss=None):
    return ModelSpec(
        name="mine",
        build=build,
        batch=lambda seed, n: (torch.zeros(n, 8), torch.zeros(n, dtype=torch.long)),
        loss=loss or (lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])),
        parameters=1,
        gradient_bytes=4,
    )


def setup(samples):
    return Setup(group=None, device=CPU, optimizer_class=torch.optim.AdamW, samples=samples)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, 4])
def test_a_transformers_step_is_foretold_to_the_byte(samples):
    spec = transformer_spec()
    measured = measure_memory(spec, alone, setup(samples))
    foretold = predict("none", footprint(spec, samples, torch.optim.AdamW, {}, CPU), ranks=1)
    for kind in ("parameters", "gradients", "optimizer", "activations", "communication"):
        assert getattr(foretold, kind) == getattr(measured, kind), kind
    # But for some scalars of the optimizer's.
    assert foretold.peak == pytest.approx(measured.peak, abs=64)


@pytest.mark.slow
def test_bfloat16_is_foretold_too_and_saves_activations():
    """Autocast keeps what matrix products read in two bytes, the matrices' copies among it."""
    full, half = (
        footprint(transformer_spec(), 8, torch.optim.AdamW, {}, CPU, precision)
        for precision in ("float32", "bf16")
    )
    assert half.activations < 0.9 * full.activations
    measured = measure_memory(transformer_spec(), alone, setup(8), precision="bf16")
    assert measured.activations == half.activations
    assert measured.peak == pytest.approx(predict("none", half, ranks=1).peak, rel=0.02)


@pytest.mark.slow
def test_any_batch_is_foretold_without_its_memory():
    """A million samples would take terabytes."""
    one, many = (
        footprint(transformer_spec(), n, torch.optim.AdamW, {}, CPU) for n in (1000, 1_000_000)
    )
    assert many.activations > 1 << 40
    assert many.activations == pytest.approx(1000 * one.activations, rel=0.001)


@pytest.mark.slow
def test_looking_does_not_disturb_the_random_numbers():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    footprint(transformer_spec(), 2, torch.optim.AdamW, {}, CPU)
    assert torch.equal(before, torch.get_rng_state())


def test_frozen_and_tied_parameters_and_buffers():
    def build():
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8))
        model[1].weight = model[0].weight
        model[1].bias.requires_grad_(False)
        return model

    seen = footprint(vector_spec(build), 4, torch.optim.AdamW, {}, CPU)
    assert seen.parameters == 4 * (64 + 8 + 8 + 8 + 8)
    assert sorted(seen.tensor_bytes) == [32, 32, 32, 256]
    assert seen.buffers == 4 * (8 + 8) + 8


def test_a_model_whose_course_depends_on_values_is_told_so():
    def loss(model, batch):
        out = model(batch[0])
        return out.sum() if out.sum().item() > 0 else -out.sum()

    spec = vector_spec(lambda: nn.Linear(8, 2), loss)
    with pytest.raises(CannotMeasure, match="mine cannot be foretold"):
        footprint(spec, 2, torch.optim.AdamW, {}, CPU)


@pytest.mark.parametrize(
    ("optimizer", "options", "layout"),
    [
        (torch.optim.AdamW, {}, (2.0, 4, 2.0, 1.0)),
        (torch.optim.AdamW, {"amsgrad": True}, (3.0, 4, 2.0, 1.0)),
        (torch.optim.SGD, {"lr": 0.1}, (0.0, 0, 0.0, 0.0)),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, (1.0, 0, 0.0, 0.0)),
    ],
)
def test_what_an_optimizer_keeps(optimizer, options, layout):
    seen = optimizer_layout(optimizer, options)
    found = (seen.per_byte, seen.per_tensor, seen.update_own, seen.update_before)
    assert found == layout
