"""Pickles of plain data, read without running anything in them.

torch's flight recorder pickles dicts, lists, tuples, numbers and texts. Every instruction is looked
at before any is obeyed: one that imports, calls or asks for memory beyond the file's own size is
refused, and the unpickler that then reads it can import nothing.
"""

import io
import pickle
import re
from typing import Any, NoReturn

_ALLOWED = re.compile(
    rb"(?:[()\]}Neasut\x85-\x89\x94]"  # marks, empty containers, constants, filling them
    rb"|[Kqh].|M..|[Jj].{4}|r..[\x00-\x0f]\x00|[G\x95].{8}|\x80[\x02-\x05]"
    + b"".join(b"|\\x8a\\x%02x.{%d}" % (size, size) for size in range(10))
    + rb")*",
    re.DOTALL,
)
_TEXTS = {ord("X"): 4, 0x8C: 1, ord("C"): 1, ord("B"): 4, 0x8D: 8}
"""Texts and bytes: how many bytes tell their length."""
_WIDTHS = {ord(name): size for name, size in zip("KqhMJjrG", (1, 1, 1, 2, 4, 4, 4, 8), strict=True)}
_WIDTHS |= {0x95: 8, 0x80: 1, 0x8A: 9}


class NotPlainError(ValueError):
    """It is cut off, or holds more than plain data."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise NotPlainError(f"it would import {module}.{name}")

    def persistent_load(self, key: Any, /) -> NoReturn:
        raise NotPlainError("it names an object that lies elsewhere")


def plain(data: bytes) -> Any:
    """The value. Raises NotPlainError."""
    _look(data)
    try:
        return _Plain(io.BytesIO(data)).load()
    except NotPlainError:
        raise
    except Exception as error:  # whatever broken instructions make of builtin types
        raise NotPlainError(f"it is damaged ({type(error).__name__}: {error})") from error


def _look(data: bytes) -> None:
    """Go through all instructions, up to the one that ends it."""
    place = 0
    while True:
        match = _ALLOWED.match(data, place)
        place = match.end() if match else place
        if place >= len(data):
            raise NotPlainError("it breaks off")
        code = data[place]
        if code == ord("."):
            return
        width = _TEXTS.get(code)
        if width is None:
            _refuse(code, len(data) - place)
        size = int.from_bytes(data[place + 1 : place + 1 + width], "little")
        place += 1 + width + size
        if place > len(data):
            raise NotPlainError("it breaks off")


def _refuse(code: int, left: int) -> NoReturn:
    if left <= _WIDTHS.get(code, 0):
        raise NotPlainError("it breaks off")
    raise NotPlainError(
        f"it holds more than plain data (instruction {bytes([code])!r}), so that reading it could "
        "run a program"
    )
