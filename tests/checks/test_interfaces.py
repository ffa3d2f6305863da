"""NET-001 to NET-003, from facts written by hand and from this machine's own."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from wirespeed.checks.interfaces import interface_findings
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.node.interface_choice import note_network
from wirespeed.node.reading import Notes

PORT = {"device": "mlx5_0", "port": 1, "state": "ACTIVE"}

IDS = ["NET-001", "NET-002", "NET-003"]


def nic(name: str = "eth0", kind: str = "physical", **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "wired": False, "networks": ["10.0.0.0/24"], **more}


LO = nic("lo", "loopback", networks=["127.0.0.0/8", "::1/128"])
DOCKER = nic("docker0", "bridge", networks=["172.17.0.0/16"])


def node(host: str = "node-a", rank: int = 0, **changes: Any) -> NodeFacts:
    """A node whose name and interfaces are well; `facts` is laid over the good ones."""
    facts = {
        "net.name": host,
        "net.name.addresses": ["10.0.0.5"],
        "net.name.usable": "10.0.0.5",
        "net.name.loopback": False,
        "net.interfaces": [LO, nic()],
        "net.gloo.interface": "eth0",
        "net.gloo.address": "10.0.0.5",
        "net.gloo.why": f"the host name {host} resolves to it",
        "net.nccl.interfaces": ["eth0"],
        "net.nccl.address": "10.0.0.5",
        "net.nccl.why": "every interface but docker*, lo*, virbr*",
        "net.settings": [],
        **changes.pop("facts", {}),
    }
    return NodeFacts(host=host, ranks=(rank,), facts=from_json(Facts, facts), **changes)


def judged(*nodes: NodeFacts, backend: str = "gloo", size: int = 0) -> list[Finding]:
    world = World(size=size or len(nodes), nodes=nodes, backend=backend, launcher="local")
    return interface_findings(world)


def only(id: str, *nodes: NodeFacts, **more: Any) -> Finding:
    (one,) = [found for found in judged(*nodes, **more) if found.id == id]
    if one.status in ("warn", "fail"):
        assert all((one.saw, one.expected, one.because, one.costs, one.fix, one.next)), one
        assert one.subject.name in one.title
    return one


GOOD = node("node-b", 1)


def setting(name: str, value: str, **found: list[str]) -> dict[str, Any]:
    said = {"chosen": [], "missing": [], "bare": [], **found}
    return {"net.settings": [{"name": name, "value": value, **said}]}


def test_good_nodes_pass_everything() -> None:
    found = judged(node(), GOOD)
    assert [(one.id, one.status) for one in found] == [(id, "pass") for id in IDS]
    assert all("2" in one.title for one in found)


def test_no_nodes_have_no_findings() -> None:
    assert judged() == []


def test_one_node_is_never_failed_for_its_name_or_interface() -> None:
    lonely = node(facts={**LOOPBACK, "net.interfaces": [LO]})
    found = judged(lonely)
    assert [one.status for one in found] == ["not_applicable", "pass", "not_applicable"]
    assert "one node" in found[0].because


def test_ranks_elsewhere_make_it_many_nodes() -> None:
    assert only("NET-001", node(facts=LOOPBACK), size=2).status == "fail"


def test_this_machine_alone_is_not_failed() -> None:
    notes = Notes()
    note_network(notes, {}, [], [])
    here = NodeFacts(host="here", ranks=(0,), facts=notes.facts, unknown=notes.unknown)
    found = judged(here)
    assert [one.id for one in found] == IDS
    assert {one.status for one in found} <= {"pass", "not_applicable"}


def test_a_setting_that_this_machine_has_not_fails_with_its_message() -> None:
    notes = Notes()
    note_network(notes, {"GLOO_SOCKET_IFNAME": "ib77"}, [], [])
    one = only("NET-002", NodeFacts(host="here", ranks=(0,), facts=notes.facts))
    assert one.status == "fail"
    assert "Unable to find address for: ib77" in one.costs
    assert "lo" in one.saw


# NET-001.

LOOPBACK = {
    "net.name.addresses": ["127.0.1.1"],
    "net.name.usable": "127.0.1.1",
    "net.name.loopback": True,
    "net.gloo.interface": "lo",
    "net.gloo.address": "127.0.1.1",
}


def test_debian_s_line_in_etc_hosts_fails() -> None:
    one = only("NET-001", node(facts=LOOPBACK), GOOD)
    assert one.status == "fail"
    assert one.subject.name == "node-a"
    assert "remote=[127.0.1.1]" in one.costs
    assert "GLOO_SOCKET_IFNAME=eth0" in one.fix
    assert "/etc/hosts" in one.because


def test_with_an_interface_set_the_name_does_not_matter() -> None:
    chosen = setting("GLOO_SOCKET_IFNAME", "eth0", chosen=["eth0"])
    found = only("NET-001", node(facts={**LOOPBACK, **chosen}), GOOD)
    assert found.status == "pass"


def test_a_name_that_does_not_resolve_warns_with_the_reason() -> None:
    lost = node(unknown={"net.name.addresses": "no answer to 'node-a' within 1 s"})
    names = ("net_name_addresses", "net_name_usable", "net_name_loopback")
    lost = replace(lost, facts=replace(lost.facts, **dict.fromkeys(names)))
    one = only("NET-001", lost, GOOD)
    assert one.status == "warn"
    assert one.because == "no answer to 'node-a' within 1 s"
    assert "does not resolve" in one.title


def test_an_address_of_no_interface_warns() -> None:
    old = {"net.name.addresses": ["203.0.113.9"], "net.name.usable": ""}
    one = only("NET-001", node(facts=old), GOOD)
    assert one.status == "warn"
    assert "203.0.113.9, which is on none of its interfaces" in one.title


def test_a_node_that_reported_nothing_is_not_passed() -> None:
    blind = NodeFacts(
        host="node-a", ranks=(0,), facts=Facts(), unknown={"net.interfaces": "no netlink"}
    )
    found = [one for one in judged(blind, GOOD) if one.subject.name != "node-b"]
    assert [(one.id, one.status) for one in found] == [(id, "not_checked") for id in IDS]
    assert all("no netlink" in one.because for one in found)


# NET-002.


@pytest.mark.parametrize(
    ("name", "rdma", "status"),
    [
        ("GLOO_SOCKET_IFNAME", (), "fail"),
        ("NCCL_SOCKET_IFNAME", (), "fail"),
        ("NCCL_IB_HCA", (PORT,), "fail"),
        ("NCCL_IB_HCA", (), "warn"),
        ("UCX_NET_DEVICES", (PORT,), "warn"),
        ("TP_SOCKET_IFNAME", (), "warn"),
        ("OMPI_MCA_btl_tcp_if_include", (), "warn"),
    ],
)
def test_a_setting_that_matches_nothing(
    name: str, rdma: tuple[dict[str, Any], ...], status: str
) -> None:
    lost = node(facts=setting(name, "ib0", missing=["ib0"]), rdma=rdma)
    one = only("NET-002", lost, GOOD)
    assert one.status == status
    assert f"{name}=ib0: nothing is called 'ib0'" in one.title


def test_an_interface_without_an_address_is_told_apart() -> None:
    bare = setting("GLOO_SOCKET_IFNAME", "eth0,ens9", chosen=["eth0"], bare=["ens9"])
    one = only("NET-002", node(facts=bare), GOOD)
    assert one.status == "fail"
    assert "ens9 has no address" in one.title


def test_a_prefix_of_several_may_match_nothing() -> None:
    some = setting("NCCL_SOCKET_IFNAME", "ib,eth", chosen=["eth0"], missing=["ib"])
    assert only("NET-002", node(facts=some), GOOD).status == "pass"


def test_a_lost_adapter_among_others_warns() -> None:
    some = setting("NCCL_IB_HCA", "=mlx5_0,mlx5_9", chosen=["mlx5_0:1"], missing=["mlx5_9"])
    one = only("NET-002", node(facts=some, rdma=(PORT,)), GOOD)
    assert one.status == "warn"
    assert "RDMA ports: mlx5_0:1" in one.saw


def test_excluding_everything_leaves_nothing() -> None:
    gone = setting("NCCL_SOCKET_IFNAME", "^e,lo")
    one = only("NET-002", node(facts=gone), GOOD)
    assert one.status == "fail"
    assert "nothing is left" in one.title


TWO = [nic("eth0", networks=["10.0.0.0/24"]), nic("eth1", networks=["10.1.0.0/24"])]
CROSSED = [nic("eth0", networks=["10.1.0.0/24"]), nic("eth1", networks=["10.0.0.0/24"])]


def pick(host: str, rank: int, interfaces: list[dict[str, Any]], name: str) -> NodeFacts:
    chosen = setting("NCCL_SOCKET_IFNAME", "eth", chosen=[name])
    return node(host, rank, facts={"net.interfaces": interfaces, **chosen})


@pytest.mark.parametrize(
    ("interfaces", "name"),
    [(TWO, "eth1"), (CROSSED, "eth0"), ([nic("eth5", networks=["10.5.0.0/24"])], "eth5")],
)
def test_one_prefix_on_two_networks_warns(interfaces: list[dict[str, Any]], name: str) -> None:
    one = only("NET-002", pick("node-a", 0, TWO, "eth0"), pick("node-b", 1, interfaces, name))
    assert one.status == "warn"
    assert one.subject.name == "node-b"
    assert f"picks {name} on another network than eth0 of node-a" in one.title


@pytest.mark.parametrize(
    ("interfaces", "name"),
    [
        (TWO, "eth0"),
        ([nic("eth3", networks=["10.0.0.0/24"])], "eth3"),  # another name, the same network
        ([nic("eth0", networks=["10.5.0.0/24"])], "eth0"),  # a network a rack, with routes
    ],
)
def test_one_prefix_on_one_network_passes(interfaces: list[dict[str, Any]], name: str) -> None:
    found = only("NET-002", pick("node-a", 0, TWO, "eth0"), pick("node-b", 1, interfaces, name))
    assert found.status == "pass"


# NET-003.


def choosing(one: dict[str, Any], *others: dict[str, Any], **more: Any) -> NodeFacts:
    facts = {
        "net.interfaces": [LO, one, *others],
        "net.gloo.interface": one["name"],
        "net.nccl.interfaces": [one["name"]],
    }
    return node(facts={**facts, **more.pop("facts", {})}, **more)


@pytest.mark.parametrize(
    ("one", "others", "status"),
    [
        (DOCKER, (nic(),), "fail"),
        (DOCKER, (), "fail"),
        (nic("virbr0", "bridge"), (nic(),), "fail"),
        (nic("br-0123456789ab", "bridge"), (nic(),), "fail"),
        (nic("cni0", "bridge"), (nic(),), "warn"),
        (nic("br0", "bridge"), (nic(),), "warn"),
        (nic("br0", "bridge", wired=True), (nic(),), "pass"),
        (nic("veth12ab", "veth"), (nic(),), "warn"),
        (nic("eth0", "veth"), (), "pass"),
        (nic("eth0", "veth"), (nic("eth1", "veth"),), "pass"),
        (nic("tun0", "tunnel"), (nic(),), "warn"),
        (nic("eno1", "bond member"), (nic("bond0", "bond"),), "warn"),
        (nic("bond0", "bond"), (nic(),), "pass"),
        (nic("eth0.5", "vlan"), (nic(),), "pass"),
        (nic("eth0", "unknown"), (nic("eth1"),), "pass"),
    ],
)
def test_kinds(one: dict[str, Any], others: tuple[dict[str, Any], ...], status: str) -> None:
    found = only("NET-003", choosing(one, *others), GOOD)
    assert found.status == status
    if status != "pass":
        assert one["name"] in found.title


def test_loopback_between_nodes_fails() -> None:
    found = only("NET-003", node(facts={"net.gloo.interface": "lo"}), GOOD)
    assert found.status == "fail"
    assert "GLOO_SOCKET_IFNAME=eth0" in found.fix


def test_a_slow_interface_beside_an_idle_fast_one_warns() -> None:
    slow, fast = nic("eno1", speed_Gbitps=1.0), nic("ens1", speed_Gbitps=100.0)
    found = only("NET-003", choosing(slow, fast), GOOD)
    assert found.status == "warn"
    assert "1 Gbit/s, while ens1 with 100 Gbit/s is idle" in found.title
    assert "GLOO_SOCKET_IFNAME=ens1" in found.fix
    assert only("NET-003", choosing(fast, slow), GOOD).status == "pass"
    unlike = choosing(nic("eno1", speed_Gbitps=25.0), nic("ens1", speed_Gbitps=40.0))
    assert only("NET-003", unlike, GOOD).status == "pass"


def test_a_fast_bridge_for_containers_is_no_rival() -> None:
    slow, bridge = nic("eno1", speed_Gbitps=1.0), {**DOCKER, "speed_Gbitps": 10.0}
    assert only("NET-003", choosing(slow, bridge), GOOD).status == "pass"


def test_nccl_s_sockets_may_be_slow_where_rdma_carries_the_data() -> None:
    slow, fast = nic("eno1", speed_Gbitps=1.0), nic("ens1", speed_Gbitps=100.0)
    over = choosing(slow, fast, rdma=(PORT,))
    assert only("NET-003", over, GOOD, backend="nccl").status == "pass"
    off = choosing(slow, fast, rdma=(PORT,), environment={"NCCL_IB_DISABLE": "1"})
    assert only("NET-003", off, GOOD, backend="nccl").status == "warn"
    left = choosing(slow, fast, rdma=(PORT,), facts={"net.hca": []})
    assert only("NET-003", left, GOOD, backend="nccl").status == "warn"


def test_every_interface_of_nccl_s_sockets_counts() -> None:
    veth = nic("veth12ab", "veth", networks=[])
    both = {"net.interfaces": [LO, nic(), veth], "net.nccl.interfaces": ["eth0", "veth12ab"]}
    found = only("NET-003", node(facts=both), GOOD, backend="nccl")
    assert found.status == "warn"
    assert "NCCL chooses veth12ab" in found.title
    assert only("NET-003", node(facts=both), GOOD, backend="gloo").status == "pass"


def test_findings_are_json() -> None:
    found = judged(node(facts=LOOPBACK), GOOD)
    assert json.dumps([asdict(one) for one in found])
