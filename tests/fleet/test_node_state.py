"""A node's state over stored runs: what opens a finding, what closes it, and what does neither."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.checks.registry import CHECKS, EXPLAINED
from wirespeed.diagnose.rules import all_rules
from wirespeed.fleet.node_state import NODE_TROUBLES, about_node, is_about_node
from wirespeed.fleet.nodes import NodeState, history, state
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, Subject, World
from wirespeed.runs.rows import rows_of

from .conftest import Stored

BAD: dict[str, Any] = {"verdict": "NOT READY"}


def at(day: int) -> str:
    return f"2026-11-{day:02d}T10:00:00.000Z"


def failed(id: str, name: str, kind: Any = "node", status: Any = "fail") -> Finding:
    return Finding(id=id, status=status, title=f"{id} of {name}", subject=Subject(kind, name))


def passed(id: str, status: Any = "pass") -> Finding:
    return Finding(id=id, status=status, title="as it should be")


States = Callable[[], dict[str, NodeState]]


@pytest.fixture
def states(index: Any) -> States:
    return lambda: {one.host: one for one in state(index(), days=100_000)}


def test_the_slow_node_of_the_tutorial_stays_failed_until_locate_finds_nobody(
    stored: Stored, states: States
) -> None:
    four = ("node-0", "node-1", "node-2", "node-3")
    end = failed("DIED-001", "rank 0", "rank")
    stored(at(1), *four)
    slow = [failed("LOC-001", "node-2")]
    run = stored(at(2), *four, command="locate", findings=slow, **BAD)
    for day, command in enumerate(("bench", "topo", "train"), 3):
        stored(at(day), *four, command=command, findings=[passed("COL-001"), passed("BW-001")])
        assert {host: one.said for host, one in states().items()} == {
            "node-0": "pass",
            "node-1": "pass",
            "node-2": "fail",
            "node-3": "pass",
        }
    for host in four:
        stored(at(6), host, command="launch", findings=[end], **BAD)
    stored(at(7), *four, findings=[passed("COL-001"), passed("BW-001")])
    found = states()
    assert {host: one.said for host, one in found.items() if host != "node-2"} == {
        host: "pass" for host in four if host != "node-2"
    }
    node = found["node-2"]
    assert (node.said, node.since, node.said_at, node.flaps) == ("fail", at(2), at(7), 1)
    (open_one,) = node.open
    assert (open_one.id, open_one.runs, open_one.look_again) == (
        "LOC-001",
        (run,),
        "wirespeed locate",
    )
    stored(at(8), *four, command="locate", findings=[passed("LOC-001")])
    node = states()["node-2"]
    assert (node.said, node.since, node.open, node.flaps) == ("pass", at(8), (), 2)


@pytest.mark.parametrize(
    ("command", "config", "verdict", "good"),
    [
        ("check", {}, "READY", True),
        ("check", {"only": None}, "READY", True),
        ("check", {"only": "settings"}, "READY", False),
        ("check", {}, "UNKNOWN", False),
        ("locate", {}, "READY", True),
        ("locate", {}, "UNKNOWN", False),
        ("gate", {}, "READY", True),
        ("bench", {}, "READY", False),
        ("train", {}, "READY", False),
        ("topo", {}, "READY", False),
        ("launch", {}, "READY", False),
        ("watch", {}, "READY", False),
        ("check", {"inject": ["flip:rank=0"]}, "READY", False),
    ],
)
def test_only_a_whole_look_says_that_a_node_is_good(
    stored: Stored, states: States, command: str, config: Any, verdict: str, good: bool
) -> None:
    judged = [passed("COL-001"), passed("NODE-001")]
    stored(at(1), "a", "b", command=command, config=config, verdict=verdict, findings=judged)
    assert {one.said for one in states().values()} == {"pass" if good else ""}


@pytest.mark.parametrize(
    ("command", "id"),
    [
        ("launch", "DIED-001"),
        ("launch", "EXIT-001"),
        ("launch", "PY-001"),
        ("launch", "TRUN-001"),
        ("launch", "WATCH-001"),
        ("watch", "WATCH-008"),
        ("check", "RAISED-001"),
        ("check", "ENV-001"),
        ("check", "X-001"),
    ],
)
@pytest.mark.parametrize("status", ["fail", "warn"])
def test_what_may_be_a_programs_doing_changes_no_node(
    stored: Stored, states: States, index: Any, command: str, id: str, status: str
) -> None:
    stored(at(1), "a", "b")
    found = [failed(id, "rank 1", "rank", status), failed(id, "b", status=status)]
    stored(at(2), "a", "b", command=command, findings=found, **BAD)
    b = states()["b"]
    assert (b.said, b.said_at, b.blamed, b.flaps, b.open) == ("pass", at(1), 0, 0, ())
    told = history(index(), "b")
    assert told is not None
    assert {one.kind for one in told.events} == {"seen", "verdict"}


@pytest.mark.parametrize("status", ["pass", "fail"])
def test_a_fault_injected_on_purpose_leaves_no_trace(
    stored: Stored, states: States, status: str
) -> None:
    stored(at(1), "a", "b", findings=[failed("COL-001", "rank 1", "rank")], **BAD)
    who = Subject("rank", "rank 0") if status == "fail" else Subject("job", "job")
    told = Finding(id="COL-001", status=status, title="x", subject=who)  # type: ignore[arg-type]
    stored(at(2), "a", "b", config={"inject": ["flip:rank=0"]}, findings=[told])
    found = states()
    assert (found["a"].said, found["a"].blamed) == ("", 0)
    assert (found["b"].said, found["b"].said_at) == ("fail", at(1))


CLOSES: dict[str, tuple[dict[str, Any], str]] = {
    "the same finding": ({"findings": [passed("COL-001")]}, "pass"),
    "the same one of another node": (
        {"findings": [failed("COL-001", "rank 0", "rank")], **BAD},
        "pass",
    ),
    "the same one, asked for alone": (
        {"findings": [passed("COL-001")], "config": {"only": "COL-001"}},
        "pass",
    ),
    "another finding": ({"findings": [passed("COL-002")]}, "fail"),
    "not checked": ({"findings": [passed("COL-001", "not_checked")]}, "fail"),
    "not checked in part": (
        {"findings": [passed("COL-001"), passed("COL-001", "not_checked")]},
        "fail",
    ),
    "a warning": ({"findings": [failed("COL-001", "rank 1", "rank", "warn")]}, "fail"),
    "a failure that names nobody": ({"findings": [passed("COL-001", "fail")], **BAD}, "fail"),
    "another backend": ({"findings": [passed("COL-001")], "backend": "nccl"}, "fail"),
}


@pytest.mark.parametrize("case", CLOSES)
def test_what_closes_a_failure(stored: Stored, states: States, case: str) -> None:
    words, said = CLOSES[case]
    stored(at(1), "a", "b", findings=[failed("COL-001", "rank 1", "rank")], **BAD)
    stored(at(2), "a", "b", **words)
    assert states()["b"].said == said


def test_a_run_without_the_node_closes_nothing_of_it(stored: Stored, states: States) -> None:
    stored(at(1), "a", "b", findings=[failed("GPU-006", "b")], **BAD)
    stored(at(2), "a", "c", findings=[passed("GPU-006")])
    assert states()["b"].said == "fail"
    stored(at(3), "b", findings=[passed("GPU-006")])
    assert states()["b"].said == "pass", "how a node is, one look at it alone shows"


def test_what_failed_in_company_is_not_closed_by_a_node_alone(
    stored: Stored, states: States
) -> None:
    stored(at(1), "a", "b", findings=[failed("COL-001", "rank 1", "rank")], **BAD)
    stored(at(2), "b", findings=[passed("COL-001")])
    assert states()["b"].said == "fail"
    stored(at(3), "b", "c", findings=[passed("COL-001")])
    assert states()["b"].said == "pass"


def test_a_figure_that_nothing_judges_closes_nothing() -> None:
    nodes = tuple(NodeFacts(host=host, ranks=(n,), facts=Facts()) for n, host in enumerate("ab"))
    world = World(size=2, nodes=nodes, backend="gloo", launcher="local")
    told = {"id": "0" * 8, "command": "check", "started": at(1), "seconds": 1.0, "world": world}
    found = (passed("BW-001", "measured"), passed("COL-001"), failed("BW-002", "a"))
    run = Run(**told, verdict="READY", exit_code=0, findings=found)
    rows = rows_of(run, "20261101-100000-00000000")
    assert (rows.run.judged, rows.run.unjudged) == ("BW-002,COL-001", "BW-001")
    assert [one.failed for one in rows.nodes] == ["BW-002", ""]
    injected = replace(run, config={"inject": ["flip:rank=0"]})
    assert rows_of(injected, "20261101-100000-00000000").run.judged == ""


def test_a_link_is_open_at_both_of_its_ends_until_all_pairs_were_measured(
    stored: Stored, states: States
) -> None:
    locate: dict[str, Any] = {"command": "locate"}
    stored(at(1), *"abc", findings=[failed("LOC-006", "a <-> b", "link")], **locate, **BAD)
    assert {host: one.said for host, one in states().items()} == {"a": "fail", "b": "fail", "c": ""}
    some = [passed("LOC-001"), passed("LOC-009", "not_checked")]
    stored(at(2), *"abc", findings=some, **locate)
    assert {host: one.said for host, one in states().items()} == {
        "a": "fail",
        "b": "fail",
        "c": "pass",
    }
    assert states()["a"].open[0].look_again == "wirespeed locate --exhaustive"
    stored(at(3), *"abc", findings=[passed("LOC-001")], **locate)
    assert {one.said for one in states().values()} == {"pass"}


def test_locate_looks_for_every_kind_of_culprit(stored: Stored, states: States) -> None:
    locate: dict[str, Any] = {"command": "locate"}
    stored(at(1), *"abcd", findings=[failed("LOC-001", "b")], **locate, **BAD)
    stored(at(2), *"abcd", findings=[failed("LOC-002", "b")], **locate, **BAD)
    assert [one.id for one in states()["b"].open] == ["LOC-001", "LOC-002"], "named again"
    stored(at(3), *"abcd", findings=[failed("LOC-007", "c")], **locate, **BAD)
    found = states()
    assert (found["b"].said, found["c"].said) == ("pass", "fail"), "looked at, and not named"


def test_a_nic_of_a_node_is_the_nodes(stored: Stored, states: States) -> None:
    found = [failed("LOC-004", "rail 1 of b", "rail"), failed("LOC-003", "rail 0", "rail")]
    stored(at(1), "a", "b", command="locate", findings=found, **BAD)
    assert {host: one.said for host, one in states().items()} == {"a": "", "b": "fail"}


def test_a_slow_network_of_a_watched_job_is_closed_by_locate(
    stored: Stored, states: States
) -> None:
    slow = [failed("WATCH-002", "b")]
    stored(at(1), "a", "b", command="launch", findings=slow, backend="", **BAD)
    stored(at(2), "a", "b", command="launch", findings=[passed("WATCH-013")], backend="")
    assert states()["b"].said == "fail"
    stored(at(3), "a", "b", command="locate", findings=[passed("LOC-001")])
    assert states()["b"].said == "pass"


def test_warnings_open_and_close_as_failures_do(stored: Stored, states: States) -> None:
    stored(at(1), "a", findings=[failed("NODE-014", "a", status="warn")])
    a = states()["a"]
    assert (a.said, a.since, [one.status for one in a.open]) == ("warn", at(1), ["warn"])
    stored(at(2), "a", findings=[failed("NODE-014", "a"), failed("GPU-004", "a", status="warn")])
    a = states()["a"]
    assert (a.said, [(one.id, one.since) for one in a.open]) == (
        "fail",
        [("NODE-014", at(2)), ("GPU-004", at(2))],
    )
    stored(at(3), "a", findings=[passed("NODE-014")])
    assert states()["a"].said == "warn"
    stored(at(4), "a", command="bench", findings=[passed("GPU-004")])
    assert states()["a"].said == "pass"


def test_the_runs_that_told_a_failure_again_are_counted(stored: Stored, states: States) -> None:
    runs = [
        stored(at(day), "a", "b", findings=[failed("GPU-006", "b")], **BAD) for day in (1, 2, 3)
    ]
    (one,) = states()["b"].open
    assert (one.since, list(one.runs)) == (at(1), runs)


def test_a_gate_that_says_good_has_looked_at_what_gates_find(
    stored: Stored, states: States
) -> None:
    gate: dict[str, Any] = {"command": "gate"}
    stored(at(1), "a", "b", findings=[failed("COL-001", "rank 0", "rank")], **BAD)
    stored(at(2), "b", findings=[failed("GPU-006", "b")], **gate, **BAD)
    stored(at(3), "a", **gate)
    stored(at(3), "b", **gate)
    assert {host: one.said for host, one in states().items()} == {"a": "fail", "b": "pass"}
    stored(at(4), "b", findings=[failed("GPU-004", "b")], **gate)
    assert states()["b"].said == "pass", "seen once only, and not yet a fault"
    stored(at(5), "b", findings=[failed("GPU-006", "b")], **BAD)
    stored(at(6), "b", **gate)
    assert states()["b"].said == "fail", "an old gate does not say what it looked at"
    stored(at(7), "b", findings=[passed("GPU-006")], **gate)
    assert states()["b"].said == "pass"


def test_an_old_failure_is_open_until_it_is_looked_at_again(stored: Stored, index: Any) -> None:
    stored("2025-01-01T10:00:00.000Z", "a", "b", findings=[failed("GPU-006", "b")], **BAD)
    stored("2025-02-01T10:00:00.000Z", "a", "b", findings=[failed("COMP-001", "b")], **BAD)
    stored("2025-03-01T10:00:00.000Z", "a", "b", findings=[passed("COMP-001")])
    found = {one.host: one for one in state(index())}
    assert (found["a"].said, found["b"].said, found["b"].since[:7]) == ("", "fail", "2025-01")
    assert [one.id for one in found["b"].open] == ["GPU-006"]


def test_of_a_node_that_was_repaired_nothing_is_known(stored: Stored, states: States) -> None:
    stored(at(1), "a.lab", "b.lab", findings=[failed("GPU-006", "b.lab")], **BAD)
    stored(at(2), command="nodes repaired", config={"node": "b"})
    b = states()["b.lab"]
    assert (b.said, b.since, b.open, b.flaps) == ("", "", (), 0)
    stored(at(3), "b.lab", command="bench", findings=[passed("GPU-006")])
    assert states()["b.lab"].said == ""
    stored(at(4), "b.lab")
    assert states()["b.lab"].said == "pass"


@pytest.mark.parametrize(("boot", "said"), [("one", "fail"), ("two", ""), (None, "")])
def test_another_machine_is_another_node_and_a_container_is_not(
    stored: Stored, states: States, boot: str | None, said: str
) -> None:
    facts = Facts(machine_id="one", machine_boot="one")
    stored(at(1), "a", facts=facts, findings=[failed("GPU-006", "a")], **BAD)
    stored(at(2), "a", command="bench", facts=Facts(machine_id="two", machine_boot=boot))
    assert states()["a"].said == said


# What findings.yaml says of ids.


def test_what_looks_again_is_known() -> None:
    for id, check in EXPLAINED.items():
        rule = check.of_node
        for look in (*rule.cleared_by, *rule.not_cleared_with):
            assert any(f"{one}-".startswith(f"{look}-") for one in EXPLAINED), (id, look)
        if rule.about != "job":
            assert rule.look_again.startswith("wirespeed ") or id in CHECKS, id


def test_ids_of_programs_settings_and_schedulers_are_no_nodes() -> None:
    families = {EXPLAINED[id].family for id in EXPLAINED if is_about_node(id)}
    assert families == {
        *("bandwidth", "compute", "correctness", "counters", "latency", "locating", "network"),
        *("nodes", "soak", "storage", "stragglers", "watch"),
    }
    assert about_node("COL-001,DIED-001,GPU-006,WATCH-001,WATCH-002,X-1") == {
        "COL-001",
        "GPU-006",
        "WATCH-002",
    }


def test_categories_of_nodes_are_those_of_rules() -> None:
    known = {rule.category for rule in all_rules() if rule.stage in ("machine", "network")}
    assert known >= NODE_TROUBLES
    assert is_about_node("KERN-001", "gpu-lost")
    assert not is_about_node("END-001", "host-oom-kill")
