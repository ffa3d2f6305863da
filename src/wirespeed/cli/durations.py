"""Lengths of time as people write them: `90s`, `30m`, `1h30m`."""

import re

from wirespeed.errors import UsageError

__all__ = ["parse_duration"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_LONGEST_S = 30 * 24 * 3600.0


def parse_duration(text: str, option: str) -> float:
    """Seconds; UsageError, which names the option, for what is no time above 0 with a unit."""
    words = text.strip().lower()
    parts = _PART.findall(words)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != words or not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            f"{option} {text!r} is no length of time",
            expected="a number with s, m or h, such as 90s, 30m or 1h30m; at most 30 days",
        )
    return seconds
