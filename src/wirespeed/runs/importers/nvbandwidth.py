"""nvbandwidth: copies between host and GPUs, and between GPUs, as matrices; its text and `-j`.

{"nvbandwidth": {versions, "GPU Device list": ["0: NAME (PCI): (HOST)"], "error", "testcases": [{name,
status, bandwidth_description, bandwidth_matrix, …}]}}. A cell is a text, "N/A" where nothing was
measured; the description tells what rows and columns are, which way it goes, and the unit (GB/s, or ns
of latencies). The text has per test `Running NAME.`, the description, a line of columns and a line per
row, then `SUM NAME …`. Source: json_output.cpp and output.cpp of NVIDIA/nvbandwidth.
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
_VERSION = re.compile(r"nvbandwidth Version:\s*(\S+)")
_ABOUT = re.compile(r"(CUDA Runtime Version|Driver Version):\s*(\S+)\s*$")
_DEVICE_LINE = re.compile(r"Device (\d{1,4}: .{1,200})$")
_RUNNING = re.compile(r"Running (\w{3,100})\.\s*$")
_DESCRIPTION = re.compile(r".*\((?:GB/s|ns)\)\s*$")
_COLUMNS = re.compile(r"\s*\d{1,4}(?:\s+\d{1,4})*\s*$")
_CELLS = re.compile(r"\s*\d{1,4}(?:\s+(?:N/A|\d[\d.]{0,20}))+\s*$")
_ERROR = re.compile(r"\[?(?:CUDA_ERROR_\w+|ERROR|Error)\b.{0,300}")


def runs_of_nvbandwidth(text: str, name: str) -> Iterator[Run]:
    """A run a document."""
    for data in documents(text, source=name):
        if isinstance(data.get("nvbandwidth"), dict):
            yield _run(part(data, "nvbandwidth"), name)


def runs_of_nvbandwidth_text(text: str, name: str) -> Iterator[Run]:
    """Yield a run per output; none where there is none."""
    if "nvbandwidth Version:" not in text and not re.search(
        r"^Running \w+_(?:ce|sm)\.", text, re.M
    ):
        return
    data: dict[str, Any] = {}
    for line in text.split("\n"):
        line = line.rstrip()[:4000]
        if found := _VERSION.search(line):
            if data.get("testcases"):
                yield _run(data, name)
            data = {"version": found[1]}
        elif found := _ABOUT.match(line):
            value = found[2]
            data.setdefault(found[1], int(value) if value.isdecimal() else value)
        elif found := _DEVICE_LINE.match(line):
            data.setdefault("GPU Device list", []).append(found[1])
        else:
            _take_line(data.setdefault("testcases", []), line)
    if data.get("testcases"):
        yield _run(data, name)


def _take_line(cases: list[dict[str, Any]], line: str) -> None:
    """A line of a test: its name, what its matrix is, the columns, a row, an error, or nothing of it."""
    if found := _RUNNING.match(line):
        cases.append({"name": found[1], "status": "Passed", "bandwidth_matrix": []})
    elif not cases:
        return
    elif _DESCRIPTION.match(line):
        cases[-1]["bandwidth_description"] = line
    elif "columns" not in cases[-1] and _COLUMNS.match(line):
        cases[-1]["columns"] = len(line.split())
    elif _CELLS.match(line) and "columns" in cases[-1]:
        cells = line.split()[1:]
        # A row that was cut has fewer cells, and the last may be cut in its figure.
        kept = cells if len(cells) == cases[-1]["columns"] else cells[:-1]
        cases[-1]["bandwidth_matrix"].append(kept)
    elif _ERROR.match(line):
        cases[-1] |= {"status": "Error", "error": line.strip()}


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
