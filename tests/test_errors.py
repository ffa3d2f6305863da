"""One tree of errors, with the exit codes of the product."""

import pytest

from wirespeed import errors
from wirespeed.errors import InputError, escaped, harmless, harmless_lines, unformulated

CODES = {
    "WirespeedError": 4,
    "UsageError": 2,
    "InputError": 2,
    "CannotMeasure": 3,
    "WorldError": 3,
    "StorageError": 3,
    "NothingRan": 5,
    "CommandProblem": 127,
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


pytestmark = pytest.mark.hostile("hostile values")

STEERING = ("\x1b[2J", "\x9b31m", "\r", "\b", "\u202e", "\u2066", "\x7f", "\u2028", "\0", "\x85")


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_is_gone(text: str) -> None:
    assert text[0] not in harmless(f"a{text}b")
    assert text[0] not in harmless_lines(f"a\n{text}b")
    assert text[0] not in str(InputError(f"saw {text}", expected=text, next=text))
    assert text[0] not in unformulated(text)


def test_the_rest_stays() -> None:
    assert harmless("größer · 5 µs × 2 😀") == "größer · 5 µs × 2 😀"
    assert harmless_lines("a\nb\n") == "a\nb\n"
    assert harmless("\ud800x") == "?x"


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\u202e=1"]
)
def test_no_cell_is_a_formula(text: str) -> None:
    assert unformulated(text).startswith("'")
    assert unformulated("all_reduce") == "all_reduce"


def test_json_means_the_same() -> None:
    assert escaped('{"a": "\x9b\u202eé"}') == '{"a": "\\u009b\\u202eé"}'
    assert escaped('{"a": "b\x7f"}') == '{"a": "b\\u007f"}'
