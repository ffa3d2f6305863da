"""Which operation a table of nccl-tests measured, and over how many ranks, where it does not say."""

import math
import re
import shlex
from dataclasses import dataclass

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import BusFactor
from wirespeed.errors import InputError, UsageError
from wirespeed.model.records import Choice
from wirespeed.runs.importers.table import Row, Side, Table

STDIN = "standard input"
"""The name of what was piped in."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What tells one operation from another in a table."""

    name: str
    factor: BusFactor
    reduces: bool = False
    rooted: bool = False
    program: str = ""
    """The nccl-tests program, without `_perf`."""


OPERATIONS = {
    one.name: Operation(one.name, one.bus_factor, one.reduces, one.rooted, one.program)
    for one in CATALOGUE.values()
    if one.program
} | {"hypercube": Operation("hypercube", BusFactor(1, shared=True), program="hypercube")}

_BY_LETTERS = {name.replace("_", ""): name for name in OPERATIONS}
_NAME = re.compile(
    r"(?<![a-z])("
    + "|".join("_?".join(name.split("_")) for name in sorted(OPERATIONS, key=len, reverse=True))
    + r")(?![a-z])"
)
_CLEAR_OF_ONE = 1.05
_LARGEST_WORLD = 1_000_000


def argument(name: str) -> str:
    """The file as it is written in a command."""
    return "-" if name == STDIN else shlex.quote(name)


def operation_in(text: str) -> str:
    """The one operation named in `text` (a program, a path, an option), or an empty text."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower())
    found = {_BY_LETTERS[match.replace("_", "")] for match in _NAME.findall(plain)}
    return found.pop() if len(found) == 1 else ""


def choose_operation(table: Table, *, option: str, name: str) -> tuple[str, Choice]:
    """The operation and why: the table itself, `--op`, the file's name, then busbw over algbw.

    InputError where none of them tells; UsageError where `--op` contradicts the table.
    """
    told = operation_in(table.program)
    if told and option and told != option:
        raise UsageError(
            f"--op {option}, but {name} was written by {table.program}",
            expected=f"--op {told}, or no --op",
        )
    if told:
        return told, Choice("operation", told, f"the file names {table.program}")
    if option:
        return option, Choice("operation", option, "--op")
    if named := operation_in(name.rpartition("/")[2]):
        return named, Choice("operation", named, f"the file's name, {name.rpartition('/')[2]}")
    return _by_ratio(table, name)


def _by_ratio(table: Table, name: str) -> tuple[str, Choice]:
    clearest = max(table.sides(), key=lambda pair: pair[1].busbw, default=None)
    fitting: list[str] = []
    if clearest and clearest[1].algbw > 0 and clearest[1].busbw >= 1e9:
        fitting = [op.name for op in OPERATIONS.values() if _fits(op, table, *clearest)]
    if len(fitting) != 1:
        could = f"; its figures fit {', '.join(fitting)}" if fitting else ""
        raise InputError(
            f"{name}: the table does not tell which operation was measured{could}",
            expected="--op with one of " + ", ".join(OPERATIONS),
            next=f"wirespeed runs import {argument(name)} --op {(fitting or ['all_reduce'])[0]}",
        )
    ratio = clearest[1].busbw / clearest[1].algbw if clearest else 0.0
    reason = f"busbw is {ratio:.3f} × algbw, as in no other operation of this kind"
    return fitting[0], Choice("operation", fitting[0], reason)


def _fits(operation: Operation, table: Table, row: Row, side: Side) -> bool:
    ratio = side.busbw / side.algbw
    if operation.name in ("hypercube", "all_to_all_v"):  # rare; never guessed
        return False
    if row.root is not None and operation.rooted != (row.root >= 0):
        return False
    # send_recv prints a redop that it does not use.
    if row.redop and operation.reduces != (row.redop != "none") and operation.name != "send_recv":
        return False
    if table.ranks < 2:
        return operation.name == "all_reduce" and ratio > _CLEAR_OF_ONE
    return math.isclose(ratio, operation.factor(table.ranks), rel_tol=0.01)


def choose_ranks(table: Table, operation: str, *, option: int) -> tuple[int, Choice | None]:
    """Ranks of one group: as listed, else `--ranks`, else the one number that all rows fit.

    Zero when nothing tells.
    """
    if table.ranks:
        return table.ranks, None
    if option:
        return option, Choice("ranks", str(option), "--ranks; the file lists not all devices")
    fitting = _fitting_ranks(table, OPERATIONS[operation])
    if fitting.start + 1 == fitting.stop:
        reason = "the one number of ranks that fits busbw over algbw in every row"
        return fitting.start, Choice("ranks", str(fitting.start), reason)
    return 0, None


def _fitting_ranks(table: Table, operation: Operation) -> range:
    """The numbers of ranks for which every printed busbw is the rounded one."""
    whole = operation.factor.times
    if not operation.factor.shared:
        return range(0)
    low, high = 0.0, whole
    for row, side in table.sides():
        if side.busbw > 0 and row.size > 0:
            time = side.time
            low = max(low, (side.busbw - side.busbw_step) * (time - side.time_step) / row.size)
            high = min(high, (side.busbw + side.busbw_step) * (time + side.time_step) / row.size)
    # factor = whole × (n-1)/n, so n = whole / (whole - factor)
    if low >= whole or high >= whole or low > high:
        return range(0)
    first, last = math.ceil(whole / (whole - low)), math.floor(whole / (whole - high))
    return range(max(first, 2), min(last, _LARGEST_WORLD) + 1)
