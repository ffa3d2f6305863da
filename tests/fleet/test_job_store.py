"""How jobs ended, out of stored runs: of imports, of launches and of diagnoses."""

from dataclasses import replace
from datetime import datetime

import pytest

from wirespeed.fleet.job_ends import JobEnd
from wirespeed.fleet.job_store import (
    apart,
    job_events,
    keep_jobs,
    keep_repair,
    new_jobs,
    stored_jobs,
)
from wirespeed.fleet.nodes import renewed
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, Subject
from wirespeed.runs.store import find

from .conftest import Stored


def a_job(job: str = "7", end_s: float = 5000.0, **more) -> JobEnd:
    told = {"workload": "ann/llm", "start_s": 1000.0, "nodes": ("a", "b"), "how": "node"}
    return JobEnd(job=job, end_s=end_s, **{**told, **more})


def blamed(host: str, kind="node") -> Finding:
    who = Subject(kind, host)
    return Finding(id="KERN-001", status="fail", title="x", subject=who, category="gpu-lost")


def test_an_import_comes_back_and_the_same_job_counts_once(index, home) -> None:
    keep_jobs([a_job(), a_job("8", how="good")], {"files": ["jobs.txt"]})
    keep_jobs([a_job(culprit="b")], {})
    keep_jobs([a_job()], {})
    found = stored_jobs(index(), 0.0)
    assert {(one.job, one.how, one.culprit) for one in found} == {
        ("7", "node", "b"),
        ("8", "good", ""),
    }
    assert stored_jobs(index(), 5001.0) == []
    again = [a_job(), a_job("8", how="good"), a_job("9"), a_job("8", how="good", culprit="a")]
    assert [(one.job, one.culprit) for one in new_jobs(index(), again)] == [("9", ""), ("8", "a")]


@pytest.mark.hostile("tampered stores")
def test_damaged_lines_tell_nothing_and_the_others_stay(index, home) -> None:
    run = keep_jobs([a_job(), a_job("8")], {})
    file = find(run.id) / "jobs.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    lines = file.read_text().splitlines()
    late = lines[0].replace('"end_s":', '"end_s":1e20,"was":')
    file.write_text("\n".join([lines[0][:30], '{"job": 3}', "\x00", late, lines[1]]))
    assert [one.job for one in stored_jobs(index(), 0.0)] == ["8"]


@pytest.mark.hostile("tampered stores")
@pytest.mark.parametrize("command", ["launch", "diagnose", "nodes repaired", "check"])
def test_a_run_that_tells_no_moment_counts_for_nothing(stored: Stored, index, command) -> None:
    stored("2026-11-19T10:00:00.000Z", "a", facts=Facts(machine_id="one"))
    other = {"facts": Facts(machine_id="two"), "findings": [blamed("a")], "config": {"node": "a"}}
    stored("2026-11-20T10:99:00.000Z", "a", command=command, verdict="NOT READY", **other)
    jobs = apart([a_job(), *stored_jobs(index(), 1000.0)], renewed(index(), days=365))
    assert [one.nodes for one in jobs if one.end_s > 1000.0] == [a_job().nodes]


@pytest.mark.hostile("tampered stores")
def test_a_launch_that_took_longer_than_time_counts_for_nothing(stored: Stored, index) -> None:
    stored("2026-11-20T10:00:00.000Z", "a", command="launch", seconds=1e20)
    assert stored_jobs(index(), 1000.0) == []


def test_ends_of_launches_and_who_is_to_blame(stored: Stored, index) -> None:
    at = "2026-11-0{}T10:00:00.000Z"
    words = {"config": {"command": ["python", "train.py"]}, "command": "launch"}
    stored(at.format(1), "a", "b", **words)
    stored(at.format(2), "a", "b", verdict="NOT READY", **words)
    bad = {"verdict": "NOT READY", "findings": [blamed("rank 1", "rank")]}
    stored(at.format(3), "a", "b", **bad, **words)
    bad = {"verdict": "NOT READY", "findings": [blamed("b")]}
    stored(at.format(4), "a", "b", **bad, **words)
    stored(at.format(5), "a", "b", verdict="UNKNOWN", exit_code=3, **words)
    stored(at.format(6), "a", "b", verdict="UNKNOWN", exit_code=130, **words)
    stored(at.format(7), "a", "b", command="check", verdict="NOT READY")
    found = sorted(stored_jobs(index(), 0.0), key=lambda one: one.end_s)
    assert [(one.how, one.culprit) for one in found] == [
        ("good", ""),
        ("failed", ""),
        ("failed", ""),
        ("node", "b"),
        ("good", ""),
    ]
    assert {one.workload for one in found} == {"python train.py"}
    assert found[0].end_s - found[0].start_s == 60.0
    assert found[0].nodes == ("a", "b")


