"""Jobs that are being watched right now: which there are, and one of them as it goes."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from wirespeed.errors import InputError
from wirespeed.model.codec import validated
from wirespeed.node.reading import read_whole
from wirespeed.runs import jsontext
from wirespeed.runs.index import Index, RunFilter
from wirespeed.runs.jsontext import damage
from wirespeed.runs.place import LIVE
from wirespeed.runs.rows import RunRow
from wirespeed.site.framing import Site, framed, made
from wirespeed.site.links import ago, node_link, run_link
from wirespeed.site.pictures import strip
from wirespeed.site.run_pages import folder_of
from wirespeed.views.live import LiveJob, live_words
from wirespeed.views.text import MARKS

_AGAIN_S = 3.0
_SILENT_S = 60.0
"""A job whose session said nothing for so long may be gone."""
_MOST_BYTES = 64 << 20
_MOST_LISTED = 200
_MOST_FINDINGS = 20


def live_page(site: Site, _: Request) -> Response:
    """All jobs that are watched and have not ended."""
    with Index.opened() as index:  # of this machine: what is sent to a common store has ended
        rows = index.runs(RunFilter(finished=False, last=_MOST_LISTED))
    jobs = [_listed(row) for row in reversed(rows) if (row.path / LIVE).is_file()]
    return framed(site, "Live", "Live", [made("live.html", jobs=jobs)])


def _listed(row: RunRow) -> dict[str, Any]:
    try:
        job, age = _read(row.path)
        words, kind = live_words(job.now), _kind(job, age)
    except InputError as error:
        words, kind, age = error.saw, "warn", 0.0
    told = {"link": f"/live/{row.run}", "id": row.id, "command": row.command, "words": words}
    return {
        **told,
        "kind": kind,
        "started": row.started[:16].replace("T", " "),
        "heard": _heard(age),
    }


def _kind(job: LiveJob, age_s: float) -> str:
    """The worst of what was found, and nothing of a job that is silent."""
    if age_s > _SILENT_S:
        return "not_checked"
    found = {one.status for one in job.findings}
    if job.now.alarm or "fail" in found:
        return "fail"
    return "warn" if "warn" in found else "pass"


def _heard(age_s: float) -> str:
    now = datetime.now(UTC)
    return ago(datetime.fromtimestamp(now.timestamp() - age_s, UTC), now)


def job_page(site: Site, request: Request) -> Response:
    """One of them; a job that has ended is a run like others."""
    folder = folder_of(request.path_params["run"], here=True)
    if not (folder / LIVE).is_file():
        return RedirectResponse(run_link(folder.name), 302)
    job, age = _read(folder)
    part = made(
        "job.html",
        id=folder.name.rpartition("-")[2],
        line=live_words(job.now),
        kind=_kind(job, age),
        silent=_heard(age) if age > _SILENT_S else "",
        strip=strip("steps", job.recent_s, _strip_words(job)) if job.recent_s else "",
        hosts=list(_hosts(job)),
        ranks=len(job.hosts),
        findings=[
            {"kind": one.status, "mark": MARKS[one.status][0], "title": one.title, "id": one.id}
            for one in job.findings[::-1][:_MOST_FINDINGS]
        ],
    )
    return framed(site, f"Job {folder.name.rpartition('-')[2]}", "Live", [part], again_s=_AGAIN_S)


def _read(folder: Path) -> tuple[LiveJob, float]:
    """(what is known, how old that is in seconds); InputError where it is none."""
    path = folder / LIVE
    with damage(str(path), expected="a live job as wirespeed wrote it"):
        age = time.time() - path.stat().st_mtime
        text = read_whole(path, _MOST_BYTES, links=False).decode()
        return validated(LiveJob, jsontext.parse(text, source=str(path)), source=str(path)), age


def _strip_words(job: LiveJob) -> str:
    return f"times of the last {len(job.recent_s)} steps; red ones took half as long again as the median"


def _hosts(job: LiveJob) -> Iterator[dict[str, Any]]:
    """Ranks by node: late ones are marked, as in the terminal."""
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(job.hosts):
        by_host.setdefault(host, []).append(rank)
    for host, ranks in by_host.items():
        cells = [(rank, *_lateness(job, rank)) for rank in ranks]
        yield {"host": host, "link": node_link(host), "cells": cells}


def _lateness(job: LiveJob, rank: int) -> tuple[str, str]:
    """(class of its cell, how late it is in words)."""
    late = job.late_s[rank] if rank < len(job.late_s) else None
    if late is None:
        return "u", "not known"
    share = late / job.now.step_s if job.now.step_s > 0 else 0.0
    kind = "f" if share >= 0.5 else "w" if share >= 0.1 else "g"
    return kind, f"{1e3 * late:+.1f} ms against the median rank"
