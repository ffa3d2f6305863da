"""`dcgmi diag -j`: what NVIDIA's diagnostic says of each GPU, DCGM 2 to 4.

Version 4 writes {"DCGM Diagnostic": {test_categories}, entity_groups, metadata}, with results by
entity and a summary a test, which alone has the errors of no entity; versions before it {"DCGM GPU
Diagnostic": {test_categories, version}}, with results by `gpu_id` or a list of them in `gpu_ids`, and
warnings that are texts. `runtime_error` stands where nothing ran. `--iterations` makes a list of such
documents, `iterations`, up to the first that failed, whose error is the `warning` beside the list.
Source: nvvs/include/NvvsJsonStrings.h, dcgmi/Diag.cpp and dcgmlib/dcgm_errors.h of NVIDIA/DCGM.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Finding, Run
from wirespeed.model.units import listed
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.told import GIGA, documents, objects, part, reported, tool_run, words

_TOP = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_STATUS = {"pass": "pass", "fail": "fail", "warn": "warn"}
"""By the first letters of theirs, in small letters; everything else (`Skip`, `Not Run`, words of
versions to come) says that nothing was seen."""
_REMEDY = {
    1: "watch it: it can work on",
    2: "take that GPU out of work",
    4: "have it looked at before it works again (NVIDIA's field diagnostic)",
    5: "change the setting that the message names, then run it again",
    6: "drain the node and reset that GPU",
}
"""By DCGM's severity of the error."""
_BANDWIDTH = re.compile(r"([A-Za-z][\w ]{0,40}?) bandwidth:\s*(\d{1,9}(?:\.\d{1,9})?) GB/s")


class _Result(NamedTuple):
    test: str
    place: str
    status: str
    """One of ours: `pass`, `fail`, `warn`; empty: it says nothing."""
    said: str
    """Its own word for the status."""
    warnings: tuple[str, ...]
    remedy: str
    info: tuple[str, ...]


def runs_of_dcgm(text: str, name: str) -> Iterator[Run]:
    """A run a document, or a time that it ran."""
    for data in (one for document in documents(text, source=name) for one in _times(document)):
        body = next((part(data, key) for key in _TOP if isinstance(data.get(key), dict)), None)
        if body is not None:
            yield _run(data, body, name)


def _times(document: dict[str, Any]) -> list[dict[str, Any]]:
    times = objects(document.get("iterations"))
    if times and (error := document.get("warning")):
        times[-1] = {**times[-1], "runtime_error": error}
    return times or [document]


def _run(data: Mapping[str, Any], body: Mapping[str, Any], name: str) -> Run:
    results = list(_results(body))
    findings = list(_findings(results))
    if error := words(body.get("runtime_error") or data.get("runtime_error"), 500):
        findings.append(reported("dcgmi diag", error))
    if warning := words(body.get("Warning") or data.get("Warning"), 500):
        findings.append(make_finding("tool_warned", what="dcgmi diag warns", saw=warning))
    about = {**part(data, "metadata"), **body}
    return tool_run(
        "dcgm",
        name=name,
        figures=list(_figures(results)),
        findings=findings,
        versions={"dcgm": about.get("version"), "driver": about.get("Driver Version Detected")},
    )


def _results(body: Mapping[str, Any]) -> Iterator[_Result]:
    for category in objects(body.get("test_categories")):
        for test in objects(category.get("tests")):
            title = words(test.get("name")) or words(category.get("category")) or "a test"
            results = [_result(title, one) for one in objects(test.get("results"))]
            whole = _result(title, part(test, "test_summary"))
            yield from results
            if not results or _says_more(whole, results):
                yield whole


def _says_more(whole: _Result, results: Sequence[_Result]) -> bool:
    """Whether a test's summary has what is of no GPU: a failure, or a warning of its own."""
    told = {text for one in results for text in one.warnings}
    known = any(one.status == whole.status for one in results) and told.issuperset(whole.warnings)
    return whole.status in ("fail", "warn") and not known


def _result(test: str, data: Mapping[str, Any]) -> _Result:
    said = words(data.get("status")) or "no status"
    warnings = _list(data.get("warnings")) or _list(data.get("warning"))
    severities = [one.get("error_severity") for one in warnings if isinstance(one, dict)]
    told = [one.get("warning") if isinstance(one, dict) else one for one in warnings]
    return _Result(
        test=test,
        place=_place(data),
        status=_STATUS.get(said[:4].lower(), ""),
        said=said,
        warnings=tuple(words(one, 500) for one in told),
        remedy=next((_REMEDY[one] for one in severities if one in _REMEDY), ""),
        info=tuple(words(one, 500) for one in _list(data.get("info"))),
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _place(data: Mapping[str, Any]) -> str:
    """`GPU 3`, `CPU 0`, `GPU 0,1` of several in one result; empty where it is of none."""
    if "entity_id" in data:
        return f"{words(data.get('entity_group'), 20) or 'GPU'} {words(data['entity_id'], 20)}"
    ids = data.get("gpu_id", data.get("gpu_ids"))
    return f"GPU {words(ids)}" if ids not in (None, "") else ""


def _findings(results: Iterable[_Result]) -> Iterator[Finding]:
    """What failed or warns one by one, what passed or was not run a finding a test."""
    alike: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for one in results:
        if one.status in ("fail", "warn"):
            entry = "tool_failed" if one.status == "fail" else "tool_warned"
            where = f" on {one.place}" if one.place else ""
            yield make_finding(
                entry,
                what=f"DCGM: {one.test} {_SAID[one.status]}{where}",
                saw=one.warnings[0] if one.warnings else f"status {one.said}",
                fix=one.remedy,
                evidence=(*one.warnings[1:], *one.info),
            )
        else:
            key = (one.test, one.status, one.said, one.warnings)
            alike.setdefault(key, []).append(one.place)
    for (test, status, said, why), places in alike.items():
        where = f" on {listed(places)}" if any(places) else ""
        if status:
            yield make_finding("tool_passed", what=f"DCGM: {test} passed{where}")
        else:
            because = "; ".join(why) or f"its status is {said}"
            yield make_finding("tool_left_out", what=f"DCGM: {test}{where}", because=because)


_SAID = {"fail": "failed", "warn": "warns"}


def _figures(results: Iterable[_Result]) -> Iterator[ToolFigure]:
    """Bandwidths that the PCIe test tells where it was asked for all (`-v`)."""
    for one in results:
        for line in one.info:
            for way, value in _BANDWIDTH.findall(line):
                yield ToolFigure(
                    tool="dcgm",
                    test=f"{one.test} {way}",
                    place=one.place,
                    unit="B/s",
                    value=float(value) * GIGA,
                )
