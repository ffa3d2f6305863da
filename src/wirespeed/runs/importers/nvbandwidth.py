"""`nvbandwidth -j`: copies between host and GPUs, and between GPUs, as matrices.

{"nvbandwidth": {versions, "GPU Device list": ["0: NAME (PCI): (HOST)"], "error", "testcases": [{name,
status, bandwidth_description, bandwidth_matrix, …}]}}. A cell is a text, "N/A" where nothing was
measured; the description tells what rows and columns are, which way it goes, and the unit (GB/s, or ns
of latencies). Source: json_output.cpp of NVIDIA/nvbandwidth.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from wirespeed.model.bench_records import FigureUnit, ToolFigure
from wirespeed.model.records import Finding, NodeFacts, Run
from wirespeed.model.units import listed
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.told import (
    GIGA,
    behind_others,
    documents,
    node,
    number,
    objects,
    part,
    reported,
    tool_run,
    words,
)

_DEVICE = re.compile(
    r"\s*(\d{1,4}):\s*(.*?)\s*\(([0-9A-Fa-f:.]+)\)\s*:?\s*(?:\(([^()\s]{1,255})\))?"
)
_AXES = re.compile(r"(\w+)\(row\)\s*(<?->?)\s*(\w+)\(column\)")
_NANO = 1e-9


def runs_of_nvbandwidth(text: str, name: str) -> Iterator[Run]:
    """A run a document."""
    for data in documents(text, source=name):
        if isinstance(data.get("nvbandwidth"), dict):
            yield _run(part(data, "nvbandwidth"), name)


def _run(data: Mapping[str, Any], name: str) -> Run:
    cases = objects(data.get("testcases"))
    figures = [figure for case in cases for figure in _figures(case)]
    error = words(data.get("error"), 500)
    findings = [reported("nvbandwidth", error)] if error else []
    return tool_run(
        "nvbandwidth",
        name=name,
        figures=figures,
        findings=[*findings, *_findings(cases), *behind_others(figures)],
        nodes=_nodes(data.get("GPU Device list")),
        versions={
            "nvbandwidth": data.get("version") or data.get("git_version"),
            "cuda": _cuda(data.get("CUDA Runtime Version")),
            "driver": data.get("Driver Version"),
        },
    )


def _cuda(version: object) -> str:
    """12040 is 12.4."""
    known = isinstance(version, int) and version >= 1000
    return f"{version // 1000}.{version // 10 % 100}" if known else words(version)  # type: ignore[operator]


def _nodes(devices: object) -> list[NodeFacts]:
    hosts: dict[str, list[dict[str, Any]]] = {}
    for line in devices if isinstance(devices, list) else ():
        if (found := _DEVICE.match(words(line, 500))) and found[4]:
            gpu = {"index": int(found[1]), "name": found[2], "bus": found[3]}
            hosts.setdefault(found[4], []).append(gpu)
    return [node(host, gpus) for host, gpus in hosts.items()]


def _figures(case: Mapping[str, Any]) -> Iterator[ToolFigure]:
    told = words(case.get("bandwidth_description"))
    unit, scale = _unit(told)
    rows = case.get("bandwidth_matrix")
    for row, cells in enumerate(rows if isinstance(rows, list) else ()):
        for column, cell in enumerate(cells if isinstance(cells, list) else ()):
            if (value := number(cell)) is not None and unit:
                yield ToolFigure(
                    tool="nvbandwidth",
                    test=words(case.get("name")) or "unnamed",
                    place=_place(told, row, column),
                    unit=unit,
                    value=value * scale,
                )


def _unit(told: str) -> tuple[FigureUnit, float]:
    """Bandwidths are told in GB/s, of 10^9 bytes; latencies in ns."""
    if re.search(r"\bns\b", told):
        return "s", _NANO
    return "B/s", GIGA


def _place(told: str, row: int, column: int) -> str:
    """`CPU 0 -> GPU 3`, `GPU 0 <-> GPU 1`, in the way that the bytes go."""
    found = _AXES.search(told)
    if found is None:
        return f"row {row}, column {column}"
    first, way, second = f"{found[1]} {row}", found[2], f"{found[3]} {column}"
    return f"{second} -> {first}" if way == "<-" else f"{first} {way} {second}"


def _findings(cases: list[dict[str, Any]]) -> Iterator[Finding]:
    """What did not pass: waived (this machine has no such path) and failed tests."""
    waived = [words(case.get("name")) for case in cases if case.get("status") == "Waived"]
    if waived:
        what = f"nvbandwidth: {listed(waived)}"
        yield make_finding("tool_left_out", what=what, because="waived: no such path here")
    for case in cases:
        status = words(case.get("status")) or "no status"
        if status not in ("Passed", "Waived"):
            what = f"nvbandwidth: {words(case.get('name'))} failed"
            yield make_finding(
                "tool_failed", what=what, saw=words(case.get("error"), 500) or status
            )
