"""The largest batch, found with real steps within a limit that the test sets."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wirespeed.errors import UsageError
from wirespeed.training.contract import ModelSpec, Setup
from wirespeed.training.memory.dry import footprint
from wirespeed.training.memory.fitting import fit_batch
from wirespeed.training.memory.measured import measure_memory
from wirespeed.training.memory.predicted import predict

WIDTH = 64
CPU = torch.device("cpu")
made = []
"""Samples of each trainer that was made."""


class Alone:
    def __init__(self, model, setup):
        made.append(setup.samples)
        self.model = model
        self.optimizer = setup.optimizer_class(model.parameters())

    def no_sync(self):
        return nullcontext()

    def backward(self, loss):
        loss.backward()

    def finish(self):
        pass

    def clip(self, max_norm):
        raise NotImplementedError

    def full_parameters(self):
        return {}

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def close(self):
        pass


class RunsOut(Alone):
    """As a GPU with memory for 5 samples."""

    def backward(self, loss):
        super().backward(loss)
        if made[-1] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 TiB")


SPEC = ModelSpec(
    name="mlp",
    build=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)),
    batch=lambda seed, n: (torch.zeros(n, WIDTH), torch.zeros(n, dtype=torch.long)),
    loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
    parameters=1,
    gradient_bytes=4,
)


def setup(group=None, samples=1):
    return Setup(group=group, device=CPU, optimizer_class=torch.optim.AdamW, samples=samples)


def expected(samples):
    return predict("none", footprint(SPEC, samples, torch.optim.AdamW, {}, CPU), ranks=1).peak


@pytest.fixture(autouse=True)
def none_made(one_thread):
    made.clear()


@pytest.mark.slow
@pytest.mark.parametrize("expect", [expected, None], ids=["foretold", "from what was measured"])
def test_the_found_batch_fits_and_one_more_does_not(expect):
    limit = 2_000_000
    found = fit_batch(SPEC, Alone, setup(), limit_bytes=limit, expect=expect, within=0)
    usable = 0.95 * limit
    assert measure_memory(SPEC, Alone, setup(samples=found.samples)).peak <= usable
    assert measure_memory(SPEC, Alone, setup(samples=found.samples + 1)).peak > usable
    assert found.too_many == found.samples + 1
    assert found.memory is not None and found.memory.peak <= usable


@pytest.mark.slow
def test_what_is_foretold_not_to_fit_is_never_tried():
    found = fit_batch(SPEC, Alone, setup(), limit_bytes=2_000_000, expect=expected)
    assert found.foretold
    assert max(made) < min(found.foretold)


def test_a_limit_below_the_model_itself():
    found = fit_batch(SPEC, Alone, setup(), limit_bytes=1000, expect=expected)
    assert (found.samples, found.memory, made) == (0, None, [])


def test_running_out_of_memory_is_an_answer_and_earlier_ones_stay():
    found = fit_batch(SPEC, RunsOut, setup(), limit_bytes=1 << 40, within=0)
    assert (found.samples, found.too_many) == (5, 6)
    assert found.ran_out == (8, 6)
    assert found.memory is not None


def test_another_error_is_not_taken_for_running_out():
    class Broken(Alone):
        def backward(self, loss):
            raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        fit_batch(SPEC, Broken, setup(), limit_bytes=1 << 40)


@pytest.mark.parametrize("limit", [None, 0, -5])
def test_the_cpu_needs_a_limit(limit):
    with pytest.raises(UsageError):
        fit_batch(SPEC, Alone, setup(), limit_bytes=limit)


def uneven_limits(rank, ranks):
    import torch.distributed as dist

    limit = 2_000_000 if rank == 0 else 1_000_000
    with_limit = setup(group=dist.group.WORLD)
    found = fit_batch(SPEC, Alone, with_limit, limit_bytes=limit, expect=expected)
    return [found.samples, found.too_many, found.limit_bytes, made]


def runs_out_on_one(rank, ranks):
    import torch.distributed as dist

    build = RunsOut if rank == 1 else Alone
    found = fit_batch(SPEC, build, setup(group=dist.group.WORLD), limit_bytes=1 << 30, within=0)
    return [found.samples, found.too_many, list(found.ran_out)]


@pytest.mark.slow
def test_ranks_agree_on_the_smallest_limit(world):
    first, second = world("uneven_limits")
    assert first == second
    assert first[2] == 1_000_000


@pytest.mark.slow
def test_ranks_agree_when_one_runs_out(world):
    assert world("runs_out_on_one") == [[5, 6, [8, 6]]] * 2
