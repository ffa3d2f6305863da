"""Sizes and figures as people write and read them. Inside, everything is bytes and seconds."""

import re

from wirespeed.errors import UsageError

__all__ = [
    "GIGA",
    "format_bandwidth",
    "format_duration",
    "format_size",
    "parse_size",
]

GIGA = 1e9
"""1 GB/s is 10^9 bytes a second, as nccl-tests counts it."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes from `4096`, `64K`, `1.5M`, `8GiB`: the suffixes are powers of 1024, as in nccl-tests.

    Raises UsageError for anything else, for a negative size and for a fraction of a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a size",
            expected="a number of bytes with an optional K, M, G or T, such as 1K, 16M or 1.5G",
        )
    size = float(match[1]) * 1024 ** _POWER[match[2].lower()]
    if size != int(size):
        raise UsageError(f"{text!r} is not a whole number of bytes", expected="such as 512 or 1K")
    return int(size)


def format_size(size: int) -> str:
    """`1 KiB`, `16 MiB`, `1000 B`: exact where a power of 1024 divides it, else three digits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            value = size / 1024**power
            return f"{value:.0f} {unit}" if value == int(value) else f"{value:.3g} {unit}"
    return f"{size} B"


def format_duration(seconds: float) -> str:
    """Three significant digits with the unit that fits: `3.1 µs`, `1.2 ms`, `14 s`, `2 min 5 s`."""
    if seconds < 0 or seconds != seconds:
        return "–"
    if seconds < 1e-3:
        return f"{_digits(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{_digits(seconds * 1e3)} ms"
    if seconds < 120:
        return f"{_digits(seconds)} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def format_bandwidth(bytes_per_second: float) -> str:
    """GB/s (10^9 bytes) with three significant digits: `0.912`, `45.4`, `358`."""
    return _digits(bytes_per_second / GIGA) + " GB/s"


def _digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"
