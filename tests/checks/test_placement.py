"""PLACE-001 and PLACE-002: spread nodes are named, and what is not known never passes."""

from typing import Any

import pytest

from wirespeed.checks.placement import placement_findings, placement_of
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts
from wirespeed.node.placement import Placement

SILENT = Placement(reason="aws: no answer in time")


def at(zone: str = "us-east-1a", **more: Any) -> Placement:
    return Placement(**{"source": "aws", "zone": zone, "region": "us-east-1", **more})


def judged(*placements: Placement) -> list[Finding]:
    return placement_findings([(f"node-{i}", one) for i, one in enumerate(placements)])


def zones(*placements: Placement) -> Finding:
    (found,) = [one for one in judged(*placements) if one.id == "PLACE-001"]
    return found


def nearness(*placements: Placement) -> list[Finding]:
    return [one for one in judged(*placements) if one.id == "PLACE-002"]


# Zones.


def test_no_nodes_have_no_findings() -> None:
    assert placement_findings([]) == []


def test_one_node_is_not_compared() -> None:
    found = judged(at())
    assert [(one.id, one.status) for one in found] == [
        ("PLACE-001", "not_applicable"),
        ("PLACE-002", "not_applicable"),
    ]
    assert found[0].because == "one node"


def test_one_zone_passes() -> None:
    found = zones(at(), at(), at())
    assert found.status == "pass"
    assert found.title == "all 3 nodes are in one availability zone, us-east-1a"


def test_two_zones_fail_where_one_was_asked_for() -> None:
    placed = [("n0", at()), ("n1", at("us-east-1b"))]
    (zones, near) = placement_findings(placed, asserted=True)
    assert (zones.id, zones.status) == ("PLACE-001", "fail")
    assert near.status == "not_checked"
    assert placement_findings([("n0", at()), ("n1", at())], asserted=True)[0].status == "pass"


def test_two_zones_warn_and_say_who_is_where() -> None:
    found = zones(at(), at("us-east-1b"), at())
    assert found.status == "warn"
    assert found.title == (
        "the nodes are spread over 2 availability zones: "
        "us-east-1a (node-0, node-2), us-east-1b (node-1)"
    )
    assert "EFA" in found.costs
    assert "placement group" in found.fix
    assert found.next == "wirespeed locate"
    assert found.evidence == ("us-east-1a: node-0, node-2", "us-east-1b: node-1")


def test_two_regions_fail() -> None:
    found = zones(at(), at("us-west-2a", region="us-west-2"))
    assert found.status == "fail"
    assert "2 regions: us-east-1 (node-0), us-west-2 (node-1)" in found.title


def test_zone_ids_say_what_names_do_not() -> None:
    # Two accounts: other names for one zone, and one name for two zones.
    assert zones(
        at("us-east-1a", zone_id="use1-az4"), at("us-east-1c", zone_id="use1-az4")
    ).status == ("pass")
    found = zones(at("us-east-1a", zone_id="use1-az4"), at("us-east-1a", zone_id="use1-az6"))
    assert found.status == "warn"
    assert "use1-az4 (node-0), use1-az6 (node-1)" in found.title


def test_a_name_counts_as_the_id_that_another_node_pairs_it_with() -> None:
    assert zones(at(zone_id="use1-az4"), at()).status == "pass"
    assert zones(at(zone_id="use1-az4"), at("us-east-1b")).status == "warn"


def test_a_name_and_an_id_without_name_are_not_compared() -> None:
    found = zones(at("", zone_id="use1-az4"), at("us-east-1a"))
    assert found.status == "not_checked"
    assert "node-1" in found.because


def test_a_name_of_two_zones_says_nothing() -> None:
    found = zones(at(zone_id="use1-az4"), at(zone_id="use1-az6"), at())
    assert found.status == "warn"
    assert found.evidence[-1].startswith("node-2: not known")


@pytest.mark.parametrize(
    "silent", [SILENT, Placement(), Placement(reason="gcp: zone: the answer is HTML")]
)
def test_an_unknown_node_is_no_pass(silent: Placement) -> None:
    found = zones(at(), at(), silent)
    assert found.status == "not_checked"
    assert found.because.startswith(f"node-2: {silent.reason}")
    assert found.saw == "us-east-1a (node-0, node-1)"


