"""What a damaged file does to its reader, told as one kind of error."""

from collections.abc import Iterator
from contextlib import contextmanager

from wirespeed.errors import InputError

__all__ = ["damage"]

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
        raise InputError(
            f"{source} is damaged: {what}",
            expected=expected,
        ) from error
