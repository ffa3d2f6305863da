"""`wirespeed bench gemm|memory|copy`: what each device computes, and what it moves."""

import re
from collections.abc import Iterator
from typing import Any, Literal

import click
from click.core import ParameterSource

from wirespeed.checks.levels import COPIES, MEMORY, PRODUCTS
from wirespeed.cli.options import parse_duration, switch_of, words_of
from wirespeed.cli.run_options import RunOptions
from wirespeed.errors import UsageError
from wirespeed.model.compute_records import ComputeOp
from wirespeed.model.units import parse_size
from wirespeed.plan import ComputePlan, ComputeWork, Measure
from wirespeed.training.models.sizes import TRANSFORMERS

_SHAPE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})x([1-9]\d{0,5})")
_TOKENS = {"cpu": 256, "gpu": 4096}
"""Rows of a model's products."""
_NAMES = ("gemm", "memory", "copy")
_OF_COLLECTIVES = (
    *("min_bytes", "max_bytes", "factor", "step_bytes", "root", "in_flight", "in_place", "timing"),
    *("asynchronous", "groups", "max_fit", "env", "rounds", "search", "replay"),
)
_SPELLED = {
    "fp32": "float32",
    "fp64": "float64",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}
_PROVE_S = 1.0

Kind = Literal["cpu", "gpu"]
_KINDS: tuple[Kind, ...] = ("cpu", "gpu")


def bench_devices(
    ctx: click.Context, values: dict[str, Any], options: RunOptions, redops: tuple[str, ...]
) -> int:
    """Run `bench` of devices; UsageError for what says something of collectives only."""
    from wirespeed.cli.execute import execute

    _refuse_others(ctx, values, options, redops)
    typed = ctx.get_parameter_source("dtypes") is ParameterSource.COMMANDLINE
    types = tuple(_types(values["dtypes"])) if typed else ()
    works = tuple(work for on in _KINDS for work in _works(on, values, types))
    products = {(one.on, one.dtype): one for one in works if one.op == "gemm"}
    lasts = values["for_"]
    compute = ComputePlan(
        works=works,
        proofs=tuple(products.values()) if values["check"] else (),
        prove_s=min(_PROVE_S, values["time_per_size"]),
        gpus_only=True,
        sustain_s=parse_duration(lasts, "--for") if lasts else 0.0,
        how=Measure(
            warmup=values["warmup"],
            iterations=values["iterations"],
            precision=values["precision"] / 100,
            max_time_s=values["time_per_size"],
        ),
    )
    plan = options.plan("bench", compute=compute, max_time_s=values["max_time"])
    return execute(ctx, plan, options)


def _refuse_others(
    ctx: click.Context, values: dict[str, Any], options: RunOptions, redops: tuple[str, ...]
) -> None:
    others = [op for op in values["ops"] if op not in _NAMES]
    if others:
        raise UsageError(
            f"{others[0]} beside {next(op for op in values['ops'] if op in _NAMES)}",
            expected="devices (gemm, memory, copy) or collectives in one command",
        )
    typed = [
        n for n in _OF_COLLECTIVES if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE
    ]
    if typed or redops:
        what = switch_of(typed[0]) if typed else f"-o {redops[0]}"
        raise UsageError(
            f"{what} with {values['ops'][0]}, which is no collective",
            expected="-d, -n, -w, --precision, --time-per-size, --max-time, --sizes, -c, --products",
        )
    if options.grid:
        raise UsageError(
            "a grid of worlds with devices", expected="one value of --ranks and --backend"
        )
    if "gemm" not in values["ops"] and (values["products"] or values["for_"]):
        raise UsageError("--products or --for without gemm", next="wirespeed bench gemm")


def _types(texts: tuple[str, ...]) -> Iterator[str]:
    known = list(dict.fromkeys(name for _, types in PRODUCTS.values() for name in types))
    for word in (word for text in texts for word in words_of(text)):
        name = _SPELLED.get(word.lower(), word.lower())
        if name not in known:
            raise UsageError(f"no products of type {word!r}", expected=", ".join(known))
        yield name


def _works(on: Kind, values: dict[str, Any], types: tuple[str, ...]) -> Iterator[ComputeWork]:
    shape, usual = PRODUCTS[on]
    if "gemm" in values["ops"]:
        shapes = list(_shapes(on, values["products"])) or [shape]
        for dtype in types or usual:
            yield from (ComputeWork(op="gemm", on=on, dtype=dtype, shape=one) for one in shapes)
    for name, ops in (("memory", MEMORY), ("copy", (*COPIES[on], *_pageable(on)))):
        for op in ops if name in values["ops"] else ():
            yield from (
                ComputeWork(op=op, on=on, size_bytes=size) for size in _sizes(values["sizes"])
            )


def _pageable(on: Kind) -> tuple[ComputeOp, ...]:
    return ("h2d_pageable", "d2h_pageable") if on == "gpu" else ()


def _sizes(text: str | None) -> list[int]:
    sizes = [parse_size(word) for word in words_of(text)] or [0]
    if text is not None and min(sizes) < 4:
        raise UsageError(f"--sizes {text!r}", expected="sizes of 4 bytes or more, such as 64M,1G")
    return sizes


def _shapes(on: Kind, text: str | None) -> Iterator[tuple[int, int, int]]:
    for word in words_of(text):
        if match := _SHAPE.fullmatch(word):
            rows, columns, inner = map(int, match.groups())
            yield rows, columns, inner
        elif word in TRANSFORMERS:
            yield from _of_model(word, _TOKENS[on])
        else:
            raise UsageError(
                f"--products {word!r} is neither a shape nor a model",
                expected="such as 4096x4096x8192, or one of " + ", ".join(TRANSFORMERS),
            )


def _of_model(name: str, tokens: int) -> Iterator[tuple[int, int, int]]:
    """Queries, keys and values; attention's output; SwiGLU's first two, and its last; the output."""
    size = TRANSFORMERS[name]
    d = size.d_model
    for columns, inner in dict.fromkeys(
        ((d + 2 * size.d_kv, d), (d, d), (2 * size.d_ff, d), (d, size.d_ff), (size.vocab, d))
    ):
        yield tokens, columns, inner
