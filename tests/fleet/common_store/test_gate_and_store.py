"""A gate and the common store: a check made elsewhere counts, its acts arrive, it may be away."""

from pathlib import Path
from typing import Any

import pytest

import usual
from wirespeed.fleet.common_store.sending import send_at_end
from wirespeed.model.records import Finding, Run, Subject
from wirespeed.runs.folder import new_id
from wirespeed.runs.store import save

pytestmark = pytest.mark.system
GATE = ("gate", "--for", "k8s", "--node", "n1")


def blame() -> Run:
    found = Finding(id="LOC-001", status="fail", title="n1 is slow", subject=Subject("node", "n1"))
    world = usual.world(usual.node("n1"), usual.node("n2"), launcher="ssh")
    told = {"command": "locate", "verdict": "NOT READY", "exit_code": 1, "started": ""}
    return usual.run(id=new_id(), world=world, findings=(found,), **told)


def gates(postgres: Any, url: str) -> str:
    name = url.partition("@/")[2].partition("?")[0]
    sql = "SELECT count(*) FROM wirespeed.runs WHERE command = 'gate'"
    return str(postgres.sql(sql, name))


def test_a_check_made_elsewhere_keeps_work_away(
    store: str, postgres: Any, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_STORE", store)
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "elsewhere"))
    save(blame())
    send_at_end()
    env = {"WIRESPEED_STORE": store}
    assert cli(*GATE).code == 0, "this machine's own runs say nothing of it"
    done = cli(*GATE, "--within", "20", env=env)
    assert done.code == 1, done.err
    assert "n1 is slow" in done.err
    assert gates(postgres, store) == "1"


def test_a_store_that_is_away_is_not_known_and_takes_nobody(
    store: str, postgres: Any, cli: Any
) -> None:
    postgres.stop()
    try:
        done = cli(*GATE, "--within", "20", env={"WIRESPEED_STORE": store})
    finally:
        postgres.start()
    assert done.code == 0
    assert "by --unknown pass: not known" in done.err
    assert "its earlier runs" in done.err
