"""Seeded values: exact in their type, different between ranks, neighbours and seeds."""

import pytest
import torch

from wirespeed.collectives.collective import DTYPES, dtype_named
from wirespeed.collectives.patterns import pattern_for, why_not_exact
from wirespeed.errors import UsageError

CPU = torch.device("cpu")


def in_type(values: torch.Tensor, name: str) -> torch.Tensor:
    return values.to(getattr(torch, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DTYPES))
@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 100, 1000])
def test_every_partial_reduction_is_exact_in_the_type_in_any_order(name, redop, ranks):
    pattern = pattern_for(dtype_named(name), redop, ranks, seed=5)
    count = 257
    generator = torch.Generator().manual_seed(ranks)
    order = torch.randperm(ranks, generator=generator).tolist()
    total = in_type(pattern.values(order[0], 0, count, CPU), name)
    # Torch does not compute in float8 on CPUs: each step is rounded to it.
    wide = torch.float32 if name.startswith("float8") else total.dtype
    for rank in order[1:]:
        value = in_type(pattern.values(rank, 0, count, CPU), name).to(wide)
        if redop == "sum":
            total = total.to(wide) + value
        elif redop == "prod":
            total = total.to(wide) * value
        else:
            total = getattr(torch, f"{redop}imum")(total.to(wide), value)
        total = in_type(total, name)
    assert torch.equal(total.to(torch.float64), pattern.reduced(0, count, CPU).to(torch.float64))


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("ranks", [2, 3, 7, 64])
def test_averages_are_exact_after_the_sum_and_the_division(name, ranks):
    pattern = pattern_for(dtype_named(name), "avg", ranks, seed=1)
    total = sum(in_type(pattern.values(rank, 0, 100, CPU), name) for rank in range(ranks))
    assert torch.equal(total / ranks, in_type(pattern.reduced(0, 100, CPU), name))


def test_an_average_that_has_no_exact_values_is_said_to_be_unchecked():
    assert "no exact values" in why_not_exact(dtype_named("bfloat16"), "avg", 1000)
    assert why_not_exact(dtype_named("float32"), "avg", 1000) == ""


@pytest.mark.parametrize("name", list(DTYPES))
def test_moved_values_are_exact_and_never_the_unwritten_mark(name):
    from wirespeed.collectives.oracle import bits, sentinel_fill

    pattern = pattern_for(dtype_named(name), "none", 4, seed=2)
    values = pattern.values(3, 0, 5000, CPU)
    stored = in_type(values, name)
    assert torch.equal(stored.to(torch.float64), values.to(torch.float64))
    mark = torch.empty(1, dtype=stored.dtype)
    sentinel_fill(mark)
    assert not (bits(stored) == bits(mark)).any()


@pytest.mark.parametrize("redop", ["none", "sum", "max"])
def test_ranks_neighbours_and_seeds_differ(redop):
    pattern = pattern_for(dtype_named("float32"), redop, 4, seed=2)
    mine = pattern.values(0, 0, 2000, CPU)
    other = pattern_for(dtype_named("float32"), redop, 4, seed=3).values(0, 0, 2000, CPU)
    assert (mine != pattern.values(1, 0, 2000, CPU)).float().mean() > 0.9
    assert (mine != other).float().mean() > 0.9
    assert (mine[1:] != mine[:-1]).float().mean() > 0.9


def test_a_slice_is_the_same_as_that_part_of_the_whole():
    pattern = pattern_for(dtype_named("int32"), "max", 3, seed=9)
    whole = pattern.values(1, 0, 1000, CPU)
    assert torch.equal(pattern.values(1, 300, 200, CPU), whole[300:500])


def test_no_rank_contributes_nothing_to_a_sum_that_all_share():
    pattern = pattern_for(dtype_named("float32"), "sum", 8, seed=1)
    assert all((pattern.values(rank, 0, 500, CPU) > 0).all() for rank in range(8))


def test_unknown_dtype_lists_the_known_ones():
    with pytest.raises(UsageError, match="unknown dtype 'float33'"):
        dtype_named("float33")
    assert dtype_named("half").name == "float16"
