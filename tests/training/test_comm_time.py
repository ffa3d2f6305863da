"""Communication time is measured right: held-up collectives on real gloo ranks, however issued."""

import time

import pytest

from wirespeed.errors import CannotMeasure

HELD_S = 0.2


def _observe(step, rank: int, steps: int = 1):
    import torch
    import torch.distributed as dist

    from wirespeed.training.comm_time import observe

    return observe(
        step, steps=steps, rank=rank, device=torch.device("cpu"), barrier=lambda: dist.barrier()
    )


def _figures(seen) -> dict:
    return {
        "step": seen.end_s - seen.begin_s,
        "communication": seen.communication_s,
        "uncovered": seen.uncovered_s,
        "names": sorted(span.name for span in seen.communication),
        "inside": all(seen.begin_s <= span.begin_s for span in seen.communication),
    }


def held_case(rank: int, ranks: int):
    """Rank 1 comes late to one collective, issued in several ways."""
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1000)
    wide = torch.empty(1000 * ranks)

    def late() -> None:
        if rank == 1:
            time.sleep(HELD_S)

    def blocking() -> None:
        late()
        dist.all_reduce(tensor)

    def waited_at_once() -> None:
        late()
        dist.all_reduce(tensor, async_op=True).wait()

    def waited_long_after() -> None:
        late()
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(3 * HELD_S)
        work.wait()

    def four_in_flight() -> None:
        late()
        for work in [dist.all_reduce(torch.ones(9), async_op=True) for _ in range(4)]:
            work.wait()

    def gathered() -> None:
        late()
        getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(wide, tensor)

    def nothing() -> None:
        late()

    ways = (blocking, waited_at_once, waited_long_after, four_in_flight, gathered, nothing)
    return {way.__name__: _figures(_observe(way, rank)[0]) for way in ways}


def every_case(rank: int, ranks: int):
    """All that needs a world, in one."""
    cases = (held_case, hidden_case, strategies_case, many_steps_case)
    return {case.__name__: case(rank, ranks) for case in cases}


@pytest.fixture(scope="module")
def seen(world):
    return world("every_case")


@pytest.fixture
def held(seen):
    return [by_rank["held_case"] for by_rank in seen]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["blocking", "waited_at_once", "four_in_flight", "gathered"])
def test_a_collective_held_up_by_a_late_rank_counts_whole_on_the_rank_that_waits(held, way):
    first, late = (by_rank[way] for by_rank in held)
    assert 0.9 * HELD_S < first["communication"] <= first["step"]
    assert late["communication"] < 0.5 * HELD_S
    assert late["step"] > 0.9 * HELD_S
    assert first["inside"] and late["inside"]


def test_it_ends_when_the_work_ends_not_when_somebody_waits_for_it(held):
    first = held[0]["waited_long_after"]
    assert 0.9 * HELD_S < first["communication"] < 2 * HELD_S
    assert first["step"] > 2.9 * HELD_S


def test_names_say_what_ran(held):
    assert held[0]["blocking"]["names"] == ["gloo:all_reduce"]
    assert held[0]["gathered"]["names"] == ["gloo:all_gather"]
    assert held[0]["four_in_flight"]["names"] == ["gloo:all_reduce"] * 4


def test_neither_barriers_nor_sleep_are_communication(held):
    for by_rank in held:
        assert by_rank["nothing"]["names"] == []
        assert by_rank["nothing"]["communication"] == 0


def hidden_case(rank: int, ranks: int):
    """The same held-up all_reduce: waited for at once, and hidden under the same computing."""
    import torch
    import torch.distributed as dist

    matrix = torch.randn(512, 512)
    tensor = torch.ones(1000)

    def compute() -> None:
        end = time.perf_counter() + 2 * HELD_S
        while time.perf_counter() < end:
            matrix @ matrix

    def issue() -> "dist.Work":
        if rank == 1:
            time.sleep(HELD_S)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        return work

    def first_then() -> None:
        issue().wait()
        compute()

    def under() -> None:
        work = issue()
        compute()
        work.wait()

    return {way.__name__: _figures(_observe(way, rank)[0]) for way in (first_then, under)}


def test_overlap_hides_it_in_the_step_but_not_in_communication_time(seen):
    shown, hidden = (seen[0]["hidden_case"][way] for way in ("first_then", "under"))
    assert shown["step"] - hidden["step"] > 0.5 * HELD_S
    assert shown["communication"] > 0.9 * HELD_S
    assert hidden["communication"] > 0.9 * HELD_S
    assert shown["uncovered"] > 0.9 * HELD_S
    assert hidden["uncovered"] < 0.5 * HELD_S


