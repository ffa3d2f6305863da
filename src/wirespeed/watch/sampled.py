"""Steps that were sampled in full: their timeline, and the collectives that they have.

An agent samples one step in ten seconds: what the rank did when, and its flight recorder's entries of
that step.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.watch_records import Traffic
from wirespeed.training.trace import Passage, Span, align, chrome_trace, on_one_clock
from wirespeed.watch.calls import Call

_MOST_STEPS = 64
_MOST_RANKS = 1024
_MOST_MEMBERS = 64
"""Of a group that an agent tells; a list of so many may be cut."""
_Name = Annotated[str, Meta(max_length=200)]
_Micros = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Gradients = Annotated[list[Annotated[int, Meta(ge=0, le=1 << 48)]], Meta(max_length=10_000)]
_BYTES = {"Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Byte": 1}
_BYTES |= {"Char": 1, "Bool": 1, "Short": 2}
_DTYPES = {"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16"}
_DTYPES |= {"Long": "int64", "Int": "int32", "Byte": "uint8", "Char": "int8", "Bool": "bool"}
_OPS = {name: op for op, one in CATALOGUE.items() for name in (*one.recorded, op)}


class _Kind(Struct, array_like=True, frozen=True):
    """What entries of the flight recorder have in common."""

    group: _Name
    description: _Name
    members: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=_MOST_MEMBERS)]
    name: _Name
    sizes: Annotated[list[list[Annotated[int, Meta(ge=0, le=1 << 48)]]], Meta(max_length=8)]
    dtypes: Annotated[list[_Name], Meta(max_length=4)]

    @property
    def title(self) -> str:
        named = self.description not in ("", "undefined")
        return f"{self.description} ({self.group})" if named else f"group {self.group}"


class _Told(Struct, array_like=True, frozen=True):
    """One entry of the flight recorder."""

    kind: Annotated[int, Meta(ge=0)]
    number: int
    at: _Micros


class _Sample(Struct, frozen=True):
    """x: phase, begin and end in µs; g: kinds of collectives; f: collectives."""

    r: Annotated[int, Meta(ge=0, lt=_MOST_RANKS)]
    s: Annotated[int, Meta(ge=0)]
    t: Annotated[float, Meta(ge=0, le=1e12)]
    x: Annotated[list[tuple[_Name, _Micros, _Micros]], Meta(max_length=400)]
    f: Annotated[list[_Told], Meta(max_length=400)]
    g: Annotated[list[_Kind], Meta(max_length=400)] = []
    of: int = 0
    """How many collectives the step had."""
    w: Annotated[list[_Micros], Meta(max_length=400)] = []
    """On GPUs what each wait took there, in order; `x` has when the host handed it in."""

    @property
    def calls(self) -> list[tuple[_Kind, _Told]]:
        return [(self.g[one.kind], one) for one in self.f if one.kind < len(self.g)]

    @property
    def waits(self) -> list[tuple[float, float]]:
        """End of each wait, in order, and what it took; both in µs."""
        found = sorted((begin, end) for phase, begin, end in self.x if phase in _WAITS)
        took = self.w if len(self.w) == len(found) else [end - begin for begin, end in found]
        return [(end, each) for (_, end), each in zip(found, took, strict=True)]


_WAITS = ("wait", "sync")
"""Phases of the lane of communication; others are of the step."""


class SampledSteps:
    """The newest sampled steps of a job, by step and rank."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[int, _Sample]] = {}
        self.gradients: tuple[int, ...] = ()
        """Bytes of each gradient, in the order of the optimizer's parameters."""

    def take(self, message: Mapping[str, Any]) -> None:
        """One message of kind `sp` or `g`; others, and malformed ones, are passed over."""
        try:
            if message.get("k") == "g":
                self.gradients = tuple(msgspec.convert(message.get("l"), _Gradients))
            if message.get("k") != "sp":
                return
            sample = msgspec.convert(message, _Sample)
        except msgspec.ValidationError:
            return
        self._steps.setdefault(sample.s, {})[sample.r] = sample
        if len(self._steps) > _MOST_STEPS:
            del self._steps[min(self._steps)]

    def traffic(self) -> tuple[Traffic, ...]:
        """Mean of the sampled steps, each by the rank that waited least, by group and operation."""
        found: dict[tuple[str, int, str], list[int]] = defaultdict(list)
        exposed: dict[tuple[str, int, str], float] = defaultdict(float)
        for ranks in self._steps.values():
            last = min(ranks.values(), key=lambda one: sum(took for _, took in one.waits))
            for one, waited_s in _exposed(last):
                kind = one.title, len(one.members), _op(one.name)
                found[kind].append(_bytes(one))
                exposed[kind] += waited_s
        known, steps = sum(exposed.values()) > 0, len(self._steps)
        return tuple(
            Traffic(
                group=kind[0],
                ranks=kind[1],
                op=kind[2],
                calls=len(sizes) / steps,
                bytes_per_step=sum(sizes) / steps,
                exposed=exposed[kind] / steps if known else None,
            )
            for kind, sizes in found.items()
        )

    def files(self, hosts: Mapping[int, str]) -> dict[str, str]:
        """For the run folder: the timeline of the newest step that most ranks have, and all calls."""
        if not self._steps:
            return {}
        most = max(map(len, self._steps.values()))
        step = max(step for step, ranks in self._steps.items() if len(ranks) == most)
        size = max(self._steps[step]) + 1
        told = [hosts.get(rank, "") for rank in range(size)]
        text = chrome_trace(_spans(self._steps[step]), hosts=told, about={"step": step})
        calls = [
            call for ranks in self._steps.values() for one in ranks.values() for call in _calls(one)
        ]
        lines = [msgspec.json.encode(call).decode() for call in calls]
        files = {"trace.json": text}
        return files | {"calls.jsonl": "\n".join(lines) + "\n"} if lines else files


