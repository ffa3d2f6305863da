"""A trace of torch.profiler (kineto), reduced to what tells of steps and communication.

Names: `ProfilerStep#N` and `Optimizer.step#…` are torch's annotations (torch/profiler, torch/optim),
`enumerate(DataLoader)#…` the loader's, `gloo:all_reduce` runs on the backend's own thread,
`ncclDevKernel_…` on the GPU. Annotations are told of the GPU, too (`gpu_user_annotation`): it may be
several steps behind the host, and what it came to when is what counts. Kernels and
`record_param_comms` carry what ParamCommsUtils.hpp lists:
`Collective name`, `In msg nelems`, `dtype`, `Process Group Name`, `Process Group Ranks`, `Seq`.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Raw, Struct, json

from wirespeed.diagnose.sources import Source
from wirespeed.watch.calls import Call
from wirespeed.watch.traces.cover import Cover
from wirespeed.watch.traces.json_list import DAMAGE, JsonList
from wirespeed.watch.traces.naming import dtype_known, op_named, op_of_kernel, ranks_in
from wirespeed.watch.traces.rank_trace import (
    HIGHEST_RANK,
    MOST_CALLS,
    MOST_MARKS,
    Mark,
    RankTrace,
    count_of,
    elements_of,
)

_BACKENDS = ("gloo:", "ucc:", "mpi:")
"""Whose annotations span the collective itself; `nccl:` ones span its launch only."""
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_AUTOGRAD = "autograd::engine::evaluate_function: "
_SAVES = ("torch/serialization.py(", "torch/distributed/checkpoint/state_dict_saver.py(")
_COMMS = "record_param_comms"
_MOST_THREADS = 64
_LATEST_US, _LONGEST_US = 1e17, 1e13
"""Thousands of years since 1970, and months: events beyond are no times."""


class Event(Struct, gc=False):
    """One event ("Trace Event Format", Chrome project), as far as it is looked at."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    tid: int | str = ""
    ts: Annotated[float, Meta(ge=-_LATEST_US, le=_LATEST_US)] = 0.0
    """Begin, in microseconds since the trace's zero."""
    dur: Annotated[float, Meta(ge=0, le=_LONGEST_US)] = 0.0
    """Microseconds."""
    args: Raw = Raw(b"{}")


class Head(Struct):
    """What a trace tells of its job, beside the events."""

    distributedInfo: dict[str, Any] | None = None
    baseTimeNanoseconds: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    """The zero of the events' clock, ns since 1970."""
    host_name: str | None = None


def read_kineto(source: Source) -> RankTrace:
    """All that is kept of it. Raises InputError where it is no trace."""
    events = JsonList(source, "traceEvents", Event)
    reader = _Reader(RankTrace(source=source.name, kind="kineto"))
    for batch in events.batches():
        reader.take(batch)
    trace = reader.finished(_head(events.around))
    trace.cut, trace.skipped, trace.bytes = events.cut, events.skipped, events.bytes
    return trace


