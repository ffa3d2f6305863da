"""What `check` runs at each level: data checks of every operation, then latency and bandwidth."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from wirespeed.checks.registry import check_id
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import REDOPS, Collective
from wirespeed.errors import NothingRan, UsageError
from wirespeed.model.compute_records import ComputeOp
from wirespeed.plan import Case, ComputePlan, ComputeWork, Measure, Step, StoragePlan

_DTYPES = ("float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "float8_e4m3fn")


@dataclass(frozen=True, slots=True)
class Level:
    data_sizes: tuple[int, ...]
    """Sizes of the data checks; odd ones, so that counts divide neither ranks nor vectors. The first
    is also that of the dtypes, reductions and variants."""
    dtypes: tuple[str, ...]
    redops: tuple[str, ...]
    variants: bool
    """In place, other roots, subgroups."""
    latency_bytes: int
    bandwidth_bytes: int
    """On CPUs; GPUs take 64 times as much."""
    precision: float
    max_time_s: float
    """For each timed size."""


_INTERVAL_S = 3.0
"""For the samples of an interval, without which no speed is judged: a link that is ten times too slow
must not be passed over for it."""


LEVELS = {
    "quick": Level((4 * 1021,), (), (), False, 1024, 1 << 20, 0.1, 0.12),
    "medium": Level((4 * 1021, 1 << 20), _DTYPES, REDOPS, True, 1024, 4 << 20, 0.05, 0.3),
    "long": Level(
        (4 * 1021, 4, 1 << 20, (16 << 20) + 4), _DTYPES, REDOPS, True, 1024, 64 << 20, 0.05, 3.0
    ),
}


def steps_for(level: str, only: frozenset[str], *, gpus: bool) -> tuple[Step, ...]:
    """The steps that the selected checks need; NothingRan if they need none."""
    chosen = LEVELS[level]
    steps = [
        step
        for collective in CATALOGUE.values()
        for step in _of_operation(collective, chosen, only, 64 if gpus else 1)
    ]
    needs_a_world = any(id.split("-")[0] not in ("COL", "LAT", "BW", "CAP", "MEM") for id in only)
    if not steps and not needs_a_world:
        raise NothingRan(
            "the selection left nothing to run",
            expected="ids of checks that this level has",
            next="wirespeed check --list",
        )
    return tuple(steps)


PRODUCTS = {
    "cpu": ((1024,) * 3, ("float32", "float64", "bfloat16", "int8")),
    "gpu": ((8192,) * 3, ("bfloat16", "float16", "tf32", "float32", "float8_e4m3fn", "int8")),
}
"""By kind of device the shape that fills it, and the types that it may have; not float16 on CPUs, where
torch has no kernel worth the name for it."""
MEMORY: tuple[ComputeOp, ...] = ("copy", "triad")
COPIES: dict[str, tuple[ComputeOp, ...]] = {
    "cpu": ("numa",),
    "gpu": ("h2d", "d2h", "both_ways", "peer"),
}
_LEAST_SUSTAIN_S = 8.0
_COMPUTE = {"quick": (0.15, 0.4, 0.0), "medium": (0.4, 1.0, 0.0), "long": (1.5, 5.0, 20.0)}
"""By level: seconds of a work, of a proof, and of the product that is kept up."""
_PROVE, _RATE, _SUSTAIN = (
    frozenset({"COMP-001", "COMP-002", "COMP-007"}),
    frozenset({"COMP-003", "COMP-004", "COMP-005", "COMP-007"}),
    frozenset({"COMP-006"}),
)
"""Findings that each of the three is needed for."""


def compute_plan(level: str, only: frozenset[str]) -> ComputePlan | None:
    """What `check` asks of the devices: at level long, and at any where COMP is selected; else None."""
    selected = bool(only & (_PROVE | _RATE | _SUSTAIN)) if only else level == "long"
    if level not in _COMPUTE or not selected:
        return None
    time_s, prove_s, sustain_s = _COMPUTE[level]
    kinds: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
    by_kind = products_on("cpu"), products_on("gpu")
    products, firsts = (*by_kind[0], *by_kind[1]), tuple(some[0] for some in by_kind)
    moved = [(op, on) for on in kinds for op in (*MEMORY, *COPIES[on])]
    chain = ComputeWork(op="chain", on="cpu")
    rates = (*products, chain, *(ComputeWork(op=op, on=on) for op, on in moved))
    wanted = {
        name: not only or bool(only & ids)
        for name, ids in (("prove", _PROVE), ("rate", _RATE), ("sustain", _SUSTAIN))
    }
    return ComputePlan(
        works=rates if wanted["rate"] else firsts if wanted["sustain"] else (),
        proofs=products if wanted["prove"] else (),
        prove_s=prove_s,
        sustain_s=(sustain_s or _LEAST_SUSTAIN_S)
        if wanted["sustain"] and (only or sustain_s)
        else 0.0,
        how=Measure(precision=0.01, max_time_s=time_s),
    )


def products_on(on: Literal["cpu", "gpu"]) -> tuple[ComputeWork, ...]:
    shape, types = PRODUCTS[on]
    return tuple(ComputeWork(op="gemm", on=on, dtype=dtype, shape=shape) for dtype in types)


_STORAGE_S = {"quick": 0.5, "medium": 1.5, "long": 4.0}
"""For each kind of access."""
_ADAMW_BYTES = 12
"""Of a parameter: its own float32, and AdamW's two moments."""
_TOKEN_BYTES = 4


