"""The pages of `wirespeed serve` read a common store by the same words."""

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request

import usual
from wirespeed.fleet.common_store import outbox, reading_common_store
from wirespeed.fleet.common_store.sending import send_now
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, Subject
from wirespeed.runs import source
from wirespeed.runs.store import save
from wirespeed.site.framing import Site
from wirespeed.site.node_pages import node_page, nodes_page, overview
from wirespeed.site.pages import metrics
from wirespeed.site.run_pages import compare_page, run_page, runs_page
from wirespeed.site.trend_pages import trends_page

pytestmark = pytest.mark.system
EVIL = "'; DROP TABLE runs; --<script>"


def a_run(number: int, *findings: Finding) -> Run:
    nodes = tuple(NodeFacts(host=one, ranks=(), facts=Facts()) for one in ("node-1", EVIL))
    return usual.run(
        id=f"0000000{number}",
        verdict="NOT READY" if findings else "READY",
        exit_code=int(bool(findings)),
        started="",
        world=usual.world(*nodes),
        findings=findings,
    )


@pytest.mark.hostile("hostile values")
def test_every_page_is_that_of_the_store(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WIRESPEED_STORE", store)
    bad = Finding(
        id="GPU-006", status="fail", title=f"{EVIL} Xid 79", subject=Subject("node", EVIL)
    )
    folders = [save(one) for one in (a_run(1), a_run(2, bad))]
    send_now(outbox.waiting())
    shutil.rmtree(tmp_path / "home" / "runs")
    site = Site(source.opened, "a store")

    def shown(page: Any, query: Any = (), **path: str) -> str:
        words = urlencode(list(query)).encode()
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": words}
        answer = page(site, Request({**scope, "headers": [], "path_params": path}))
        text = bytes(answer.body).decode()
        assert answer.status_code == 200
        assert answer.media_type != "text/html" or "<script>" not in text
        return text

    names = [folder.name for folder in folders]
    with reading_common_store(store):
        assert "1 of 2 nodes fails" in shown(overview) and "Xid 79" in shown(overview)
        assert "node-1" in shown(nodes_page) and "Xid 79" in shown(node_page, host=EVIL)
        assert shown(runs_page).count('name="run"') == 2
        assert "Xid 79" in shown(run_page, run=names[1])
        assert "Better, worse or noise" in shown(compare_page, [("run", one) for one in names])
        assert "<h1>Trends" in shown(trends_page)
        assert 'wirespeed_verdict{command="check",verdict="NOT READY"} 1' in shown(metrics)
