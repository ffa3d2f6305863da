"""What the stored runs tell of nodes."""

from dataclasses import replace

import pytest

from wirespeed.fleet.nodes import history, moment_ago, state
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, Subject

from .conftest import Stored


def day(number: int) -> str:
    return f"2026-11-{number:02d}T10:00:00.000Z"


def blamed(host: str, status: str = "fail") -> Finding:
    return Finding(
        id="GPU-006", status=status, title=f"{host}: Xid 79", subject=Subject("node", host)
    )


def passed(id: str) -> Finding:
    return Finding(id=id, status="pass", title="good")


def test_of_each_node_is_known_since_when_and_what_is_said(stored: Stored, index) -> None:
    stored(day(1), "a", "b")
    stored(day(2), "a", "b", verdict="NOT READY", findings=[blamed("b")])
    x = Finding(id="X-1", status="fail", title="x", subject=Subject("node", "a"))
    stored(day(3), "a", verdict="NOT READY", findings=[x])
    a, b = state(index(), days=100_000)
    assert (a.host, a.said, a.first[:10], a.last, a.runs) == (
        "a",
        "pass",
        "2026-11-01",
        day(3),
        3,
    )
    assert (a.said_at, a.flaps, a.blamed) == (day(1), 0, 0)
    assert (b.said, b.since, b.said_at, b.flaps, b.blamed) == ("fail", day(2), day(2), 1, 1)


def test_only_what_happened_in_the_days_asked_for_is_counted(stored: Stored, index) -> None:
    stored("2020-01-01T10:00:00.000Z", "a", "old")
    stored("2020-01-02T10:00:00.000Z", "a", "old", verdict="NOT READY", findings=[blamed("a")])
    stored(moment_ago(1), "a", findings=[passed("GPU-006")])
    a, old = state(index(), days=30)
    assert (a.said, a.blamed, a.flaps, a.runs, a.first[:4]) == ("pass", 0, 1, 3, "2020")
    assert (old.said, old.runs) == ("", 2), "it was good too long ago"


def test_the_history_of_a_node_has_all_that_changed(stored: Stored, index) -> None:
    facts = Facts(kernel="6.1", machine_boot="one", gpu_driver="580", gpu_xids=[])
    xid = {"kind": "Xid", "pci": "0000:3b:00", "code": 79, "count": 1}
    xid |= {"first_s": 1.0, "last_s": 1.0, "text": "gone"}
    stored(day(1), "a", "b", facts=facts)
    stored(day(2), "a", "b", facts=facts, gpus=[{"index": 0, "ecc_uncorrected": 2}])
    worse = replace(facts, gpu_xids=[xid], kernel="6.2")
    stored(day(3), "a", facts=worse, verdict="NOT READY", findings=[blamed("a")])
    again = replace(facts, machine_boot="two", gpu_driver="590")
    stored(day(4), "a", facts=again, findings=[passed("GPU-006")])
    stored(day(5), "a", facts=replace(again, machine_id="other"))
    told = history(index(), "a")
    assert told is not None
    said = [(one.at[8:10], one.kind, one.text) for one in told.events]
    assert said == [
        ("01", "seen", "first seen, by check, one of 2"),
        ("01", "verdict", "pass by check"),
        ("02", "ecc", "2 uncorrected ECC errors, 2 in all"),
        ("03", "version", "kernel 6.1 → 6.2"),
        ("03", "xid", "Xid 79"),
        ("03", "verdict", "fail by check, pass before"),
        ("03", "blamed", "GPU-006 a: Xid 79"),
        ("04", "restart", "it was started again"),
        ("04", "version", "kernel 6.2 → 6.1"),
        ("04", "version", "GPU driver 580 → 590"),
        ("04", "verdict", "pass by check, fail before"),
    ]
    assert (told.state.restarts, told.state.flaps, told.state.blamed) == (1, 2, 1)
    assert history(index(), "nobody") is None


@pytest.mark.hostile("hostile values")
def test_a_name_that_would_be_a_statement_is_a_name(stored: Stored, index) -> None:
    name = "x'; DROP TABLE nodes; --"
    stored(day(1), name, "b")
    told = history(index(), name)
    assert told is not None
    assert told.state.runs == 1
    assert [one.host for one in state(index(), days=100_000)] == ["b", name]
