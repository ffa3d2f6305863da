"""JSON text in and out, for files that others may have cut, damaged or never written."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.codec import plain


def parse(text: str, *, source: str) -> Any:
    """The value in `text`; InputError names `source` and where it breaks.

    NaN and Infinity are refused (they are no JSON), and so are nesting too deep to follow and halves
    of surrogate pairs, which nobody can print.
    """
    try:
        found = json.loads(text, parse_constant=_no_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}: no valid JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            expected="a whole JSON document",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: no valid JSON: {error}", expected="plain JSON") from error


def dump(data: object, *, indent: int | None = None) -> str:
    """`data` as JSON; what JSON has no word for (paths, NaN, …) becomes a string, never an error.

    A run that took an hour is not lost over an odd value in its settings.
    """
    return json.dumps(plain(data), indent=indent, ensure_ascii=False, allow_nan=False)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# What a damaged file does to its reader, told as one kind of error.

_GARBAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What decoding raises where the shape is right and the content is nobody's."""


@contextmanager
def damage(source: str, *, expected: str = "a run as wirespeed wrote it") -> Iterator[None]:
    """InputError, naming `source`, for whatever reading and decoding it raise within."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror or error}") from error
    except _GARBAGE as error:
        what = f"{type(error).__name__}: {error}"[:200]
        raise InputError(f"{source} is damaged: {what}", expected=expected) from error