def strategies_case(rank: int, ranks: int):
    """torch's own wrappers; rank 1 is late in the middle of the backward pass."""
    import torch
    from torch import nn

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values.view_as(values)

        @staticmethod
        def backward(ctx, gradient):
            if rank == 1:
                time.sleep(HELD_S)
            return gradient

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, values):
            return self.second(Late.apply(self.first(values)))

    def shown(model, optimizer=None) -> list[dict]:
        def step() -> None:
            model(torch.ones(4, 64, requires_grad=True)).sum().backward()
            if optimizer is not None:
                optimizer.step()

        step()
        return [_figures(one) for one in _observe(step, rank, steps=2)]

    return {name: shown(*made) for name, made in _wrapped(Layers).items()}


def _wrapped(layers) -> dict:
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    sharded = layers()
    fully_shard(sharded.first)
    fully_shard(sharded.second)
    fully_shard(sharded)
    replicated = DistributedDataParallel(layers())
    zero = ZeroRedundancyOptimizer(replicated.parameters(), torch.optim.SGD, lr=0.1)
    return {
        "ddp": (DistributedDataParallel(layers(), bucket_cap_mb=0.01),),
        "fsdp2": (sharded,),
        "zero1": (replicated, zero),
    }


def test_torch_s_own_strategies_are_timed_by_the_same_clock(seen):
    first, late = (by_rank["strategies_case"] for by_rank in seen)
    for name, names in (
        ("ddp", {"gloo:all_reduce"}),
        ("fsdp2", {"gloo:all_gather", "gloo:all_reduce"}),
        ("zero1", {"gloo:all_reduce", "gloo:broadcast"}),
    ):
        assert len(first[name]) == 2
        for one in first[name]:
            assert set(one["names"]) == names, name
            assert 0.8 * HELD_S < one["communication"] <= one["step"], name
        assert all(one["communication"] < 0.6 * HELD_S for one in late[name]), name


def many_steps_case(rank: int, ranks: int):
    import torch
    import torch.distributed as dist

    seen = iter(range(100))

    def step() -> None:
        for _ in range(next(seen)):
            dist.all_reduce(torch.ones(3))

    return [len(one.communication) for one in _observe(step, rank, steps=4)]


def test_each_step_gets_its_own_events(seen):
    assert [by_rank["many_steps_case"] for by_rank in seen] == [[1, 2, 3, 4]] * 2


def _event(name, start, end, *, cuda=False, thread=1):
    from wirespeed.training.comm_time import Event

    return Event(name, start / 1e6, end / 1e6, thread, cuda, cuda and ":" in name)


def test_an_operator_that_another_one_calls_is_not_counted_beside_it():
    from wirespeed.training.comm_time import _observed_steps

    events = [
        _event("wirespeed:step", 1000, 9000),
        _event("aten::linear", 1100, 1500),
        _event("aten::mm", 1200, 1400),
        _event("aten::mm", 1300, 1450, thread=2),
        _event("aten::add", 1500, 1600),
    ]
    (seen,) = _observed_steps(events, [50.0], 0, False)
    assert [span.name for span in seen.compute] == ["aten::linear", "aten::mm", "aten::add"]


def test_on_cuda_kernels_count_and_the_host_s_calls_do_not():
    from wirespeed.training.comm_time import _observed_steps

    events = [
        _event("wirespeed:step", 1000, 9000),
        _event("wirespeed:step", 1000, 9000, cuda=True),
        _event("nccl:all_reduce", 1500, 8500),
        _event("aten::mm", 1200, 1300),
        _event(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
            2000,
            5000,
            cuda=True,
        ),
        _event(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
            4000,
            6000,
            cuda=True,
        ),
        _event("void two_shot_all_reduce_kernel<float, 16, 8>(float**)", 6000, 6500, cuda=True),
        _event("Memcpy PtoP (Device -> Device)", 6500, 7000, cuda=True),
        _event("ampere_sgemm_128x64_nn", 1500, 4500, cuda=True),
        _event("nccl:all_reduce", 1500, 8500, cuda=True),
        _event("ncclDevKernel_Broadcast", 9500, 9900, cuda=True),
    ]
    events.sort(key=lambda event: event.start)
    (seen,) = _observed_steps(events, [50.0], 3, True)
    assert seen.communication_s == pytest.approx(5e-3)
    assert seen.uncovered_s == pytest.approx(2.5e-3)
    assert (seen.begin_s, seen.end_s) == pytest.approx((50.0, 50.008))
    assert [(s.rank, s.begin_s) for s in seen.compute] == [(3, pytest.approx(50.0005))]


def test_steps_that_the_profiler_lost_are_an_error():
    from wirespeed.training.comm_time import _observed_steps

    with pytest.raises(CannotMeasure, match="0 of 1 steps"):
        _observed_steps([_event("aten::mm", 1, 2)], [1.0], 0, False)
