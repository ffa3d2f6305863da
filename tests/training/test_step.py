import time
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from wirespeed.errors import CannotMeasure, WirespeedError
from wirespeed.training.contract import ModelSpec
from wirespeed.training.step import LossNotFinite, Stepper

CPU = torch.device("cpu")


class Local:
    """A trainer of one rank that writes down what it is asked to do."""

    def __init__(self, model, *, rate=0.1):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        self.calls = []
        self.norms = []
        self.slow = {}

    def _did(self, name):
        self.calls.append(name)
        time.sleep(self.slow.get(name, 0))

    @contextmanager
    def no_sync(self):
        self.calls.append("no_sync(")
        yield
        self.calls.append(")")

    def backward(self, loss):
        loss.backward()
        self._did("backward")

    def finish(self):
        self._did("finish")

    def clip(self, max_norm):
        self.norms.append(float(nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)))
        self._did("clip")

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._did("step")


def _linear():
    torch.manual_seed(3)
    return nn.Linear(8, 1)


def _loss(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs).float(), targets)


def _spec(loss=_loss):
    return ModelSpec(
        name="line", build=_linear, batch=_batch, loss=loss, parameters=9, gradient_bytes=36
    )


def _batch(seed, samples):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 8, generator=draw), torch.randn(samples, 1, generator=draw)


def _stepper(trainer, batches=lambda step, micro: _batch(step, 8), *, loss=_loss, **options):
    return Stepper(trainer, _spec(loss), batches, **{"rank": 2, "device": CPU, **options})


def _weights(trainer):
    return torch.cat([one.detach().flatten().clone() for one in trainer.model.parameters()])


def test_micro_batches_give_the_gradient_of_the_whole_batch():
    whole, parted = Local(_linear()), Local(_linear())
    inputs, targets = _batch(1, 8)
    one = _stepper(whole, lambda *_: (inputs, targets))
    four = _stepper(
        parted,
        lambda _, micro: (inputs[2 * micro : 2 * micro + 2], targets[2 * micro : 2 * micro + 2]),
        micro_batches=4,
    )
    losses = [(one(number).loss, four(number).loss) for number in range(3)]
    assert torch.allclose(_weights(whole), _weights(parted), rtol=1e-5, atol=1e-7)
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in losses)
    assert losses[2][0] < losses[0][0]


def test_only_the_last_micro_batch_synchronises():
    trainer = Local(_linear())
    _stepper(trainer, micro_batches=3, clip=1.0)(0)
    assert trainer.calls == [
        *["no_sync(", "backward", ")"] * 2,
        *["backward", "finish", "clip", "step"],
    ]


def test_every_batch_is_asked_for_once_by_step_and_micro_batch():
    asked = []
    stepper = _stepper(
        Local(_linear()),
        lambda step, micro: asked.append((step, micro)) or _batch(step, 2),
        micro_batches=2,
    )
    stepper(0)
    stepper(7)
    assert asked == [(0, 0), (0, 1), (7, 0), (7, 1)]


@pytest.mark.parametrize("part", ["data", "forward", "backward", "synchronise", "optimizer"])
def test_time_is_booked_where_it_was_spent(part):
    pause, trainer = 0.2, Local(_linear())
    place = {"backward": "backward", "synchronise": "finish", "optimizer": "step"}.get(part)
    if place:
        trainer.slow[place] = pause

    def batches(step, micro):
        time.sleep(pause if part == "data" else 0)
        return _batch(step, 4)

    def loss(model, batch):
        time.sleep(pause if part == "forward" else 0)
        return _loss(model, batch)

    done = _stepper(trainer, batches, loss=loss)(5)
    times = done.times
    parts = {
        name: getattr(times, name)
        for name in ("data", "forward", "backward", "synchronise", "optimizer")
    }
    assert max(parts, key=parts.__getitem__) == part
    assert parts[part] >= pause
    assert sum(parts.values()) <= times.step
    assert times.step - sum(parts.values()) < pause


