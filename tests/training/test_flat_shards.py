import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.training.sharded_optimizer import FlatBuffer, least_loaded


@pytest.mark.parametrize(
    ("sizes", "loads", "owners"),
    [
        ([5, 4, 3, 2], [0, 0], [0, 1, 1, 0]),
        ([3, 3, 3], [0, 0, 0], [0, 1, 2]),
        ([1], [0, 0], [0]),
        ([1, 1], [5, 0], [1, 1]),
        ([], [0, 0], []),
    ],
)
def test_the_largest_goes_first_to_who_has_least(
    sizes: list[int], loads: list[int], owners: list[int]
) -> None:
    assert least_loaded(sizes, loads) == owners


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_no_rank_has_more_than_a_largest_item_above_another(sizes: list[int], ranks: int) -> None:
    loads = [0] * ranks
    for size, owner in zip(sizes, least_loaded(sizes, loads), strict=True):
        loads[owner] += size
    assert max(loads) - min(loads) <= max(sizes, default=0)


def test_parameters_become_views_with_their_values_and_strides() -> None:
    wide = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    parameters = [torch.nn.Parameter(value) for value in (torch.randn(5), wide, torch.randn(()))]
    before = [(p.detach().clone(), p.stride()) for p in parameters]
    buffer = FlatBuffer(parameters)
    for parameter, (value, stride) in zip(parameters, before, strict=True):
        assert torch.equal(parameter, value) and parameter.stride() == stride
        assert buffer.holds(parameter) and parameter.data_ptr() % 64 == 0
    buffer.tensor.fill_(2)
    assert all(bool((parameter == 2).all()) for parameter in parameters)
    assert buffer.intact()


def test_a_parameter_with_other_storage_is_noticed() -> None:
    parameter = torch.nn.Parameter(torch.randn(3))
    buffer = FlatBuffer([parameter])
    parameter.data = parameter.data.clone()
    assert not buffer.intact() and not buffer.holds(parameter)
