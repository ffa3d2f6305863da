"""Who is to blame for shut ports, lost packets, wrong clocks and names."""

from typing import Any

import pytest

from wirespeed.checks.judge import cause_first
from wirespeed.checks.reach import reach_findings
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Subject, World

Edges = dict[tuple[int, int], dict[str, Any]]


def world(nodes: int, edges: Edges, **default: Any) -> World:
    """Every node has looked at every other, and saw `default` but for `edges` (from, to)."""

    def seen(source: int, target: int) -> dict[str, Any]:
        good = {"rank": target, "host": f"node-{target}", "address": f"10.0.0.{target + 1}"}
        return {**good, "port": 4000, "tcp": "", **default, **edges.get((source, target), {})}

    facts = [
        NodeFacts(
            host=f"node-{a}",
            ranks=(a,),
            facts=Facts(),
            peers=tuple(seen(a, b) for b in range(nodes) if b != a),
        )
        for a in range(nodes)
    ]
    return World(size=nodes, nodes=tuple(facts), backend="gloo", launcher="env")


def named(findings: list[Finding], id: str) -> set[tuple[str, str, str]]:
    return {
        (one.status, one.subject.kind, one.subject.name)
        for one in findings
        if one.id == id and one.subject
    }


def statuses(findings: list[Finding]) -> dict[str, str]:
    return {one.id: one.status for one in findings}


def test_good_paths_pass_each_check_once() -> None:
    good = {"mtu": 1500, "passes": 1500, "clock_offset_s": 1e-5, "clock_error_s": 2e-5}
    found = reach_findings(world(3, {}, **good, resolves=["10.0.0.1"]))
    assert [(one.id, one.status) for one in found] == [
        (f"NET-00{number}", "pass") for number in (4, 5, 6, 7)
    ]


def test_one_node_is_not_checked() -> None:
    found = reach_findings(world(1, {}))
    assert set(statuses(found).values()) == {"not_applicable"}
    assert all(one.because == "one node" for one in found)


SHUT = {"tcp": "no answer within 2 s"}


def test_a_node_that_nobody_reaches_is_shut_in() -> None:
    found = reach_findings(world(4, {(0, 2): SHUT, (1, 2): SHUT, (3, 2): SHUT}))
    assert named(found, "NET-004") == {("fail", "node", "node-2")}


def test_all_nodes_shut_are_all_named() -> None:
    everyone = {(a, b): SHUT for a in range(3) for b in range(3) if a != b}
    found = reach_findings(world(3, everyone))
    assert named(found, "NET-004") == {("fail", "node", f"node-{index}") for index in range(3)}


def test_a_node_that_reaches_nobody_is_shut_out() -> None:
    found = reach_findings(world(4, {(1, 0): SHUT, (1, 2): SHUT, (1, 3): SHUT}))
    assert named(found, "NET-004") == {("fail", "node", "node-1")}
    assert "cannot connect to other nodes" in next(
        one.title for one in found if one.status == "fail"
    )


def test_one_pair_alone_is_a_link() -> None:
    found = reach_findings(world(4, {(1, 3): SHUT}))
    assert named(found, "NET-004") == {("fail", "link", "node-1 -> node-3")}


def test_a_loopback_address_is_another_findings_matter() -> None:
    refused = {"tcp": "connection refused", "address": "127.0.1.1"}
    found = reach_findings(world(3, {(0, 2): refused, (1, 2): refused}))
    assert statuses(found)["NET-004"] == "pass"


def test_the_node_behind_a_small_mtu_is_named() -> None:
    lost = {"passes": 1400}
    bad = {(0, 1): lost, (2, 1): lost, (1, 3): lost}
    found = reach_findings(world(4, bad, mtu=1500, passes=1500))
    assert named(found, "NET-005") == {("fail", "node", "node-1")}
    (one,) = (one for one in found if one.status == "fail")
    assert "1400" in one.title and len(one.evidence) == 3


def test_of_two_nodes_the_link_is_named() -> None:
    lost = {"passes": 1400}
    found = reach_findings(world(2, {(0, 1): lost, (1, 0): lost}, mtu=1500, passes=1500))
    assert named(found, "NET-005") == {("fail", "link", "node-0 <-> node-1")}