def test_no_known_node_is_no_pass() -> None:
    found = zones(SILENT, SILENT)
    assert found.status == "not_checked"
    assert found.because == "node-0, node-1: aws: no answer in time"
    assert "WIRESPEED_ZONE" in found.fix


def test_nodes_known_to_differ_are_told_though_one_is_silent() -> None:
    found = zones(at(), at("us-east-1b"), SILENT)
    assert found.status == "warn"
    assert found.evidence[-1] == "node-2: not known, aws: no answer in time"


def test_a_region_alone_is_no_zone() -> None:
    found = zones(at("", reason="zone: the answer is empty"), at("", reason="no zone"))
    assert found.status == "not_checked"
    assert found.saw == "region us-east-1 (node-0, node-1)"


def test_a_long_title_is_cut_and_the_evidence_is_whole() -> None:
    found = zones(*[at(f"us-east-1{letter}") for letter in "abcdefabcdefaaaa"])
    assert "us-east-1a (node-0, node-6, node-12, node-13 and 2 more)" in found.title
    assert found.title.endswith("and 2 more")
    assert len(found.evidence) == 6
    assert "node-15" in found.evidence[0]


# Nearness.


def test_two_zones_leave_nearness_open() -> None:
    (found,) = nearness(at(rack="a"), at("us-east-1b", rack="b"))
    assert found.status == "not_checked"
    assert "PLACE-001" in found.because


def test_one_placement_group_passes() -> None:
    (found,) = nearness(at(placement_group="train"), at(placement_group="train"))
    assert (found.status, found.title) == ("pass", "1 placement group for 2 nodes")


def test_two_placement_groups_warn() -> None:
    (found,) = nearness(at(placement_group="train"), at(placement_group="other"))
    assert found.status == "warn"
    assert "train (node-0), other (node-1)" in found.title


@pytest.mark.parametrize(
    ("racks", "status"),
    [
        ("aa", "pass"),
        ("ab", "warn"),
        ("aabb", "pass"),
        ("aaab", "pass"),
        ("aabc", "warn"),
        ("abc", "warn"),
    ],
)
def test_racks_beyond_what_the_nodes_need_warn(racks: str, status: str) -> None:
    (found,) = nearness(*[at(rack=rack) for rack in racks])
    assert found.status == status


def test_nodes_on_one_machine_warn() -> None:
    (found,) = nearness(at(physical_host="h1"), at(physical_host="h1"), at(physical_host="h2"))
    assert found.status == "warn"
    assert found.title == "nodes share a physical machine: h1 (node-0, node-1)"


def test_nothing_nearer_than_a_zone_is_no_pass() -> None:
    for placed in (
        [at(), at()],
        [at(physical_host="h1"), at(physical_host="h2")],
        [SILENT, SILENT],
    ):
        assert [one.status for one in nearness(*placed)] == ["not_checked"]


def test_a_rack_that_is_not_known_is_no_pass() -> None:
    (found,) = nearness(at(rack="a"), at(rack="a"), at())
    assert found.status == "not_checked"
    assert found.because == "no rack is known of node-2"


# Facts of a node.


def test_the_placement_of_a_node_comes_back_from_its_facts() -> None:
    facts = {"placement.source": "aws", "placement.zone": "us-east-1a", "kernel": "6.8"}
    node = NodeFacts(host="a", ranks=(0,), facts=from_json(Facts, facts))
    assert placement_of(node) == Placement(source="aws", zone="us-east-1a")


def test_why_a_node_has_no_placement_comes_back() -> None:
    node = NodeFacts(host="a", ranks=(0,), facts=Facts(), unknown={"placement": "no answer"})
    assert placement_of(node) == Placement(reason="no answer")
    assert placement_of(NodeFacts(host="a", ranks=(0,), facts=Facts())).reason == "not reported"


def test_every_finding_is_explained() -> None:
    found = judged(at(), at("us-east-1b")) + judged(at(), at())
    assert {one.id for one in found} == {"PLACE-001", "PLACE-002"}
