"""A step's memory against bytes counted by hand."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wirespeed.model.training_records import TrainingMemory
from wirespeed.training.contract import ModelSpec, Setup
from wirespeed.training.memory.measured import measure_memory

pytestmark = pytest.mark.usefixtures("one_thread")
IN, HIDDEN, CLASSES, SAMPLES = 64, 256, 10, 128
PARAMETERS = IN * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
TENSORS = 4


class Alone:
    """A trainer of one process."""

    def __init__(self, model, setup):
        self.model = model
        self.optimizer = setup.optimizer_class(model.parameters(), **setup.optimizer_options)

    def no_sync(self):
        return nullcontext()

    def backward(self, loss):
        loss.backward()

    def finish(self):
        pass

    def clip(self, max_norm):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def full_parameters(self):
        return {}

    def close(self):
        pass


class Hidden(Alone):
    """Keeps the optimizer under another name, in a slot."""

    __slots__ = ("kept",)

    def __init__(self, model, setup):
        super().__init__(model, setup)
        self.kept = self.__dict__.pop("optimizer")

    def step(self):
        self.kept.step()
        self.kept.zero_grad()


def mlp_spec(frozen=False):
    def build():
        model = nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        if frozen:
            model[0].requires_grad_(False)
        return model

    def batch(seed, samples):
        make = torch.Generator().manual_seed(seed)
        return (
            torch.randn(samples, IN, generator=make),
            torch.randint(0, CLASSES, (samples,), generator=make),
        )

    return ModelSpec(
        name="mlp",
        build=build,
        batch=batch,
        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        parameters=PARAMETERS,
        gradient_bytes=4 * PARAMETERS,
    )


def setup(optimizer=torch.optim.AdamW, **more):
    return Setup(
        group=None,
        device=torch.device("cpu"),
        optimizer_class=optimizer,
        **{"samples": SAMPLES, **more},
    )


def test_every_kind_of_a_small_mlp_is_counted_to_the_byte():
    figures = measure_memory(mlp_spec(), Alone, setup())
    assert figures.parameters == 4 * PARAMETERS
    assert figures.gradients == 4 * PARAMETERS
    # AdamW: two moments a parameter, and a step counter of four bytes a tensor.
    assert figures.optimizer == 2 * 4 * PARAMETERS + 4 * TENSORS
    # The output of ReLU, the log-probabilities, and the total weight of the classes.
    assert figures.activations == 4 * (SAMPLES * HIDDEN + SAMPLES * CLASSES + 1)
    assert figures.communication == 0


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_the_peak_is_the_allocators(optimizer):
    """The profiler's events of allocation and release are another witness of the same step."""
    figures = measure_memory(mlp_spec(), Alone, setup(optimizer))
    assert figures.peak == peak_by_the_profiler(optimizer)
    assert figures.other > 0


def peak_by_the_profiler(optimizer):
    from torch._C._profiler import _EventType
    from torch.profiler import ProfilerActivity, profile

    spec = mlp_spec()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        trainer = Alone(spec.build(), setup(optimizer))
        for _ in range(2):
            batch = spec.batch(1, SAMPLES)
            trainer.backward(spec.loss(trainer.model, batch))
            trainer.step()
    waiting = list(seen.profiler.kineto_results.experimental_event_tree())
    events = []
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            events.append((event.start_time_ns, event.extra_fields.alloc_size))
    alive = peak = 0
    for _, change in sorted(events, key=lambda event: event[0]):
        alive += change
        peak = max(peak, alive)
    return peak


def test_sgd_without_momentum_keeps_nothing():
    assert measure_memory(mlp_spec(), Alone, setup(torch.optim.SGD)).optimizer == 0


def test_frozen_parameters_are_parameters_and_have_no_gradient():
    figures = measure_memory(mlp_spec(frozen=True), Alone, setup())
    trained = HIDDEN * CLASSES + CLASSES
    assert figures.parameters == 4 * PARAMETERS
    assert figures.gradients == 4 * trained
    assert figures.optimizer == 8 * trained + 4 * 2


def test_twice_the_batch_is_twice_the_activations_and_nothing_else():
    one = measure_memory(mlp_spec(), Alone, setup())
    two = measure_memory(mlp_spec(), Alone, setup(samples=2 * SAMPLES))
    assert two.activations - 4 == 2 * (one.activations - 4)
    assert (two.parameters, two.gradients, two.optimizer) == (
        one.parameters,
        one.gradients,
        one.optimizer,
    )


def test_accumulation_keeps_no_activations_of_earlier_micro_batches():
    once = measure_memory(mlp_spec(), Alone, setup())
    thrice = measure_memory(mlp_spec(), Alone, setup(micro_batches=3))
    assert thrice.activations == once.activations


def test_an_optimizer_under_another_name_is_found():
    figures = measure_memory(mlp_spec(), Hidden, setup())
    assert figures.optimizer == 2 * 4 * PARAMETERS + 4 * TENSORS


def test_the_step_that_is_watched_trains_as_any_other():
    """Nothing is lost by looking: same weights as without."""
    made = []

    def build(model, how):
        made.append(Alone(model, how))
        return made[-1]

    for watch in (True, False):
        torch.manual_seed(3)
        if watch:
            measure_memory(mlp_spec(), build, setup())
        else:
            spec, trainer = mlp_spec(), build(mlp_spec().build(), setup())
            for _ in range(2):
                trainer.backward(spec.loss(trainer.model, spec.batch(1, SAMPLES)))
                trainer.step()
    for seen, plain in zip(made[0].model.parameters(), made[1].model.parameters(), strict=True):
        assert torch.equal(seen, plain)


def test_the_resident_size_is_the_process_with_all_that_it_imported():
    figures = measure_memory(mlp_spec(), Alone, setup())
    assert isinstance(figures, TrainingMemory)
    assert figures.resident > figures.peak


def test_three_points_of_a_step_are_read_to_the_byte():
    """Parameters; with gradients and AdamW's two moments; without gradients."""
    found = measure_memory(mlp_spec(), Alone, setup())
    p, steps = 4 * PARAMETERS, 4 * TENSORS
    batch = found.before_optimizer - (4 * p + steps)
    assert found.started == p and found.started_peak >= p
    assert 0 <= batch <= 4 * SAMPLES * (IN + 2) + 64, "the batch, and the loss"
    assert found.after_optimizer == found.before_optimizer - p
    assert found.before_optimizer <= found.before_optimizer_peak <= found.peak
    assert found.peak == max(found.before_optimizer_peak, found.after_optimizer_peak)
