"""Which files are traces, and of which kind."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from wirespeed.diagnose.sources import Source, find_sources
from wirespeed.errors import InputError

Kind = Literal["kineto", "recorder", "chakra"]

_HEAD = 1 << 16
_MOST_FILES = 20_000
_KINDS = (
    "traces of torch.profiler (.json, .json.gz), dumps of the flight recorder (nccl_trace_rank_N) "
    "or Chakra's execution traces as JSON"
)
_KINETO = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
_LIST = re.compile(rb'\s*\[\s*\{[^{}]*"ph"\s*:')
_CHAKRA = re.compile(rb'"schema"\s*:\s*"[^"]*chakra|"nodes"\s*:\s*\[')
_PROTOBUF = re.compile(rb"[\x00-\x40]?\n[\x03-\x20]\d+\.\d+\.\d+-chakra")


@dataclass(frozen=True, slots=True)
class TraceFile:
    source: Source
    kind: Kind


def find_traces(paths: Sequence[str]) -> tuple[list[TraceFile], list[str]]:
    """The traces of files, folders and patterns; and the names of files there that are none.

    Raises InputError for a path that is not there or, named itself, no trace, and where there is none.
    """
    found, other = [], []
    for given in paths:
        named = list(_matching(given))
        for source in find_sources(named):
            kind = kind_of(source, named=source.name in named and len(named) == 1)
            if kind is None:
                other.append(source.name)
            else:
                found.append(TraceFile(source, kind))
            if len(found) > _MOST_FILES:
                raise InputError(
                    f"more than {_MOST_FILES} traces", expected="a file or two of each rank"
                )
    if not found:
        shown = ", ".join(other[:3]) + (", …" if len(other) > 3 else "")
        raise InputError(f"no trace among {len(other)} files ({shown})", expected=_KINDS, next=_HOW)
    return found, other


_HOW = "torch.profiler's export_chrome_trace, in the job, writes one file a rank"


def _matching(given: str) -> Iterable[str]:
    """The path itself, or what a pattern in quotes stands for."""
    path = Path(given)
    if given == "-" or path.exists() or not any(mark in given for mark in "*?["):
        return (given,)
    base = path.anchor or "."
    below = Path(base).glob(given.removeprefix(path.anchor))
    found = sorted(map(str, islice(below, _MOST_FILES + 1)))
    if not found:
        raise InputError(f"nothing matches {given}", expected=_KINDS)
    return found


def kind_of(source: Source, *, named: bool) -> Kind | None:
    """None: none of these. named: the user named just this file, so that none is an error."""
    try:
        head = b"".join(source.parts(_HEAD))
        if _is_kineto(head):  # which names groups, as dumps do
            return "kineto"
        if source.kind() == "dump":
            return "recorder"
    except InputError:
        if named:
            raise
        return None
    if _CHAKRA.search(head):
        return "chakra"
    if _PROTOBUF.match(head) or (source.name.endswith(".et") and head[:1] not in b"{["):
        raise InputError(
            f"{source.name} is an execution trace of Chakra in its protobuf form, which is not read",
            expected="the JSON that torch.profiler's ExecutionTraceObserver writes",
            next="give the JSON that it was converted from: chakra_converter's --input, or the "
            "--chakra-host-trace of chakra_trace_link",
        )
    if named:
        raise InputError(f"{source.name} {_seen(head)}", expected=_KINDS, next=_HOW)
    return None


def _is_kineto(head: bytes) -> bool:
    object_of = head.lstrip()[:1] == b"{" and any(key in head for key in _KINETO)
    return object_of or _LIST.match(head) is not None


def _seen(head: bytes) -> str:
    if not head.strip():
        return "is empty"
    return "is JSON of another kind" if head.lstrip()[:1] in (b"{", b"[") else "is no trace"