def test_a_diagnosis_names_the_node_of_the_job_that_failed(stored: Stored, index) -> None:
    at = "2026-11-02T10:00:00.000Z"
    now = datetime.fromisoformat(at).timestamp()
    keep_jobs([a_job("old", now - 90_000), a_job("new", now - 3600, how="failed")], {})
    read = {"command": "diagnose", "verdict": "CAUSE NAMED", "config": {"paths": ["slurm-7.out"]}}
    stored(at, findings=[blamed("b")], **read)
    stored(at.replace("10:", "11:"), findings=[blamed("b")], **read)  # the same files again
    stored(at, findings=[blamed("elsewhere")], **read)
    found = {one.job: one for one in stored_jobs(index(), 0.0)}
    assert (found["new"].how, found["new"].culprit) == ("node", "b")
    assert found["old"].culprit == ""
    assert [one.nodes for one in found.values()] == [("a", "b"), ("a", "b"), ("elsewhere",)]


def test_a_host_is_called_as_slurm_calls_it(stored: Stored, index) -> None:
    """Whose names are short, where a machine's own may hold its domain."""
    at, long = "2026-11-02T10:00:00.000Z", "a.lab.example"
    now = datetime.fromisoformat(at).timestamp()
    keep_jobs([a_job(end_s=now - 60, how="failed")], {})
    stored(
        at, long, "c.lab.example", command="launch", verdict="NOT READY", findings=[blamed(long)]
    )
    stored(at, command="diagnose", verdict="CAUSE NAMED", findings=[blamed("b.lab.example")])
    keep_repair(long)
    found = stored_jobs(index(), 0.0)
    assert {(one.nodes, one.culprit) for one in found} == {
        (("a", "b"), "b"),
        (("a", "c.lab.example"), "a"),
    }
    told = {node for job in apart(found, renewed(index(), days=365)) for node in job.nodes}
    assert told == {"a before", "b", "c.lab.example"}


def test_what_happened_to_the_jobs_of_a_node() -> None:
    jobs = [
        a_job("1", 9000.0, culprit="a"),
        a_job("2", 8000.0, culprit="b"),
        replace(a_job("3", 7000.0), how="good"),
        a_job("4", 6000.0, how="failed", nodes=("a",)),
        a_job("5", nodes=("c",)),
    ]
    assert [(one.text, one.status) for one in job_events(jobs, "a")] == [
        ("job 4 (ann/llm) failed", "warn"),
        ("job 2 (ann/llm) on 2 nodes failed, by b", "warn"),
        ("job 1 (ann/llm) on 2 nodes failed, by this node", "fail"),
    ]


def test_what_was_before_a_repair_or_of_another_machine_is_another_nodes(stored, index) -> None:
    keep_repair("a")
    stored("2026-11-02T10:00:00.000Z", "b", facts=Facts(machine_id="one"))
    stored("2026-11-04T10:00:00.000Z", "b", facts=Facts(machine_id="two"))
    told = renewed(index(), days=100_000)
    assert set(told) == {"a", "b"}
    assert told["b"] == "2026-11-04T10:00:00.000Z"
    day = datetime.fromisoformat("2026-11-03T00:00:00Z").timestamp()
    jobs = [a_job("1", day, culprit="b"), a_job("2", day + 2 * 86400), a_job("3", nodes=("c",))]
    assert [(one.nodes, one.culprit) for one in apart(jobs, {"b": told["b"]})] == [
        (("a", "b before"), "b before"),
        (("a", "b"), ""),
        (("c",), ""),
    ]
