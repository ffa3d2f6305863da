"""What the numbers of NVIDIA's driver errors mean for a GPU: how grave, and what to do.

From NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html):
what it answers with a reset or a restart is grave; what it puts down to the program is not the
GPU's fault; the rest is worth a look.
"""

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Meaning", "meaning_of"]

Severity = Literal["fail", "warn", "ignore"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one number says about a GPU."""

    severity: Severity
    """`ignore`: nothing to do at the GPU, such as the error of a program."""
    what: str
    fix: str = ""


_RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset); if it comes back, replace it"
_REPORT = "watch whether it comes back; then run dcgmi diag -r 3 and report it to the vendor"
_GSP = "reset the GPU; if it comes back, update driver and firmware"
_LINK = "look at nvidia-smi nvlink -e, reset the GPU and all that it is linked to; else replace it"
_REBOOT = "restart the node (power off and on); if it comes back, reseat or replace the GPU"

_NVLINK5 = range(144, 151)
"""Their text says whether the error is fatal."""
_KNOWN = {
    46: Meaning("fail", "GPU stopped processing", _RESET),
    48: Meaning("fail", "double-bit ECC error", _RESET),
    54: Meaning("fail", "auxiliary power is not connected", "check the GPU's power cable"),
    62: Meaning("fail", "internal micro-controller halted", _RESET),
    63: Meaning("ignore", "memory row remapped or page retired (GPU-005 tells if it waits)"),
    64: Meaning("fail", "memory row could not be remapped", _RESET),
    74: Meaning("fail", "NVLink error", _LINK),
    79: Meaning("fail", "GPU has fallen off the bus", _REBOOT),
    92: Meaning("warn", "high rate of single-bit ECC errors", _REPORT),
    94: Meaning("warn", "contained memory error", "restart the program; reset the GPU when idle"),
    95: Meaning("fail", "uncontained memory error", _RESET),
    109: Meaning("fail", "context switch timed out", _RESET),
    110: Meaning("fail", "security fault", _RESET),
    119: Meaning("fail", "GPU system processor (GSP) did not answer", _GSP),
    120: Meaning("fail", "GPU system processor (GSP) failed", _GSP),
    121: Meaning("warn", "error on the link between CPU and GPU (C2C)", _REPORT),
    136: Meaning("fail", "link training failed", _LINK),
    140: Meaning("fail", "unrecovered ECC error", _RESET),
    143: Meaning("fail", "GPU could not be initialised", _RESET),
    155: Meaning("fail", "NVLink error, defined by software", _LINK),
    156: Meaning("warn", "a resource was retired", "reset the GPU when it is idle"),
    157: Meaning("warn", "a resource could not be retired", _REPORT),
    158: Meaning("fail", "GPU timed out fatally", _RESET),
}
_PROGRAM = {8, 11, 13, 31, 32, 37, 38, 43, 44, 45, 60, 66, 67, 68, 69, 80, 82, 83, 84, 86, 106, 107}
_PROGRAM |= {39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 88, 89, 137, 139, 141, 154}
_PROGRAM |= {*range(96, 106), *range(126, 136)}
"""Exceptions, illegal accesses and ended channels of a program; copy, video and JPEG engines; and
154, which only repeats what the driver recommends for another number."""


def meaning_of(kind: str, code: int, text: str) -> Meaning:
    """The meaning of an `Xid` or `SXid` number, with what the driver wrote after it."""
    if kind == "SXid":
        return _of_switch(text)
    if code in _NVLINK5:
        what = "NVLink error" if _fatal(text) else "NVLink error, not fatal"
        return Meaning("fail" if _fatal(text) else "warn", what, _LINK)
    if code in _PROGRAM:
        return Meaning("ignore", "error of a program")
    fallback = Meaning("warn", "not among the numbers that wirespeed knows", _REPORT)
    return _KNOWN.get(code, fallback)


def _of_switch(text: str) -> Meaning:
    if _fatal(text):
        return Meaning("fail", "fatal NVSwitch error", "restart nvidia-fabricmanager and the node")
    return Meaning("warn", "NVSwitch error, not fatal", _REPORT)


def _fatal(text: str) -> bool:
    """`Fatal`, but neither `Non-fatal` nor `Nonfatal`."""
    return re.search(r"(?<!non)(?<!non-)\bfatal\b", text, re.IGNORECASE) is not None
