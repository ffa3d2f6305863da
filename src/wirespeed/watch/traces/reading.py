"""Traces of a job, read one after the other, each with its rank and the members of its groups."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirespeed.diagnose.flight_read import Dump
from wirespeed.diagnose.prefix import rank_in_name
from wirespeed.errors import InputError
from wirespeed.watch.calls import Call
from wirespeed.watch.traces.chakra import read_chakra
from wirespeed.watch.traces.files import TraceFile, find_traces
from wirespeed.watch.traces.kineto import read_kineto
from wirespeed.watch.traces.rank_trace import HIGHEST_RANK, RankTrace
from wirespeed.watch.traces.recorder import read_recorder

Progress = Callable[[str, int, int], None]
"""(file, its number from 0, how many): called before each is read."""
_NUMBER = re.compile(r"[^\d](\d{1,6})(?:\.json|\.gz|\.et|\.pkl)*$")


def calls_of(paths: Sequence[str]) -> Mapping[int, Sequence[Call]]:
    """Every rank's collectives, by begin: of files, folders and patterns.

    Execution traces of Chakra tell no times: their calls stand in order, and all begin at 0.
    Raises InputError where there is no trace, or one of them cannot be read.
    """
    found: dict[int, list[Call]] = {}
    traces = Traces(find_traces(paths)[0])
    for trace in traces:
        if trace.ungrouped:
            raise InputError(
                f"{trace.source} does not tell the groups of its collectives, and the job has "
                f"{len(trace.groups)}",
                expected="traces of a job on NCCL, or of one process group; or dumps of the flight "
                "recorder, which tell the groups of gloo, too",
                next="TORCH_FR_BUFFER_SIZE=2000 in the job's environment, and dump at its end",
            )
        calls = [_since_1970(call, trace.zero_s) for call in trace.calls]
        # Of a rank that has several kinds of traces the one with more calls tells the sequence.
        if len(calls) > len(found.get(trace.rank, ())):
            found[trace.rank] = calls
    if traces.unread and not found:
        raise traces.unread[0]
    return found


def _since_1970(call: Call, zero_s: float) -> Call:
    if not zero_s:
        return call
    end = None if call.end_s is None else call.end_s + zero_s
    return replace(call, begin_s=call.begin_s + zero_s, end_s=end)


@dataclass(slots=True)
class Traces:
    """Iterated once; only one trace is in memory at a time. The rest is known at the end."""

    files: Sequence[TraceFile]
    progress: Progress = lambda name, number, all: None
    dumps: list[Dump] = field(default_factory=list)
    unread: list[InputError] = field(default_factory=list)
    """Of files that cannot be read, where others can."""
    by_order: list[str] = field(default_factory=list)
    """Files whose rank nothing tells."""

    def __iter__(self) -> Iterator[RankTrace]:
        for number, file in enumerate(self.files):
            self.progress(file.source.name, number, len(self.files))
            try:
                trace = self._read(file, number)
            except InputError as error:
                if len(self.files) == 1:
                    raise
                self.unread.append(error)
                continue
            self._name_rank(trace, number)
            _name_groups(trace)
            yield trace

    def _read(self, file: TraceFile, number: int) -> RankTrace:
        if file.kind == "kineto":
            return read_kineto(file.source)
        if file.kind == "chakra":
            return read_chakra(file.source)
        trace, dump = read_recorder(file.source, number)
        self.dumps.append(dump)
        return trace

    def _name_rank(self, trace: RankTrace, number: int) -> None:
        """From its content, else from its file's name, else its number in the order."""
        if trace.rank < 0:
            named = rank_in_name(trace.source)
            named = _number_in(trace.source) if named is None else named
            trace.rank = named if named <= HIGHEST_RANK else -1
        if trace.rank < 0:
            trace.rank = number
            self.by_order.append(trace.source)


def _number_in(name: str) -> int:
    """The number that its name ends with, as in `nccl_trace_rank_3` or `et_3.json`; -1: none."""
    match = _NUMBER.search(name)
    return int(match[1]) if match else -1


def _name_groups(trace: RankTrace) -> None:
    """Let each call know its rank and the members of its group, as far as the trace tells.

    gloo's calls tell no group: it is known where all groups of the job are the same ranks.
    """
    several = {name: ranks for name, ranks in trace.groups.items() if len(ranks) > 1}
    alike = set(several.values())
    only = next(iter(several)) if len(several) == 1 else ""
    for call in trace.calls:
        name = call.group_name or only
        members = call.group or trace.groups.get(name, ())
        if not members and not name and len(alike) == 1:
            members = next(iter(alike))
        trace.ungrouped |= not members and len(alike) > 1
        # Call is frozen for its users; this one nobody has seen yet.
        object.__setattr__(call, "rank", trace.rank)
        object.__setattr__(call, "group_name", name)
        object.__setattr__(call, "group", members)