def test_two_bad_nodes_are_both_named() -> None:
    lost = {"passes": 1400}
    bad = {(a, b): lost for a in range(5) for b in (1, 3) if a not in (1, 3)}
    found = reach_findings(world(5, bad, mtu=1500, passes=1500))
    assert named(found, "NET-005") == {("fail", "node", "node-1"), ("fail", "node", "node-3")}


@pytest.mark.parametrize(("offset", "way"), [(2.0, "behind"), (-2.0, "ahead of")])
def test_the_node_with_the_wrong_clock_is_named(offset: float, way: str) -> None:
    """Node 2 sees the first node's clock `offset` later than its own."""
    good = {"clock_offset_s": 1e-5, "clock_error_s": 1e-4}
    found = reach_findings(world(4, {(2, 0): {"clock_offset_s": offset}}, **good))
    assert named(found, "NET-006") == {("warn", "node", "node-2")}
    assert any(way in one.title for one in found)


def test_the_first_nodes_clock_may_be_the_wrong_one() -> None:
    found = reach_findings(world(4, {}, clock_offset_s=2.0, clock_error_s=1e-4))
    assert named(found, "NET-006") == {("warn", "node", "node-0")}


def test_an_offset_within_its_error_is_no_finding() -> None:
    found = reach_findings(world(3, {}, clock_offset_s=0.3, clock_error_s=0.25))
    assert statuses(found)["NET-006"] == "pass"


def test_a_name_that_is_not_found_is_told() -> None:
    lost = {"resolves": [], "resolve_error": "Name or service not known"}
    found = reach_findings(world(3, {(1, 2): lost}, resolves=["10.0.0.9"]))
    assert named(found, "NET-007") == {("warn", "node", "node-1")}


def test_a_name_that_leads_to_loopback_is_wrong_unless_the_node_is_there() -> None:
    """Launchers may call two tasks of one machine two nodes."""
    lost = {"resolves": ["127.0.1.1"]}
    assert statuses(reach_findings(world(2, {}, **lost)))["NET-007"] == "warn"
    here = {**lost, "address": "127.0.0.1"}
    assert statuses(reach_findings(world(2, {}, **here)))["NET-007"] == "pass"


def test_names_that_nobody_can_look_up_are_not_used() -> None:
    found = reach_findings(world(3, {}, resolves=[], resolve_error="unknown"))
    assert statuses(found)["NET-007"] == "not_checked"


def test_silence_by_udp_is_not_checked() -> None:
    found = reach_findings(world(2, {}, mtu=1500, why="no answer by UDP"))
    assert statuses(found)["NET-005"] == "not_checked"
    assert any(one.because == "no answer by UDP" for one in found)


def finding(id: str, status: Any, name: str) -> Finding:
    return Finding(id=id, status=status, title=id, subject=Subject("node", name))


def test_what_keeps_a_world_from_joining_comes_first() -> None:
    raised = finding("RAISED-001", "fail", "rank 0")
    shut, slow = finding("NET-004", "fail", "node-2"), finding("NODE-014", "warn", "node-1")
    found = cause_first([raised], [slow, shut], joined=False)
    assert [(one.id, one.status) for one in found] == [
        ("NET-004", "fail"),
        ("RAISED-001", "warn"),
        ("NODE-014", "warn"),
    ]
    assert found[1].because == "a consequence of NET-004 on node-2"


def test_after_joining_the_watchdog_is_right() -> None:
    died, shut = finding("DIED-001", "fail", "rank 0"), finding("NET-004", "fail", "node-2")
    assert cause_first([died], [shut], joined=True) == [died, shut]


def test_lost_packets_explain_a_hang() -> None:
    hung, lost = finding("HANG-004", "fail", "job"), finding("NET-005", "fail", "node-1")
    found = cause_first([hung], [lost], joined=True)
    assert [(one.id, one.status) for one in found] == [("NET-005", "fail"), ("HANG-004", "warn")]


def test_a_link_that_went_down_is_why_a_rank_raised() -> None:
    down = Finding(id="COUNT-001", status="fail", title="n0: link_downed +1")
    raised = Finding(id="RAISED-001", status="fail", title="rank 1 raised")
    died = Finding(id="DIED-001", status="fail", title="rank 1 died")
    found = cause_first([raised], [down], joined=True)
    assert [(one.id, one.status) for one in found] == [
        ("COUNT-001", "fail"),
        ("RAISED-001", "warn"),
    ]
    assert cause_first([died], [down], joined=True) == [died, down], "who killed it is known"
