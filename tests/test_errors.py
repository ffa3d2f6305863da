"""One tree of errors, with the exit codes of the product."""

import pytest

from wirespeed import errors

CODES = {
    "WirespeedError": 4,
    "UsageError": 2,
    "InputError": 2,
    "CannotMeasure": 3,
    "WorldError": 3,
    "StorageError": 3,
    "NothingRan": 5,
    "Interrupted": 130,
}


def test_every_public_error_is_in_the_tree_and_has_its_code():
    assert sorted(errors.__all__) == errors.__all__
    assert {name: getattr(errors, name).exit_code for name in errors.__all__} == CODES
    assert all(issubclass(getattr(errors, name), errors.WirespeedError) for name in CODES)


@pytest.mark.parametrize("name", CODES)
def test_the_docstring_draws_each_of_them(name):
    assert f" {name} " in errors.__doc__ or f"{name}  " in errors.__doc__


def test_a_message_says_what_was_seen_expected_and_next():
    error = errors.UsageError("-b is 1Q", expected="a size", next="wirespeed bench -b 1K")
    assert str(error).splitlines() == [
        "-b is 1Q",
        "  expected  a size",
        "  next      wirespeed bench -b 1K",
    ]
    assert error.to_json()["exit_code"] == 2