def _op(name: str) -> str:
    word = name.rpartition(":")[2]
    return _OPS.get(word, word)


def _bytes(one: _Kind) -> int:
    each = _BYTES.get(one.dtypes[0], 4) if one.dtypes else 4
    total = 0
    for size in one.sizes:
        count = 1
        for length in size:
            count *= length
        total += count * each
    return total


def _exposed(sample: _Sample) -> list[tuple[_Kind, float]]:
    """Its collectives, each with the seconds that the rank waited for it.

    A wait is for what was issued since the one before; of several, in proportion to their bytes.
    """
    calls = sorted(sample.calls, key=lambda one: one[1].at)
    seconds, done = [0.0] * len(calls), 0
    for end, took in sample.waits:
        due = range(done, bisect_right(calls, end, done, key=lambda one: one[1].at))
        done = due.stop
        whole = sum(_bytes(calls[i][0]) + 1 for i in due)
        for i in due:
            seconds[i] += took / 1e6 * (_bytes(calls[i][0]) + 1) / whole
    return [(kind, waited_s) for (kind, _), waited_s in zip(calls, seconds, strict=True)]


def _calls(sample: _Sample) -> Iterable[Call]:
    """None of a step that was told in part: whoever reads them takes them for whole steps."""
    for kind, one in sample.calls if len(sample.f) >= sample.of else ():
        dtype = kind.dtypes[0] if kind.dtypes else ""
        yield Call(
            rank=sample.r,
            op=_op(kind.name),
            group=tuple(kind.members) if len(kind.members) < _MOST_MEMBERS else (),
            group_name=kind.group,
            seq=one.number,
            size_bytes=_bytes(kind),
            dtype=_DTYPES.get(dtype, dtype.lower()),
            begin_s=sample.t + one.at / 1e6,
        )


def _in_lane(one: tuple[str, float, float]) -> tuple[str, str, float, float]:
    return ("communication" if one[0] in _WAITS else "step", *one)


def _whole(one: _Sample) -> Iterable[tuple[str, str, float, float]]:
    """The step around its phases, by which the timeline knows what belongs together."""
    if one.x:
        ends = min(begin for *_, begin, _ in one.x), max(end for *_, end in one.x)
        yield ("step", f"step {one.s}", *ends)


def _spans(ranks: Mapping[int, _Sample]) -> Sequence[Span]:
    """Of one step, on one clock where all ranks waited equally often: they leave such waits together."""
    spans = [
        Span(rank, lane, name, one.t + begin / 1e6, one.t + end / 1e6)
        for rank, one in sorted(ranks.items())
        for lane, name, begin, end in (*_whole(one), *map(_in_lane, one.x))
    ]
    waits: list[list[Passage]] = [
        [
            (one.begin_s, one.end_s)
            for one in spans
            if one.rank == rank and one.lane == "communication"
        ]
        for rank in range(max(ranks) + 1)
    ]
    counts = set(map(len, waits))
    if len(counts) == 1 and counts != {0} and len(waits) > 1:
        return on_one_clock(spans, align(waits))
    return spans
