"""The stored runs: the list with its filters, one run, two runs compared."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wirespeed.compare.compare import SideRuns, compare, floors_of
from wirespeed.compare.estimate import Floor
from wirespeed.errors import UsageError
from wirespeed.model.derived_records import What
from wirespeed.model.records import Run
from wirespeed.model.units import format_duration
from wirespeed.runs.index import RunFilter
from wirespeed.runs.place import FOLDER_NAME, runs_home
from wirespeed.runs.rows import RunRow, id_in
from wirespeed.runs.source import elsewhere
from wirespeed.runs.store import find, load, stored_runs
from wirespeed.site.framing import Site, framed, made
from wirespeed.site.links import query_link, run_link
from wirespeed.views.html.page import comparison_parts, drawn, run_parts
from wirespeed.views.text import kind_of

_PAGE = 50
_DRAWING = ("page.js", "plotly.js", "draw.js")
SINCE = {"": "any time", "1": "a day", "7": "7 days", "30": "30 days", "90": "90 days"}
_VERDICTS = {
    "": "any",
    "fail": "failed",
    "unknown": "unknown",
    "measured": "measured",
    "pass": "passed",
}
_LONGEST = 200


def runs_page(site: Site, request: Request) -> Response:
    """A page of the list, the newest first."""
    asked = {name: request.query_params.get(name, "")[:_LONGEST] for name in _FIELDS}
    before = request.query_params.get("before", "")
    which = _filter(asked)
    with site.index() as index:
        many = index.count(which)
        found = index.runs(_filter(asked, before=before, last=_PAGE + 1))
    shown = found[-_PAGE:][::-1]
    part = made(
        "runs.html",
        asked=asked,
        verdicts=_VERDICTS,
        since=SINCE,
        many=many,
        rows=[run_line(row) for row in shown],
        newest=query_link("/runs", **asked) if before else "",
        older=query_link("/runs", **asked, before=shown[-1].run) if len(found) > _PAGE else "",
    )
    return framed(site, "Runs", "Runs", [part])


_HISTORY, _MOST_NODES = 30, 64
"""Stored repeats that are read for a comparison, and of up to how many nodes."""
_ID = re.compile("[0-9a-f]{8}")
_FIELDS = ("node", "verdict", "command", "gpu", "since")


def _filter(asked: dict[str, str], **more: Any) -> RunFilter:
    days = asked["since"]
    since = ""
    if days in SINCE and days:
        since = (datetime.now(UTC) - timedelta(days=int(days))).isoformat()
    verdict = asked["verdict"] if asked["verdict"] in _VERDICTS else ""
    node, command, gpu = asked["node"], asked["command"], asked["gpu"]
    return RunFilter(verdict=verdict, since=since, node=node, command=command, gpu=gpu, **more)


def run_line(row: RunRow) -> dict[str, Any]:
    """What a line of a table of runs shows."""
    remark = f"damaged: {row.damaged}" if row.damaged else row.headline
    return {
        "run": row.run,
        "id": row.id,
        "link": run_link(row.run),
        "started": row.started[:16].replace("T", " "),
        "command": row.command,
        "verdict": row.verdict_text if row.finished else "not ended",
        "kind": kind_of(row.verdict) if row.finished else "not_checked",
        "nodes": row.nodes or "",
        "ranks": row.world_size or "",
        "gpu": row.gpu.replace("NVIDIA ", "").replace(",", ", "),
        "took": format_duration(row.seconds) if row.seconds else "",
        "remark": ("fault injected on purpose; " if row.injected else "") + remark,
    }


def run_page(site: Site, request: Request) -> Response:
    """All of one run, as `wirespeed report` writes it."""
    folder = folder_of(request.path_params["run"])
    parts, title = _parts_of(folder, _state(folder))
    return framed(site, title, "Runs", parts, scripts=_scripts(parts))


def _scripts(parts: Sequence[str]) -> Sequence[str]:
    return _DRAWING if drawn(parts) else ("page.js",)


@lru_cache(maxsize=4)
def _parts_of(folder: Path, _state: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """_state: of the files; another one where they were written to."""
    run = load(folder)
    return tuple(run_parts(run)), f"{run.command} {run.id}: {run.verdict}"


def _state(folder: Path) -> tuple[int, ...]:
    found = []
    for name in ("run.json", "records.jsonl"):
        try:
            about = (folder / name).stat()
        except OSError:
            continue
        found += [about.st_mtime_ns, about.st_size]
    return tuple(found)


def compare_page(site: Site, request: Request) -> Response:
    """Two runs, the older one first; UsageError for any other number of them."""
    asked = dict.fromkeys(request.query_params.getlist("run"))
    if len(asked) != 2:
        raise UsageError(
            f"{len(asked)} runs were chosen", expected="two runs, marked in the list of runs"
        )
    folders = sorted(folder_of(name) for name in asked)
    runs = [load(folder) for folder in folders]
    sides = [SideRuns((run,)) for run in runs]
    parts = comparison_parts(runs, compare(sides, floors=_floors(runs)))
    told = [{"id": id_in(folder.name), "link": run_link(folder.name)} for folder in folders]
    links = made("compared.html", runs=told)
    return framed(site, "Comparison", "Runs", [*parts, links], scripts=_scripts(parts))


def _floors(runs: Sequence[Run]) -> dict[What, Floor]:
    """The noise from stored repeats, where these are read quickly; as `wirespeed compare` learns it."""
    if elsewhere() is not None or max(run.world.node_count for run in runs) > _MOST_NODES:
        return {}
    return floors_of(stored_runs(runs, _HISTORY))


def folder_of(name: str, *, here: bool = False) -> Path:
    """The folder of a run, by its name or the run's id: no path, no start of one, no pattern.

    here: by its name on this machine, whatever store the pages are of.
    """
    whole = FOLDER_NAME.fullmatch(name) is not None
    if not whole and _ID.fullmatch(name) is None:
        raise UsageError(f"{name[:80]!r} names no run", expected="a run of the list")
    path = runs_home() / name if whole and (here or elsewhere() is None) else find(name)
    if FOLDER_NAME.fullmatch(path.name) is None or not path.is_dir():
        raise UsageError(f"there is no run {name}", expected="a run of the list")
    return path
