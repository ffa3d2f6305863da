"""The numbers of NVIDIA's driver errors (Xid): what each means for a GPU, and for a job on it.

From NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, read
2026-11): what it answers with a reset or a restart is grave; what it puts down to the program is not
the GPU's fault; the rest is worth a look. The one table of both `check`, which judges GPUs by it, and
`diagnose`, which finds the cause of a job's end by it.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "lost", "memory", "gsp", "link", "failed", "watch", "address", "ended", "program", "note"
]
"""The first five end the job that uses the GPU, by the GPU's fault. `watch`: worth a look. `address`:
a program used memory out of range. `ended`: what follows a program's end or another number. `program`:
other errors of programs, of copy, video and JPEG engines. `note`: the driver mended something."""
Severity = Literal["fail", "warn", "ignore"]


@dataclass(frozen=True, slots=True)
class Xid:
    """What one number says."""

    kind: Kind
    severity: Severity
    """For the GPU; `ignore`: nothing to do at it."""
    what: str
    fix: str = ""


RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset); if it comes back, replace it"
REPORT = "watch whether it comes back; then run dcgmi diag -r 3 and report it to the vendor"
LINK = "look at nvidia-smi nvlink -e, reset the GPU and all that it is linked to; else replace it"
_GSP = "reset the GPU; if it comes back, update driver and firmware"
_REBOOT = "restart the node (power off and on); if it comes back, reseat or replace the GPU"
_CONTAINED = "restart the program; reset the GPU when idle"

LINK_BY_TEXT = range(144, 151)
"""Errors of NVLink 5 whose text says whether they are fatal."""

XIDS: dict[int, Xid] = {
    46: Xid("failed", "fail", "GPU stopped processing", RESET),
    48: Xid("memory", "fail", "double-bit ECC error", RESET),
    54: Xid("failed", "fail", "auxiliary power is not connected", "check the GPU's power cable"),
    62: Xid("failed", "fail", "internal micro-controller halted", RESET),
    63: Xid("note", "ignore", "memory row remapped or page retired (GPU-005 tells if it waits)"),
    64: Xid("memory", "fail", "memory row could not be remapped", RESET),
    74: Xid("link", "fail", "NVLink error", LINK),
    79: Xid("lost", "fail", "GPU has fallen off the bus", _REBOOT),
    92: Xid("watch", "warn", "high rate of single-bit ECC errors", REPORT),
    94: Xid("memory", "warn", "contained memory error", _CONTAINED),
    95: Xid("memory", "fail", "uncontained memory error", RESET),
    109: Xid("failed", "fail", "context switch timed out", RESET),
    110: Xid("failed", "fail", "security fault", RESET),
    119: Xid("gsp", "fail", "GPU system processor (GSP) did not answer", _GSP),
    120: Xid("gsp", "fail", "GPU system processor (GSP) failed", _GSP),
    121: Xid("watch", "warn", "error on the link between CPU and GPU (C2C)", REPORT),
    136: Xid("link", "fail", "link training failed", LINK),
    140: Xid("memory", "fail", "unrecovered ECC error", RESET),
    143: Xid("failed", "fail", "GPU could not be initialised", RESET),
    155: Xid("link", "fail", "NVLink error, defined by software", LINK),
    156: Xid("watch", "warn", "a resource was retired", "reset the GPU when it is idle"),
    157: Xid("watch", "warn", "a resource could not be retired", REPORT),
    158: Xid("failed", "fail", "GPU timed out fatally", RESET),
    160: Xid("note", "ignore", "a memory channel was retired"),
    161: Xid("watch", "warn", "a memory channel could not be retired", REPORT),
}
_POWER = Xid("note", "ignore", "power smoothing was switched, or its parts wear out")
_PROGRAM = Xid("program", "ignore", "error of a program")

XIDS |= dict.fromkeys(range(162, 166), _POWER)
XIDS |= dict.fromkeys((13, 31), Xid("address", "ignore", "error of a program"))
# 154 only repeats what the driver recommends for another number.
XIDS |= dict.fromkeys((43, 45, 154), Xid("ended", "ignore", "error of a program"))
XIDS |= dict.fromkeys(
    (
        *(8, 11, 32, 37, 38, 39, 40, 41, 44, 60, *range(66, 73), 75, 76, 77, 80, 82, 83, 84, 85),
        *(86, 88, 89, *range(96, 108), *range(126, 136), 137, 139, 141),
    ),
    _PROGRAM,
)


def codes_of(kind: Kind) -> tuple[int, ...]:
    """The numbers of a kind, rising; of `link` also those whose text decides."""
    found = {code for code, xid in XIDS.items() if xid.kind == kind}
    return tuple(sorted(found | set(LINK_BY_TEXT) if kind == "link" else found))


def known_codes() -> tuple[int, ...]:
    """All numbers that the table or the text of the error decides."""
    return tuple(sorted({*XIDS, *LINK_BY_TEXT}))