def test_phases_follow_each_other_on_the_host_s_clock():
    before = time.perf_counter()
    done = _stepper(Local(_linear()), micro_batches=2)(9)
    after = time.perf_counter()
    names = [span.name for span in done.phases]
    assert names == [*["data", "forward", "backward"] * 2, "synchronise", "optimizer"]
    edges = [before, *(e for s in done.phases for e in (s.begin_s, s.end_s)), after]
    assert edges == sorted(edges)
    assert {(span.rank, span.lane) for span in done.phases} == {(2, "step")}
    assert done.number == 9


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_not_finite_stops_and_names_step_and_rank(value):
    stepper = _stepper(
        Local(_linear()), loss=lambda model, batch: _loss(model, batch) * float(value)
    )
    with pytest.raises(LossNotFinite) as caught:
        stepper(12)
    assert f"step 12 is {value} on rank 2" in str(caught.value)
    assert (caught.value.step, caught.value.ranks) == (12, (2,))
    assert isinstance(caught.value, WirespeedError) and caught.value.exit_code == 3


def stopping_case(rank, ranks):
    """Rank 1 meets a NaN in step 3."""
    import torch.distributed as dist

    def share(value):
        every = [torch.zeros(1) for _ in range(ranks)]
        dist.all_gather(every, torch.tensor([value]))
        return [float(one) for one in every]

    def loss(model, batch):
        found = _loss(model, batch)
        return found * float("nan") if rank == 1 and stepper_at[0] == 3 else found

    stepper_at = [0]
    stepper = _stepper(Local(_linear()), loss=loss, rank=rank, share=share)
    for number in range(6):
        stepper_at[0] = number
        try:
            stepper(number)
        except LossNotFinite as error:
            return [number, str(error)]
    return None


@pytest.mark.slow
def test_all_ranks_stop_together_and_name_the_one_that_met_it(world):
    first, second = world("stopping_case")
    assert first == second
    assert first[0] == 3 and "nan on rank 1" in first[1]


def test_bf16_computes_in_bf16_and_keeps_parameters_in_float32():
    seen = []

    def loss(model, batch):
        out = model(batch[0])
        seen.append(out.dtype)
        return nn.functional.mse_loss(out.float(), batch[1])

    low, full = Local(_linear()), Local(_linear())
    for number in range(3):
        _stepper(low, loss=loss, precision="bf16")(number)
        _stepper(full, loss=loss)(number)
    assert seen == [torch.bfloat16, torch.float32] * 3
    assert {one.dtype for one in low.model.parameters()} == {torch.float32}
    assert torch.allclose(_weights(low), _weights(full), atol=2e-2)
    assert not torch.equal(_weights(low), _weights(full))


def test_fp16_scales_the_loss_and_unscales_before_clipping_and_the_step():
    low, full = Local(_linear()), Local(_linear())
    scaled, plain = _stepper(low, precision="fp16", clip=0.5), _stepper(full, clip=0.5)
    for number in range(3):
        tries = 1  # the scale begins as 2**16, where a gradient of 1 is no float16
        while scaled(number).skipped:
            tries += 1
        assert tries < 10 and (number == 0 or tries == 1)
        plain(number)
    assert low.norms[-3:] == pytest.approx(full.norms, rel=1e-2)
    assert torch.allclose(_weights(low), _weights(full), atol=1e-2)


def test_fp16_skips_a_step_whose_gradients_overflow():
    trainer = Local(_linear())
    stepper = _stepper(trainer, precision="fp16")
    before = _weights(trainer)
    trainer.model.weight.register_hook(lambda grad: grad * float("inf"))
    assert stepper(0).skipped
    assert torch.equal(_weights(trainer), before)
    assert all(one.grad is None for one in trainer.model.parameters())
    assert stepper._scale.scale == 2**15  # half of what GradScaler starts with


def test_fp16_without_gradients_on_the_parameters_is_refused():
    trainer = Local(_linear())
    trainer.backward = lambda loss: None
    with pytest.raises(CannotMeasure, match="keeps no gradients"):
        _stepper(trainer, precision="fp16")(0)
