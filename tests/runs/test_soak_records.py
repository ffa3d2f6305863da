"""The book of a soak: bounded, whole after a kill, and patient with a full disk."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import StorageError
from wirespeed.model.codec import from_json, to_json, validated
from wirespeed.model.lasting_records import Soak
from wirespeed.model.records import Run
from wirespeed.runs.folder import PatientFolder
from wirespeed.runs.recovery import MOST_EVENTS, MOST_WINDOWS, SoakTally
from wirespeed.runs.store import load

START = Soak(for_s=600.0, elapsed_s=0.0, window_s=10.0)


def window(number: int, **changes: Any) -> dict[str, Any]:
    cell = {"op": "all_reduce", "dtype": "float32", "size_bytes": 4084, "calls": 10, "wrong": 0}
    cell |= {"low_us": 90.0, "median_us": 100.0 + number, "p99_us": 200.0, "max_us": 300.0}
    cell["last_rank"] = 1
    data = {"since_s": 10.0 * number, "seconds": 10.0, "world": 1, "calls": 10, "wrong": 0}
    data |= {"checked_bytes": 1000, "stalls": 0, "stalled_s": 0.0, "cells": [cell]}
    data |= {"last_share": [0.25, 0.75], "rss_bytes": [1, 2], "waited": [0.0, 0.1]}
    return {**data, "free_bytes": {"node-a": 5}, **changes}


def incident(since_s: float, **changes: Any) -> dict[str, Any]:
    data = {"at": "2026-11-22T01:00:00Z", "since_s": since_s, "id": "DIED-001", "title": "it died"}
    data |= {"subject_kind": "rank", "subject": "rank 1", "saw": "", "because": "", "lost_s": 0.0}
    return {**data, "world": 1, **changes}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PatientFolder:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    made = PatientFolder.create("check", {"level": "soak"})
    made.checkpoint(START)
    return made


def test_who_lost_the_run_to_another_process_writes_no_more(folder: PatientFolder) -> None:
    before = (folder.path / "run.json").read_text()
    (folder.path / ".wirespeed-lock.2").write_text("{}")  # it was stopped, and taken for dead
    unstored: list[str] = []
    folder.on_unstored = unstored.append
    folder.append("soak_window", window(0))
    folder.checkpoint(replace(START, elapsed_s=9.0))
    folder.finish(load(folder.path))
    assert (folder.path / "run.json").read_text() == before
    assert "another process has taken this run over" in folder.full and unstored


def test_nothing_grows_without_bound() -> None:
    tally = SoakTally(START)
    for number in range(10 * MOST_WINDOWS):
        tally.take("soak_window", window(number))
        tally.take("soak_incident", incident(10.0 * number))
    soak = tally.soak()
    assert len(soak.windows) <= MOST_WINDOWS
    assert sum(one.calls for one in soak.windows) == soak.calls == 100 * MOST_WINDOWS
    assert sum(one.seconds for one in soak.windows) == pytest.approx(100.0 * MOST_WINDOWS)
    assert len(soak.incidents) == MOST_EVENTS
    assert soak.incidents[0].since_s == 0.0, "the first is lost"
    assert soak.uncounted["incidents"] == 10 * MOST_WINDOWS - MOST_EVENTS


def test_what_an_incident_cost_is_known_later() -> None:
    tally = SoakTally(START)
    tally.take("soak_incident", incident(5.0))
    tally.take("soak_incident", incident(5.0, lost_s=8.0))
    assert [one.lost_s for one in tally.soak().incidents] == [8.0]


def test_a_run_with_a_soak_survives_json(folder: PatientFolder) -> None:
    tally = SoakTally(START)
    tally.take("soak_window", window(0))
    tally.take("soak_incident", incident(3.0))
    run = replace(load(folder.path), soak=tally.soak(), findings=())
    data = json.loads(json.dumps(to_json(run)))
    validated(Run, data, source="run")
    assert from_json(Run, data).soak == run.soak


def test_a_killed_soak_is_rebuilt_from_both_files(folder: PatientFolder) -> None:
    """run.json holds the first window, the records all of them: none counts twice."""
    tally = SoakTally(START)
    for number in range(3):
        folder.append("soak_window", window(number))
        tally.take("soak_window", window(number))
        if number == 0:
            folder.checkpoint(tally.soak())
    folder.append("soak_incident", incident(25.0))
    with (folder.path / "records.jsonl").open("ab") as records:
        records.write(b'{"kind": "soak_window", "at": 3, "da')  # cut by the kill
    soak = load(folder.path).soak
    assert soak is not None
    assert (soak.calls, len(soak.windows), len(soak.incidents)) == (30, 3, 1)


def test_renamed_records_lose_nothing_that_is_in_run_json(folder: PatientFolder) -> None:
    tally = SoakTally(START)
    tally.take("soak_window", window(0))
    folder.append("soak_window", window(0))
    folder.checkpoint(tally.soak())
    records = folder.path / "records.jsonl"
    records.rename(folder.path / "records.jsonl.1")
    folder.append("soak_window", window(1))
    soak = load(folder.path).soak
    assert soak is not None
    assert soak.calls == 20


def test_a_full_disk_keeps_records_until_there_is_room(
    folder: PatientFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    folder.on_change = told.append
    with monkeypatch.context() as full:
        full.setattr("wirespeed.runs.folder._write_all", _no_room)
        folder.append("soak_window", window(0))
        folder.append("soak_window", window(1))
        folder.checkpoint(START)
    assert [bool(why) for why in told] == [True]
    assert "No space left" in told[0]
    folder.append("soak_window", window(2))
    assert [bool(why) for why in told] == [True, False]
    lines = [json.loads(line) for line in (folder.path / "records.jsonl").read_text().splitlines()]
    since = [one["data"]["since_s"] for one in lines if one["kind"] == "soak_window"]
    assert since == [0.0, 10.0, 20.0]


def test_what_waits_is_bounded(folder: PatientFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.runs.folder.MOST_WAITING_BYTES", 2000)
    monkeypatch.setattr("wirespeed.runs.folder._write_all", _no_room)
    for number in range(50):
        folder.append("soak_window", window(number))
    assert folder.given_up > 40


def test_a_run_that_cannot_be_stored_is_told_and_raises_nothing(
    folder: PatientFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    folder.on_unstored = told.append
    run = load(folder.path)
    monkeypatch.setattr("wirespeed.runs.folder._write_all", _no_room)
    folder.finish(run)
    assert len(told) == 1
    assert "run.json" in told[0]


def test_going_on_keeps_what_was_there(folder: PatientFolder) -> None:
    folder.append("soak_window", window(0))
    run = load(folder.path)
    again = PatientFolder.reopen(folder.path, run)
    again.append("soak_window", window(1))
    soak = load(again.path).soak
    assert again.id == folder.id
    assert soak is not None
    assert soak.calls == 20


def _no_room(handle: int, data: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_an_ordinary_folder_still_says_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    monkeypatch.setattr("wirespeed.runs.folder._write_all", _no_room)
    with pytest.raises(StorageError, match="No space left"):
        PatientFolder.create("check", {})
