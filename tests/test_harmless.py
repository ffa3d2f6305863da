"""Nothing that steers a terminal, or a spreadsheet, comes from foreign text."""

import pytest

from wirespeed.errors import InputError, escaped, harmless, harmless_lines, unformulated

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