def storage_plan(
    level: str,
    only: frozenset[str],
    *,
    data: str | None = None,
    model: str | None = None,
    samples_per_s: tuple[float, str] = (0.0, ""),
) -> StoragePlan | None:
    """What to do with that folder, whose path is made absolute; None where it is not asked for.

    UsageError: storage is selected and no folder named, or the other way round, or no such model.
    """
    wanted = any(id.startswith("STOR-") for id in only)
    if not data:
        if wanted or data is not None:  # empty: of a shell's variable that was not set
            raise UsageError(
                "no folder to check is named",
                expected="--data FOLDER, seen by all nodes",
                next="wirespeed check --only storage --data FOLDER",
            )
        return None
    if only and not wanted:
        raise UsageError(
            "--data says nothing with this --only",
            expected="storage among what --only names",
            next="wirespeed check --only storage --data FOLDER",
        )
    told: dict[str, Any] = dict(zip(("needed_per_s", "needed_from"), samples_per_s, strict=True))
    if model is not None:
        from wirespeed.training.models.sizes import TransformerSize, size_named

        size = size_named(model)
        told |= {"model": model, "checkpoint_bytes": size.parameters * _ADAMW_BYTES}
        if isinstance(size, TransformerSize):
            told["sample_bytes"] = size.context * _TOKEN_BYTES
        else:  # a byte for each colour of a pixel
            told["sample_bytes"] = prod(size.sample_shape)
    # Nothing is asked of the folder here, as `resolve` would: it may hang.
    folder = os.path.abspath(data)  # noqa: PTH100
    return StoragePlan(folder=folder, max_time_s=_STORAGE_S[level], **told)


SOAK_SIZES = (4 * 1021, (256 << 10) + 4, 4 << 20)
"""Small and odd, middle, and (on GPUs 64 times as much) for bandwidth."""
_SOAK_DTYPES = ("bfloat16", "int64")
_WINDOWS = 240
_SHORTEST_S, _LONGEST_S = 10.0, 60.0
_SHORT_SOAK_WINDOWS = 12


def soak_cases(only: frozenset[str], *, gpus: bool) -> tuple[Case, ...]:
    """What a soak calls over and over; NothingRan if nothing is left by the selection."""
    cases = []
    for collective in CATALOGUE.values():
        ids = {check_id(prefix, collective.name) for prefix in ("COL", "LAT", "BW")}
        if (only and not only & ids) or not collective.has_data:
            continue
        *others, largest = SOAK_SIZES
        sizes = (*others, largest * (64 if gpus else 1))
        cases += [_case(collective, size) for size in sizes]
        if collective.reduces:
            cases += [_case(collective, sizes[0], dtype=dtype) for dtype in _SOAK_DTYPES]
    if not cases:
        raise NothingRan(
            "the selection left nothing to soak",
            expected="ids of operations, such as COL-001",
            next="wirespeed check --list",
        )
    return tuple(cases)


def soak_window_s(for_s: float) -> float:
    """Seconds of a window: a twelfth of a short soak, else 10 to 60."""
    if for_s < _SHORTEST_S * _SHORT_SOAK_WINDOWS:
        return max(1.0, for_s / _SHORT_SOAK_WINDOWS)
    return min(_LONGEST_S, max(_SHORTEST_S, for_s / _WINDOWS))


def _of_operation(
    collective: Collective, level: Level, only: frozenset[str], scale: int
) -> Iterator[Step]:
    def wanted(*ids: str) -> bool:
        return not only or any(id in only for id in ids)

    op = collective.name
    if wanted(check_id("COL", op), "CAP-001"):
        yield from _data_steps(collective, level)
    timed = [("LAT", level.latency_bytes)]
    if collective.has_data:
        timed.append(("BW", level.bandwidth_bytes * scale))
    measure = Measure(
        precision=level.precision, max_time_s=level.max_time_s, interval_s=_INTERVAL_S
    )
    others = not {id.split("-")[0] for id in only}.isdisjoint(collective.timed_for)
    for prefix, size in timed:
        if wanted(check_id(prefix, op)) or others:
            yield Step(case=_case(collective, size), verify=False, measure=measure)


def _case(collective: Collective, size: int, **changes: object) -> Case:
    fields: dict[str, object] = {
        "op": collective.name,
        "size_bytes": size if collective.has_data else 0,
        "redop": "sum" if collective.reduces else "none",
        "root": 0 if collective.rooted else -1,
        **changes,
    }
    return Case(**fields)  # type: ignore[arg-type]


def _data_steps(collective: Collective, level: Level) -> Iterator[Step]:
    if not collective.has_data:
        yield Step(case=_case(collective, 0))
        return
    for size in level.data_sizes:
        yield Step(case=_case(collective, size))
    small = level.data_sizes[0]
    for dtype in level.dtypes:
        yield Step(case=_case(collective, small, dtype=dtype), expect_unsupported=True)
    for redop in level.redops if collective.reduces else ():
        if redop != "sum":
            yield Step(case=_case(collective, small, redop=redop))
    if level.variants:
        yield from _variants(collective, small)


def _variants(collective: Collective, size: int) -> Iterator[Step]:
    if collective.in_place:
        yield Step(case=_case(collective, size, in_place=True))
    if collective.rooted:
        yield Step(case=_case(collective, size, root=1), expect_unsupported=True)
