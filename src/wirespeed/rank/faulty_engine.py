"""Faults acted out on purpose, so that anybody can see each check catch what it is for.

`wirespeed check --inject KIND:rank=R[,at=OPERATION][,after=N][,every=M]` hands these to the ranks.
Process faults strike when rank R begins its N-th operation of that name (or of any); data faults
change the data of each such operation, or after N of them of every M-th.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Collective
from wirespeed.collectives.engines import Call, Engine, Group, Handle, Issue
from wirespeed.collectives.oracle import bits
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    import torch


DATA_FAULTS = {
    "swap": "two chunks of the output change places",
    "last": "the last element is not written",
    "root": "another root than the one asked for",
    "stale": "the output keeps what it held before",
    "flip": "one bit of the output flips",
    "max": "the maximum in place of the sum",
    "twice": "one rank contributes twice",
    "nowait": "the barrier does not wait",
}

PROCESS_FAULTS = {
    "kill": "the process is killed by signal 9",
    "stop": "the process is stopped (SIGSTOP)",
    "raise": "the process raises an exception",
    "other": "the process calls another collective than the rest",
    "absent": "the process never starts",
    "abort": "the process ends by SIGABRT after its results are written",
    "clock": "the node's clock is 2 s ahead, as the other nodes see it",
}
CALL_FAULTS = {
    "stall": "the process is paused for 0.3 s when a call begins",
}
"""Within calls, as data faults; `after` and `every` count calls."""
TRAINING_FAULTS = {
    "nan": "the loss of that rank is no number",
    "twice": "that rank's gradient of one parameter counts twice",
}
"""For `train`, beside kill, stop, raise, absent and abort; `after` counts turns, of nan steps."""
COMPUTE_FAULTS = {
    "mantissa": "two mantissa bits of one element of a matrix product flip",
    "lane": "every sixteenth column of a matrix product has its lowest bit stuck",
    "rare": "one result in a million of matrix products has a flipped bit",
    "slow": "the times of the device are told a twentieth longer",
}
"""Of the rank's GPU, or of that core of its node which has the rank's place among the node's ranks;
`after` and `every` count products (rank/compute/faults.py)."""
CLOCK_SHIFT_S = 2.0
STALL_S = 0.3


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    rank: int
    at: str = ""
    """The operation that it strikes; empty: any."""
    after: int = 0
    """How many such operations (of data faults: calls) go well before it strikes."""
    every: int = 1
    """Of data faults and stalls: after those, it strikes every so many calls."""

    @staticmethod
    def parse(text: str) -> "Fault":
        """From `flip:rank=1,at=all_reduce,after=3`; UsageError with the known kinds otherwise."""
        kind, _, rest = text.partition(":")
        options = dict(part.partition("=")[::2] for part in rest.split(",") if part)
        known = {
            **DATA_FAULTS,
            **PROCESS_FAULTS,
            **CALL_FAULTS,
            **TRAINING_FAULTS,
            **COMPUTE_FAULTS,
        }
        rank, after = options.pop("rank", "1"), options.pop("after", "0")
        at, every = options.pop("at", ""), options.pop("every", "1")
        numbers = rank.isdecimal() and after.isdecimal() and every.isdecimal() and int(every) > 0
        if kind not in known or options or not numbers or at not in ("", *CATALOGUE):
            raise UsageError(
                f"cannot inject {text!r}",
                expected="KIND:rank=R[,at=OPERATION][,after=N][,every=M] with KIND one of "
                + ", ".join(known),
            )
        return Fault(kind, int(rank), at, int(after), int(every))


def strike(fault: Fault) -> None:
    """Act out a process fault in this process."""
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind == "raise":
        raise RuntimeError("injected fault: this rank raises on purpose")


def _pause() -> None:
    """Stop this process, as a hypervisor or a cgroup may; another one wakes it up."""
    wake = "import os,sys,time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 18)"
    words = [sys.executable, "-I", "-S", "-c", wake, str(os.getpid()), str(STALL_S)]
    with subprocess.Popen(words):
        os.kill(os.getpid(), signal.SIGSTOP)


def applies(kind: str, collective: Collective, redop: str) -> bool:
    """Whether a data fault can be acted out in that operation at all."""
    if kind in CALL_FAULTS:
        return True
    if kind == "nowait":
        return not collective.has_data
    if not collective.has_data:
        return False
    if kind == "root":
        return collective.rooted
    if kind == "max":
        return collective.reduces and redop in ("sum", "prod", "avg")
    if kind == "twice":
        return collective.reduces and redop in ("sum", "prod")
    return True


class FaultyEngine:
    """An engine whose data go wrong in one known way on one rank (or on all, where it must)."""

    def __init__(self, inner: Engine, fault: Fault, global_rank: int) -> None:
        self._inner, self._fault = inner, fault
        self._mine = global_rank == fault.rank
        self._calls = 0
        self.name, self.backend, self.device = inner.name, inner.backend, inner.device
        self.in_place_only = inner.in_place_only

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        return self._inner.why_not(collective, dtype, redop, in_place)

    def ulps(self, redop: str, ranks: int) -> int:
        return self._inner.ulps(redop, ranks)

    def group(self, members: list[tuple[int, ...]]) -> Group | None:
        return self._inner.group(members)

    def sync_point(self, group: Group) -> Callable[[], object]:
        return self._inner.sync_point(group)

    def close(self) -> None:
        self._inner.close()

    def bind(self, call: Call) -> Issue:
        fault, name = self._fault, call.collective.name
        if fault.at not in ("", name) or not applies(fault.kind, call.collective, call.redop):
            return self._inner.bind(call)
        if fault.kind == "nowait":
            return lambda: None
        if fault.kind == "root":
            geometry = call.geometry
            other = replace(geometry, root=(geometry.root + 1) % geometry.ranks)
            return self._with_other_root(call, replace(call, geometry=other))
        if fault.kind == "max":
            return self._inner.bind(replace(call, redop="max"))
        return self._corrupted(call) if self._mine else self._inner.bind(call)

    def _with_other_root(self, asked: Call, called: Call) -> Issue:
        """The library takes another root: buffers that only the real root has are made up."""

        def at_least(tensor: "torch.Tensor", count: int) -> "torch.Tensor":
            return tensor if tensor.numel() >= count else tensor.new_zeros(count)

        given = at_least(asked.input, called.collective.input_count(called.geometry))
        output = at_least(asked.output, called.collective.output_count(called.geometry))
        return self._inner.bind(replace(called, input=given, output=output))

    def _corrupted(self, call: Call) -> Issue:
        blocking = self._inner.bind(replace(call, blocking=True))
        change = _CHANGES[self._fault.kind]
        in_place_only = call.collective.name in self.in_place_only

        def issue() -> Handle | None:
            if self._due():
                change(call, blocking, in_place_only)
            else:
                blocking()
            return None if call.blocking else _OVER

        return issue

    def _due(self) -> bool:
        self._calls += 1
        late = self._calls - self._fault.after
        return late > 0 and late % self._fault.every == 0


class _Over:
    """A faulty operation is never really asynchronous: it is over when it was issued."""

    def wait(self) -> None:
        return None


_OVER = _Over()
Change = Callable[[Call, Issue, bool], None]


def _swap(call: Call, run: Issue, _: bool) -> None:
    """The first two chunks of the layout if they are of one size, else the halves."""
    run()
    chunks = call.collective.layout(call.geometry)[:2]
    length, second = call.output.numel() // 2, call.output.numel() // 2
    if len(chunks) == 2 and chunks[0].length == chunks[1].length:
        length, second = chunks[0].length, chunks[1].start
    first = call.output[:length].clone()
    call.output[:length] = call.output[second : second + length]
    call.output[second : second + length] = first


def _last(call: Call, run: Issue, _: bool) -> None:
    before = call.output[-1:].clone()
    run()
    call.output[-1:] = before


def _stale(call: Call, run: Issue, _: bool) -> None:
    before = call.output.clone()
    run()
    call.output.copy_(before)


def _flip(call: Call, run: Issue, _: bool) -> None:
    run()
    bits(call.output)[call.output.numel() // 3 :][:1].bitwise_xor_(1)


def _twice(call: Call, run: Issue, in_place_only: bool) -> None:
    at_root = not call.collective.rooted or call.geometry.rank == call.geometry.root
    mine = call.output if in_place_only and at_root else call.input
    mine.mul_(2 if call.redop == "sum" else mine.clone())
    run()


def _stall(_: Call, run: Issue, __: bool) -> None:
    _pause()
    run()


_CHANGES: dict[str, Change] = {
    "stall": _stall,
    "swap": _swap,
    "last": _last,
    "stale": _stale,
    "flip": _flip,
    "twice": _twice,
}
