"""COUNT-001 to COUNT-008: what grew during the traffic, how bad that is, and where."""

from typing import Any

import pytest

from wirespeed.checks.counting import FAMILIES, count_findings, with_counters
from wirespeed.checks.registry import CHECKS
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Subject, World

PORT = "RDMA mlx5_3 port 1"
WATCHED = {PORT: 30, "interface eth0": 25, "NVLink GPU 3": 90, "GPU 3": 1, "TCP": 9}
PACKETS = {"port_rcv_packets": 5_000_000, "port_xmit_packets": 5_000_000}
FRAMES = {"rx_packets": 5_000_000, "tx_packets": 5_000_000}


def node(host: str = "n0", **told: Any) -> NodeFacts:
    counters = {
        "seconds": 20.0,
        "watched": WATCHED,
        "grown": {},
        "reset": [],
        "full": [],
        "came": [],
        "gone": [],
        "unread": {},
        **told,
    }
    gpus = ({"index": 3, "uuid": "GPU-3aa", "pci": "0000:1b:00.0"},)
    return NodeFacts(host=host, ranks=(0,), facts=Facts(), gpus=gpus, counters=counters)


def judged(*nodes: NodeFacts) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in count_findings(World(size=2, nodes=nodes, backend="nccl", launcher="local")):
        found.setdefault(one.id, []).append(one)
    return found


def status(id: str, device: str, **counts: int) -> str:
    (found,) = judged(node(grown={device: counts}))[id]
    return found.status


def test_a_healthy_node_passes_all_and_names_what_was_watched() -> None:
    found = judged(node(grown={PORT: {**PACKETS, "port_xmit_wait": 9_000_000}}))
    assert list(found) == list(FAMILIES)
    assert {one.status for ones in found.values() for one in ones} == {"pass"}
    assert found["COUNT-001"][0].title == "links stayed up (2 devices, 20.0 s)"


def test_every_rule_belongs_to_a_family() -> None:
    assert {id for id in CHECKS if id.startswith("COUNT-")} == set(FAMILIES)


def test_a_run_that_read_no_counters_has_no_finding() -> None:
    assert judged(NodeFacts(host="n0", ranks=(0,), facts=Facts())) == {}


@pytest.mark.parametrize(
    "id, device, counts, expected",
    [
        ("COUNT-001", PORT, {"link_downed": 1}, "fail"),
        ("COUNT-001", PORT, {"link_error_recovery": 1}, "fail"),
        ("COUNT-001", "interface eth0", {**FRAMES, "carrier_down_count": 1}, "fail"),
        ("COUNT-001", "interface eth0", {"rx_packets": 7, "carrier_down_count": 1}, "warn"),
        ("COUNT-002", PORT, {"symbol_error": 3}, "warn"),
        ("COUNT-002", PORT, {"symbol_error": 200}, "fail"),
        ("COUNT-002", PORT, {"port_rcv_errors": 1}, "warn"),
        ("COUNT-002", "interface eth0", {"rx_crc_errors": 1}, "warn"),
        ("COUNT-003", PORT, {**PACKETS, "out_of_sequence": 9}, "pass"),
        ("COUNT-003", PORT, {**PACKETS, "out_of_sequence": 90_000}, "warn"),
        ("COUNT-003", PORT, {**PACKETS, "packet_seq_err": 50}, "warn"),
        ("COUNT-003", PORT, {**PACKETS, "packet_seq_err": 5_000}, "fail"),
        ("COUNT-003", PORT, {"packet_seq_err": 5_000}, "warn"),
        ("COUNT-003", PORT, {**PACKETS, "local_ack_timeout_err": 1}, "warn"),
        ("COUNT-003", PORT, {"req_transport_retries_exceeded": 1}, "fail"),
        ("COUNT-003", PORT, {"rx_pkts": 9_000_000, "seq_err_naks_rcvd": 5_000}, "fail"),
        ("COUNT-003", PORT, {"tx_pkts": 9_000_000, "retrans_pkts": 5_000}, "pass"),
        ("COUNT-003", PORT, {"unresponsive_remote_events": 1}, "warn"),
        ("COUNT-004", "interface eth0", {**FRAMES, "rx_prio3_buf_discard": 90}, "warn"),
        ("COUNT-004", PORT, {**PACKETS, "port_xmit_discards": 5_000}, "fail"),
        ("COUNT-004", "interface eth0", {**FRAMES, "rx_missed_errors": 50}, "warn"),
        ("COUNT-004", "interface eth0", {**FRAMES, "rx_dropped": 900}, "pass"),
        ("COUNT-004", "interface eth0", {**FRAMES, "rx_dropped": 90_000}, "warn"),
        ("COUNT-005", "interface eth0", {"rx_prio3_pause": 400}, "pass"),
        ("COUNT-005", "interface eth0", {"rx_prio3_pause": 400_000}, "warn"),
        ("COUNT-005", "interface eth0", {"rx_prio3_pause_duration": 4_000_000}, "warn"),
        ("COUNT-005", "interface eth0", {"tx_prio3_pause_duration": 14_000_000}, "fail"),
        ("COUNT-005", "interface eth0", {"tx_pause_storm_error_events": 1}, "fail"),
        ("COUNT-006", "NVLink GPU 3", {"link 4 replay": 1}, "fail"),
        ("COUNT-007", "GPU 3", {"ECC uncorrectable": 1}, "fail"),
        ("COUNT-008", "TCP", {"OutSegs": 50_000, "RetransSegs": 19}, "pass"),
        ("COUNT-008", "TCP", {"OutSegs": 50_000, "RetransSegs": 90}, "warn"),
        ("COUNT-008", "TCP", {"OutSegs": 50_000, "RetransSegs": 900}, "fail"),
        ("COUNT-008", "TCP", {"OutSegs": 50_000, "RetransSegs": 900, "TCPDSACKRecv": 895}, "pass"),
    ],
)
def test_what_grew_is_judged_with_sense(
    id: str, device: str, counts: dict[str, int], expected: str
) -> None:
    assert status(id, device, **counts) == expected


