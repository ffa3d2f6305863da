"""How grave a driver error is for a GPU, and what to do: by its number, or by what its text says."""

import re
from dataclasses import dataclass

from wirespeed.reference.xids import LINK, LINK_BY_TEXT, REPORT, XIDS, Severity

__all__ = ["Meaning", "meaning_of"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one error says about a GPU."""

    severity: Severity
    """`ignore`: nothing to do at the GPU, such as the error of a program."""
    what: str
    fix: str = ""


def meaning_of(kind: str, code: int, text: str) -> Meaning:
    """The meaning of an `Xid` or `SXid` number, with what the driver wrote after it."""
    if kind == "SXid":
        return _of_switch(text)
    if code in LINK_BY_TEXT:
        what = "NVLink error" if _fatal(text) else "NVLink error, not fatal"
        return Meaning("fail" if _fatal(text) else "warn", what, LINK)
    known = XIDS.get(code)
    if known is None:
        return Meaning("warn", "not among the numbers that wirespeed knows", REPORT)
    return Meaning(known.severity, known.what, known.fix)


def _of_switch(text: str) -> Meaning:
    if _fatal(text):
        return Meaning("fail", "fatal NVSwitch error", "restart nvidia-fabricmanager and the node")
    return Meaning("warn", "NVSwitch error, not fatal", REPORT)


def _fatal(text: str) -> bool:
    """`Fatal`, but neither `Non-fatal` nor `Nonfatal`."""
    return re.search(r"(?<!non)(?<!non-)\bfatal\b", text, re.IGNORECASE) is not None