class _Reader:
    def __init__(self, trace: RankTrace) -> None:
        self.trace = trace
        self._root = ""
        self._issued: list[Call] = []
        """As the CPU recorded them; they count where there are no kernels."""
        self._threads: list[Call] = []
        self._kernels: list[Call] = []
        self._gpu = False
        self._by_thread: dict[int | str, Cover] = {}
        self._waits: set[int | str] = set()
        """Threads that communicate, whose own copies hide nothing."""
        self._by_kind = {"cpu_op": self._operator, "user_annotation": self._annotation}
        self._by_kind |= dict.fromkeys(_ON_GPU, self._kernel)
        self._by_kind["gpu_user_annotation"] = self._gpu_annotation
        self._gpu_begins: dict[int, float] = {}
        self._gpu_optimizers: list[Mark] = []
        self._gpu_end = 0.0
        """When the last kernel ended."""
        self._by_kind["python_function"] = self._python

    def take(self, batch: list[Event]) -> None:
        """Most are operators of torch, of which only when they ran is kept."""
        for event in [one for one in batch if one.name[:6] != "aten::"]:
            if (one := self._by_kind.get(event.cat)) is not None and event.ph == "X":
                begin = event.ts * 1e-6
                one(event, begin, begin + event.dur * 1e-6)
        if self._gpu:
            return
        ran: defaultdict[int | str, list[Event]] = defaultdict(list)
        for event in batch:
            if event.name[:6] == "aten::":
                ran[event.tid].append(event)
        for thread, own in ran.items():
            begins = np.array([one.ts for one in own]) * 1e-6
            ends = begins + np.array([one.dur for one in own]) * 1e-6
            cover = self._by_thread.get(thread, self.trace.compute)
            if cover is self.trace.compute and len(self._by_thread) < _MOST_THREADS:
                cover = self._by_thread[thread] = Cover()
            cover.extend(np.column_stack((begins, ends)))

    def _operator(self, event: Event, begin: float, end: float) -> None:
        name = event.name
        if name.startswith(_AUTOGRAD):
            self.trace.backward.add(begin, end)
            self._root = self._root or name
            if name == self._root:
                self._mark(self.trace.roots, begin, end)
        elif name == _COMMS:
            told = _told(event.args)
            op = op_named(str(told.get("Collective name", "")))
            if op not in ("", "wait", "init"):
                self._keep(self._issued, op, told, begin, end)

    def _annotation(self, event: Event, begin: float, end: float) -> None:
        name = event.name
        if name.startswith("ProfilerStep"):
            self._mark(self.trace.steps, begin, end, _number(name))
        elif name.startswith("Optimizer.step#"):
            self._mark(self.trace.optimizers, begin, end)
        elif name.startswith("enumerate(DataLoader)#"):
            self.trace.loading.add(begin, end)
        elif name.startswith(_BACKENDS):
            self._waits.add(event.tid)
            self._keep(self._threads, op_named(name), _told(event.args), begin, end)

    def _gpu_annotation(self, event: Event, begin: float, end: float) -> None:
        """When the GPU came to what the host did there, which may be several steps ahead of it."""
        name = event.name
        if name.startswith("ProfilerStep"):
            number = _number(name)
            if len(self._gpu_begins) < MOST_MARKS and number >= 0:
                self._gpu_begins[number] = min(begin, self._gpu_begins.get(number, begin))
        elif name.startswith("Optimizer.step#"):
            self._mark(self._gpu_optimizers, begin, end)

    def _by_gpu(self) -> None:
        """Steps as the GPU had them: each up to the next one's begin, the last to its last kernel."""
        if len(self._gpu_begins) > 1:
            numbers = sorted(self._gpu_begins)
            begins = [self._gpu_begins[one] for one in numbers]
            ends = [*begins[1:], max(self._gpu_end, begins[-1])]
            known = [b - a == 1 for a, b in pairwise(numbers)] + [True]  # else its end is not told
            told = zip(begins, ends, numbers, known, strict=True)
            self.trace.steps = [Mark(begin_s=a, end_s=b, number=n) for a, b, n, ok in told if ok]
        if len(self._gpu_optimizers) > 1:
            self.trace.optimizers = self._gpu_optimizers

    def _kernel(self, event: Event, begin: float, end: float) -> None:
        self._gpu_end = max(self._gpu_end, end)
        op = op_of_kernel(event.name)
        if op is None:
            if event.name.startswith("Memcpy PtoP"):  # from GPU to GPU: it computes nothing
                return
            if not self._gpu:  # what the CPU does hides nothing then
                self._gpu = True
                self._by_thread.clear()
            self.trace.compute.add(begin, end)
            return
        told = _told(event.args)
        op = op_named(str(told["Collective name"])) if told.get("Collective name") else op
        self._keep(self._kernels, op, told, begin, end)

    def _python(self, event: Event, begin: float, end: float) -> None:
        if event.name.endswith(": save") and event.name.startswith(_SAVES):
            self.trace.saving.add(begin, end)

    def _mark(self, marks: list[Mark], begin: float, end: float, number: int = -1) -> None:
        if len(marks) < MOST_MARKS:
            marks.append(Mark(begin_s=begin, end_s=end, number=number))

    def _keep(
        self, calls: list[Call], op: str, told: dict[str, Any], begin: float, end: float
    ) -> None:
        if len(calls) >= MOST_CALLS:
            self.trace.more_calls += 1
            return
        dtype, width = dtype_known(_text(told.get("dtype")) or _input_type(told))
        name = _text(told.get("Process Group Name"))
        peer = told.get("Dst Rank" if op == "send" else "Src Rank", -1)
        calls.append(
            Call(
                rank=-1,
                op=op,
                group=ranks_in(_text(told.get("Process Group Ranks"))),
                group_name=name,
                seq=count_of(told.get("Seq"), -1),
                size_bytes=width
                * count_of(told.get("In msg nelems"), elements_of(told.get("Input Dims"))),
                dtype=dtype if width else "",
                begin_s=begin,
                end_s=end,
                peer=count_of(peer, -1) if op in ("send", "recv") else -1,
            )
        )

    def finished(self, head: Head) -> RankTrace:
        trace = self.trace
        trace.zero_s = (head.baseTimeNanoseconds or 0) * 1e-9
        trace.host = (head.host_name or "")[:200]
        job = head.distributedInfo or {}
        rank = count_of(job.get("rank"), -1)
        trace.rank = rank if rank <= HIGHEST_RANK else -1
        trace.world_size = count_of(job.get("world_size"), 0)
        for name, one in _groups(job.get("pg_config")):
            trace.described[name] = str(one.get("pg_desc", ""))[:200]
            if ranks := _ranks(one.get("ranks")):
                trace.groups[name] = ranks
        for thread, cover in self._by_thread.items():
            if thread not in self._waits:
                trace.compute.extend(cover.parts())
        trace.on_gpu = self._gpu or bool(self._kernels)
        self._by_gpu()
        trace.launches_only = not (self._kernels or self._threads)
        calls = self._kernels or self._threads or self._issued
        trace.calls = sorted(calls, key=lambda one: one.begin_s)
        return trace


def _number(name: str) -> int:
    """7 of `ProfilerStep#7`; -1: none."""
    number = name.partition("#")[2]
    return int(number) if number.isdecimal() and len(number) < 16 else -1


def _head(around: list[bytes]) -> Head:
    """From before the events, or after them."""
    head = Head()
    for text in around:
        try:
            told = json.decode(text, type=Head)
        except DAMAGE:
            continue
        for name in Head.__struct_fields__:
            if getattr(head, name) is None:
                setattr(head, name, getattr(told, name))
    return head


def _told(args: Raw) -> dict[str, Any]:
    try:
        told = json.decode(args)
    except DAMAGE:
        return {}
    return told if isinstance(told, dict) else {}


def _text(value: object) -> str:
    return value[:100_000] if isinstance(value, str) else ""


def _input_type(told: dict[str, Any]) -> str:
    types = told.get("Input type")
    return _text(types[0]) if isinstance(types, list) and types else ""


def _groups(told: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each of `pg_config`, with its name."""
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict):
            yield str(one.get("pg_name", ""))[:200], one


def _ranks(told: object) -> tuple[int, ...]:
    """Empty where it does not list them."""
    ranks = told if isinstance(told, list) else []
    known = tuple(rank for rank in ranks if 0 <= count_of(rank, -1) <= HIGHEST_RANK)
    return known if len(known) == len(ranks) else ()