@pytest.mark.parametrize(
    "name", ["port_xmit_wait", "req_cqe_flush_error", "lifespan", "np_cnp_sent", "multicast"]
)
def test_congestion_and_ordinary_ends_are_no_fault(name: str) -> None:
    found = judged(node(grown={PORT: {**PACKETS, name: 10**9}}))
    assert {one.status for ones in found.values() for one in ones} == {"pass"}


def test_a_finding_names_node_device_counter_growth_and_time() -> None:
    (found,) = judged(node(), node("n1", grown={PORT: {"link_downed": 2}}))["COUNT-001"]
    assert found.subject == Subject("node", "n1")
    assert found.title == "n1: RDMA mlx5_3 port 1: link_downed +2 in 20.0 s of our traffic"
    assert found.saw == "link_downed +2 (0.1/s)"
    assert found.fix
    assert found.next == "wirespeed check --only COUNT-001"


def test_a_gpu_is_named_by_uuid_and_bus() -> None:
    (found,) = judged(node(grown={"NVLink GPU 3": {"link 4 replay": 8}}))["COUNT-006"]
    assert found.evidence == ("NVLink GPU 3: uuid GPU-3aa, pci 0000:1b:00.0",)


def test_two_devices_have_two_findings() -> None:
    other = "RDMA mlx5_4 port 1"
    found = judged(node(grown={PORT: {"link_downed": 1}, other: {"link_downed": 1}}))["COUNT-001"]
    assert [one.title.split(": ")[1] for one in found] == [PORT, other]


@pytest.mark.parametrize(
    "told, id",
    [
        ({"unread": {"NVLink": "reading took longer than 15 s"}}, "COUNT-006"),
        ({"unread": {f"{PORT} counters": "Input/output error: link_downed"}}, "COUNT-001"),
        ({"unread": {"GPU 3": "NVML: GPU is lost"}}, "COUNT-007"),
        ({"reset": [f"{PORT}: symbol_error"]}, "COUNT-002"),
        ({"full": [f"{PORT}: link_downed"]}, "COUNT-001"),
        ({"gone": [PORT]}, "COUNT-003"),
        ({"watched": {}}, "COUNT-004"),
    ],
)
def test_what_is_not_known_is_no_pass(told: dict[str, Any], id: str) -> None:
    (found,) = judged(node(**told))[id]
    assert found.status == ("not_applicable" if told == {"watched": {}} else "not_checked")
    assert found.because


def test_both_ends_of_a_lossy_path_count_and_none_is_accused() -> None:
    lossy = {"TCP": {"OutSegs": 50_000, "RetransSegs": 900}}
    nodes = (node(grown=lossy), node("n1", grown={"TCP": {"OutSegs": 50_000, "RetransSegs": 90}}))
    (found,) = judged(*nodes, node("n2"))["COUNT-008"]
    assert (found.status, found.subject) == ("fail", Subject("job", "job"))
    assert found.title == "TCP had to send again on 2 of 3 nodes"
    world = World(size=3, nodes=nodes, backend="gloo", launcher="local")
    culprit = Finding(id="LOC-001", status="fail", title="slow", subject=Subject("node", "n1"))
    (told,) = with_counters([culprit, found], world)[0].evidence
    assert told == "n1: TCP: RetransSegs +90 in 20.0 s of our traffic (COUNT-008)"


def test_who_loses_on_all_paths_stands_out_of_those_who_met_it() -> None:
    def again(host: str, times: int) -> NodeFacts:
        return node(host, grown={"TCP": {"OutSegs": 50_000, "RetransSegs": times}})

    alike = again("n0", 300), again("n2", 300)
    (found,) = judged(alike[0], again("n1", 2_300), alike[1])["COUNT-008"]
    assert found.subject == Subject("node", "n1")
    assert found.title == "TCP had to send again on 3 of 3 nodes, most of all on n1"
    (found,) = judged(alike[0], again("n1", 800), alike[1])["COUNT-008"]
    assert found.subject == Subject("job", "job")


def test_a_node_that_told_nothing_is_no_pass() -> None:
    silent = NodeFacts(host="n1", ranks=(1,), facts=Facts())
    (found,) = judged(node(), silent)["COUNT-001"]
    assert (found.status, found.because) == ("not_checked", "n1: not told")


def test_counters_of_four_bits_stand_at_their_end_on_healthy_nodes_too() -> None:
    (found,) = judged(node(full=[f"{PORT}: excessive_buffer_overrun_errors"]))["COUNT-002"]
    assert found.status == "pass"


@pytest.mark.parametrize(
    "subject", [Subject("node", "n0"), Subject("rail", "rail 2 of n0"), Subject("rank", "rank 0")]
)
def test_a_culprit_is_told_what_its_own_counters_say(subject: Subject) -> None:
    world = World(
        size=2,
        nodes=(node(grown={PORT: {"link_downed": 2}}), node("n1")),
        backend="nccl",
        launcher="local",
    )
    culprit = Finding(id="LOC-001", status="fail", title="slow", subject=subject, evidence=("a",))
    found = with_counters([culprit, *count_findings(world)], world)
    assert found[0].evidence == (
        "n0: RDMA mlx5_3 port 1: link_downed +2 in 20.0 s of our traffic (COUNT-001)",
        "a",
    )
    other = Finding(id="LOC-001", status="fail", title="slow", subject=Subject("node", "n1"))
    assert with_counters([other, *count_findings(world)], world)[0].evidence == ()
