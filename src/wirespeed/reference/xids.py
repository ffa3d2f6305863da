"""The numbers of NVIDIA's driver errors (Xid): what each means for a GPU, and for a job on it.

From NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, read
2026-11): what it answers with a reset or a restart is grave; what it puts down to the program is not
the GPU's fault; the rest is worth a look. The one table of both `check`, which judges GPUs by it, and
`diagnose`, which finds the cause of a job's end by it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import convert

from wirespeed.reference.figures import rows_of

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


def _read() -> Iterator[tuple[int, Xid]]:
    """By number, from data/xids.csv, whose first column has numbers and ranges of them."""
    for row in rows_of("xids.csv"):
        codes = row.pop("codes").split()
        xid = convert(row, Xid)
        for first, _, last in (code.partition("-") for code in codes):
            yield from ((code, xid) for code in range(int(first), int(last or first) + 1))


LINK_BY_TEXT = range(144, 151)
"""Errors of NVLink 5 whose text says whether they are fatal."""
XIDS = dict(_read())
LINK, REPORT = XIDS[74].fix, XIDS[92].fix
"""What is to be done about a link, and about what may come back."""
