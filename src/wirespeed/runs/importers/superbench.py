"""SuperBench's `results-summary.jsonl`: a line a node, {"BENCHMARK/METRIC[:RANK]": …, "node": HOST}.

The node stands last as SuperBench writes it, and first in files that were sorted. BENCHMARK is its name
in the configuration, such as `nccl-bw:nvlink` or `model-benchmarks:gpt/pytorch-gpt2-large`.

Units are not in it; they are those of its documentation, by benchmark and by the name's end. A figure
whose unit is not known stays without one and is not compared. Source: docs/user-tutorial/benchmarks of
microsoft/superbenchmark.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from wirespeed.model.bench_records import FigureUnit, ToolFigure
from wirespeed.model.records import Finding, Run, Subject
from wirespeed.model.units import counted
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.repeats import combine_figures, once
from wirespeed.runs.importers.told import (
    GIGA,
    MEBI,
    MICRO,
    MILLI,
    behind_others,
    check_number,
    node,
    number,
    tool_run,
    unique_documents,
    words,
)

_METRIC = re.compile(r"([\w.+:-]{1,100}(?:/[\w.+:-]{1,100})*/[^/:]{1,300}?)(?::([\w:]{1,40}))?")
_UNITS: tuple[tuple[str, FigureUnit, float], ...] = (
    (r"cpu-stream.*_throughput|cpu-memory-bw.*_bw", "B/s", 1e6),
    (r"cpu-memory-bw.*_lat", "s", 1e-9),
    (r"gpcnet.*_bw_(?!x_).*", "B/s", MEBI),
    (r"cublaslt.*_flops|hipblaslt.*_flops", "FLOP/s", 1e12),
    (r"gemm-flops.*/(?:\w+_flops|(?:FP|TF|BF)\d+\w*)|cpu-hpl.*throughput", "FLOP/s", GIGA),
    (r"gemm-flops.*/(?:\w+_iops|INT\d+\w*)", "1/s", GIGA),
    (r"ib-loopback.*_Avg_\d+", "B/s", MEBI),
    (r".*(?:_bw|_busbw|_algbw|ib_\w+_bw_\d+)|.*(?:mem-bw|copy-bw).*", "B/s", GIGA),
    (r"(?:nccl|rccl)-bw.*_time|cud?nn-function.*_time|cublas-function.*_time", "s", MICRO),
    (r"(?:ib-traffic|gpcnet).*_(?:lat|time).*", "s", MICRO),
    (r"(?:gpu-burn|cpu-hpl|cpu-stream).*time.*", "s", 1.0),
    (r".*(?:steptime|_time|_cost|_overhead)(?:_\w+)?", "s", MILLI),
    (r".*throughput.*", "1/s", 1.0),
)
"""(form of the name, unit, what one of theirs is in it); the first that fits."""
_LONGEST = 500
"""Characters of a metric's name."""
_FAILED = re.compile(r"(?:.*/)?return_code(?::\w+)?")


def runs_of_superbench(text: str, name: str) -> Iterator[Run]:
    """One run of all nodes."""
    hosts: dict[str, None] = {}
    figures: list[ToolFigure] = []
    findings: list[Finding] = []
    times = Counter[int]()
    for data in unique_documents(text, source=name, times=times):
        if isinstance(data.get("node"), str):
            hosts[words(data["node"])] = None
            figures += _figures(data)
            findings += _failed(data)
            check_number(len(figures), name)
    figures = combine_figures(figures)
    run = tool_run(
        "superbench",
        name=name,
        figures=figures,
        findings=[*findings, *behind_others(figures, hosts)],
        nodes=[node(host) for host in hosts],
    )
    yield once(run, max(times.values(), default=0))


# `sb result diagnosis`: a line per defective node, with rules instead of figures.

_DEFECT = re.compile(
    r"([^\s,(][^,(]{0,300}?)(?:\(B/L: ([\d.eE+-]+) VAL: ([\d.eE+-]+) VAR: ([\d.eE+-]+)%[^)]*\)"
    r"|\(VAL: ([\d.eE+-]+)[^)]*\)|_miss)(?=,|$|\s)"
)
_INDEXES = ("Index", "index", "node", "Node")


def runs_of_diagnosis(text: str, name: str) -> Iterator[Run]:
    """Yield one run of the diagnosis of all nodes: what SuperBench calls defective, with its values.

    The other keys are deviations from a baseline that the file does not hold: they are no figures.
    """
    findings: list[Finding] = []
    hosts: dict[str, None] = {}
    times = Counter[int]()
    for place, data in enumerate(unique_documents(text, source=name, times=times), 1):
        if "Defective Details" not in data:
            continue
        host = next((words(data[key]) for key in _INDEXES if data.get(key)), "")
        if host:
            hosts[host] = None
        findings.append(_defect(data, host, f"line {place}"))
        check_number(len(findings), name)
    run = tool_run("superbench", name=name, findings=findings, nodes=[node(host) for host in hosts])
    yield once(run, max(times.values(), default=0))


def _defect(data: Mapping[str, Any], host: str, line: str) -> Finding:
    category = words(data.get("Category")) or "defective"
    details = words(data.get("Defective Details"), 20_000)
    lines = [_shown_defect(found) for found in _DEFECT.finditer(details)] or [details[:500]]
    return make_finding(
        "tool_failed",
        subject=Subject("node", host) if host else None,
        what=f"SuperBench: {category} on {host or f'the node of {line}'}",
        saw=lines[0] + (f"; {len(lines) - 1:,} more" if len(lines) > 1 else ""),
        evidence=lines[:20],
    )


def _shown_defect(found: re.Match[str]) -> str:
    """Return `metric: 0.1, baseline 0.006`, `metric: 1`, or `metric: no value`."""
    name = found[1].strip()
    if found[3]:
        return f"{name}: {found[3]}, baseline {found[2]} (SuperBench's own unit)"
    return f"{name}: {found[5]}" if found[5] else f"{name}: no value"


def _figures(data: Mapping[str, Any]) -> Iterator[ToolFigure]:
    host = words(data["node"])
    for key, value in data.items():
        found = _METRIC.fullmatch(key) if len(key) <= _LONGEST else None
        if not found or _FAILED.fullmatch(key) or (figure := number(value)) is None:
            continue
        unit, scale = _unit(found[1])
        yield ToolFigure(
            tool="superbench",
            test=found[1],
            place=f"{host}:{found[2]}" if found[2] else host,
            unit=unit,
            value=figure * scale,
        )


@lru_cache(maxsize=4096)
def _unit(metric: str) -> tuple[FigureUnit, float]:
    for pattern, unit, scale in _UNITS:
        if re.fullmatch(pattern, metric):
            return unit, scale
    return "", 1.0


def _failed(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Benchmarks that ended with an error on this node: one finding."""
    host = words(data["node"])
    told = ((key, value) for key, value in data.items() if _FAILED.fullmatch(key))
    bad = [f"{key}: {words(value)}" for key, value in told if number(value) != 0]
    if bad:
        yield make_finding(
            "tool_failed",
            subject=Subject("node", host),
            what=f"SuperBench: {counted(len(bad), 'benchmark')} failed on {host}",
            saw=bad[0],
            evidence=bad[:20],
        )
