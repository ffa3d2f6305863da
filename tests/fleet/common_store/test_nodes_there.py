"""Nodes and ends of jobs that a common store has are those that the index has."""

from pathlib import Path

import pytest

import usual
from wirespeed.fleet.common_store import outbox, reading_common_store
from wirespeed.fleet.common_store.sending import send_now
from wirespeed.fleet.job_ends import JobEnd
from wirespeed.fleet.job_store import keep_jobs, keep_repair, stored_jobs
from wirespeed.fleet.nodes import history, renewed, state
from wirespeed.fleet.regular import seen_in, standing
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, Subject
from wirespeed.runs import source
from wirespeed.runs.index import Index
from wirespeed.runs.store import save

pytestmark = pytest.mark.system


def a_run(number: int, boot: str, *findings: Finding) -> Run:
    nodes = tuple(
        NodeFacts(host=host, ranks=(rank,), facts=Facts(machine_boot=boot))
        for rank, host in enumerate(("a", "b"))
    )
    return usual.run(
        id=f"0000000{number}",
        verdict="NOT READY" if findings else "READY",
        exit_code=int(bool(findings)),
        started="",
        world=usual.world(*nodes),
        findings=findings,
    )


def test_nodes_and_jobs_are_the_same_there(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WIRESPEED_STORE", store)
    bad = Finding(id="GPU-006", status="fail", title="Xid 79", subject=Subject("node", "b"))
    for one in (a_run(1, "one"), a_run(2, "one", bad), a_run(3, "two")):
        save(one)
    job = {"workload": "ann/llm", "nodes": ("a", "b"), "how": "node", "culprit": "b"}
    keep_jobs([JobEnd(job="7", start_s=1000.0, end_s=2000.0, **job)], {})
    keep_repair("b")
    send_now(outbox.waiting())

    def told(rows: source.StoredRuns) -> tuple[object, ...]:
        past = [history(rows, node) for node in ("a", "b", "c")]
        seen = seen_in(rows, ["a", "b"], [], within=14)
        ages = seen.node_days.round(1).tolist(), seen.coverage(14)
        return (
            state(rows),
            past,
            renewed(rows, days=30),
            stored_jobs(rows, 0.0),
            ages,
            standing(rows),
        )

    with Index.opened() as index:
        here = told(index)
    with reading_common_store(store), source.opened() as rows:
        there = told(rows)
    assert there == here
    assert [one.culprit for one in there[3]] == ["b"]
    assert set(there[2]) == {"b"}
