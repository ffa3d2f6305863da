"""The formulas themselves: the ZeRO paper's figures, and shares that are dealt out."""

import subprocess
import sys

import pytest

from wirespeed.errors import UsageError
from wirespeed.training.memory.predicted import PREDICTED, Footprint, largest_load, predict
from wirespeed.training.strategies.registry import STRATEGIES

BILLION = Footprint(parameters=4 * 10**9, tensor_bytes=(4 * 10**6,) * 1000, state_per_tensor=0)


def test_every_strategy_has_a_formula():
    assert set(PREDICTED) == set(STRATEGIES)


def test_an_unknown_strategy():
    with pytest.raises(UsageError, match="no formula"):
        predict("magic", BILLION, ranks=2)


@pytest.mark.slow
def test_no_torch_is_needed():
    code = "import sys, wirespeed.training.memory.predicted;"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("strategy", "parameters", "gradients", "optimizer"),
    [("none", 4, 4, 8), ("sharded", 4, 4, 1), ("fsdp2", 0.5, 0.5, 1)],
)
def test_a_billion_parameters_on_eight_ranks(strategy, parameters, gradients, optimizer):
    """ZeRO's table 1 in float32: K is 8, a parameter and its gradient are 4 bytes each."""
    seen = predict(strategy, BILLION, ranks=8)
    assert seen.parameters == parameters * 10**9
    assert seen.gradients == gradients * 10**9
    assert seen.optimizer == optimizer * 10**9


def test_whole_tensors_are_dealt_to_the_rank_that_has_least():
    assert largest_load([7, 5, 4, 3, 1], 2) == 10
    assert largest_load([9, 1, 1], 2) == 9
    assert largest_load([3], 4) == 3
    assert largest_load([], 2) == 0


def test_on_one_rank_nothing_is_sharded():
    whole = predict("none", BILLION, ranks=1)
    for strategy in ("sharded", "zero1", "fsdp2"):
        seen = predict(strategy, BILLION, ranks=1)
        assert (seen.parameters, seen.optimizer) == (whole.parameters, whole.optimizer)
