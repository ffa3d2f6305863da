"""Sizes, figures and lists as people write and read them. Inside, all is bytes and seconds."""

import re
from collections.abc import Iterable, Sequence

from wirespeed.errors import UsageError

GIGA = 1e9
"""1 GB/s is 10^9 bytes a second, as nccl-tests counts it."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_UNITS = ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB"))
_BYTES_BELOW, _MOST = 100_000, 10_000
"""Up to here an exact number of bytes, and of larger units, is still read at a glance."""
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


def format_size(size: int, *, exact: bool = False) -> str:
    """`1 KiB`, `1.5 MiB`: a round figure is exact; else `4084 B`, and from 100 kB on `1.00 MiB`.

    exact: bytes wherever no round figure tells all, so that two sizes never look alike.
    """
    for power, unit in _UNITS:
        value = size / 1024**power
        if 1 <= value < _MOST and value == round(value, 2):
            return f"{value:g} {unit}"
    if exact or size < _BYTES_BELOW:
        return f"{size} B"
    # The unit in which it is below 1000, so that no figure has more than three digits in front.
    fits = (one for one in reversed(_UNITS) if size < 999.95 * 1024 ** one[0])
    power, unit = next(fits, _UNITS[0])
    value = size / 1024**power
    return f"{value:.2f} {unit}" if value < 9.995 else f"{value:.1f} {unit}"


def format_duration(seconds: float) -> str:
    """Three significant digits with the unit that fits: `3.1 µs`, `1.2 ms`, `14 s`, `2 min 5 s`."""
    if not 0 <= seconds < float("inf"):
        return "–"
    if seconds >= 119.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    seconds = _three(seconds)
    if seconds < 1e-3:
        return f"{_digits(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds)} s"


def format_bandwidth(bytes_per_second: float) -> str:
    """GB/s (10^9 bytes) with three significant digits: `0.912`, `45.4`, `358`."""
    return _digits(bytes_per_second / GIGA) + " GB/s"


def format_figure(value: float, unit: str) -> str:
    """Of a base unit (`FigureUnit`), with three significant digits: `45.4 GB/s`, `312 TFLOP/s`."""
    if unit == "s":
        return format_duration(value)
    for base, least, scale, name in _RATES:
        if unit == base and value >= least:
            return f"{_digits(value / scale)} {name}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


_RATES = (
    ("B/s", 1e8, GIGA, "GB/s"),
    ("B/s", 0.0, 1e6, "MB/s"),
    ("FLOP/s", 1e11, 1e12, "TFLOP/s"),
    ("FLOP/s", 0.0, GIGA, "GFLOP/s"),
    ("1/s", 1e11, 1e12, "T/s"),
    ("1/s", 1e6, 1e6, "M/s"),
    ("1/s", 0.0, 1.0, "/s"),
)
"""(base unit, from which value, what it is divided by, name)."""


def _digits(value: float) -> str:
    value = _three(value)
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _three(value: float) -> float:
    """Rounded to three significant digits before the unit is chosen: 999.7 µs is 1.00 ms."""
    return float(f"{value:.3g}")


def counted(number: int, noun: str) -> str:
    """`1 node`, `1,200 nodes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(values: Sequence[object], most: int = 4) -> str:
    """`a, b and 3 more`: the first of them, and how many are left."""
    more = len(values) - most
    return ", ".join(map(str, values[:most])) + (f" and {more} more" if more > 0 else "")


def spans(numbers: Iterable[int], most: int = 6) -> str:
    """`0-7, 10 and 3 more`: whole numbers as the first ranges of them, and how many are left."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:most]]
    left = sum(map(len, runs[most:]))
    return ", ".join(told) + (f" and {left} more" if left else "")
