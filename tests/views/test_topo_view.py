"""Nodes as `wirespeed topo` gathers them; what is shown is read as a user reads it."""

from dataclasses import replace
from typing import Any

import usual
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, Run
from wirespeed.views import render
from wirespeed.views.text import Style

PLAIN = Style(width=100)


def gpu(index: int, numa: int) -> dict[str, Any]:
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 80 << 30,
        "pci": f"0000:{0x1B + index:02x}:00.0",
        "numa_node": numa,
        "pcie_gen_max": 5,
        "pcie_width": 8 if index else 16,
        "pcie_width_max": 16,
        "nvlinks": [True] * 4 + [False] * index,
    }


def node(number: int, **facts: Any) -> NodeFacts:
    """Two GPUs, two RDMA devices with their interfaces, one plain interface, a bridge and veths."""
    told = {
        "kernel": "6.8.0",
        "os": "Ubuntu 24.04.2 LTS",
        "cpu.model": "AMD EPYC 9654",
        "cpu.logical": 384,
        "cpu.physical": 192,
        "numa.nodes": 2,
        "memory.total_bytes": 1536 << 30,
        "gpu.driver": "570.86.15",
        "topo.numa": {"0": "0-95", "1": "96-191"},
        "topo.addresses": {"eth0": [f"10.0.0.{number}"], "lo": ["127.0.0.1"], "docker0": ["172.17.0.1"]},
        "topo.distances": {
            "GPU0": {"GPU1": "SYS", "mlx5_0": "PIX", "ens1": "PIX", "mlx5_1": "SYS", "eth0": "NODE"},
            "GPU1": {"GPU0": "SYS", "mlx5_0": "SYS", "ens1": "SYS", "mlx5_1": "PXB", "eth0": "SYS"},
        },
        "topo.nvlinks": {"GPU0": {"NVSwitch": 4}, "GPU1": {"NVSwitch": 4}},
        "net.interfaces": [{"name": "docker0", "kind": "bridge"}],
    }  # fmt: skip
    rdma = [
        {"device": f"mlx5_{n}", "port": 1, "state": state, "rate": "400 Gb/sec (4X NDR)"}
        | {"pci": f"0000:{0x2A + n:02x}:00.0", "numa_node": n}
        for n, state in enumerate(("ACTIVE", "DOWN"))
    ]
    nics = [
        {"name": "docker0", "loopback": False, "virtual": True, "mtu": 1500},
        {"name": "ens1", "loopback": False, "virtual": False, "mtu": 9000, "pci": "0000:2a:00.0"},
        {"name": "eth0", "loopback": False, "virtual": False, "mtu": 1500, "pci": "0000:03:00.0"}
        | {"speed_Gbitps": 25.0, "driver": "ice", "numa_node": 0},
        {"name": "lo", "loopback": True, "virtual": True, "mtu": 65536},
        {"name": "veth1", "loopback": False, "virtual": True, "mtu": 1500},
    ]
    return NodeFacts(
        host=f"node-{number}",
        ranks=(number,),
        facts=from_json(Facts, told | facts),
        gpus=(gpu(0, 0), gpu(1, 1)),
        nics=tuple(nics),
        rdma=tuple(rdma),
    )


def run(*nodes: NodeFacts, exit_code: int = 0) -> Run:
    world = usual.world(*nodes, size=len(nodes), backend="", launcher="openmpi")
    verdict = "UNKNOWN" if exit_code else "READY"
    return usual.run(command="topo", verdict=verdict, exit_code=exit_code, seconds=0.5, world=world)


def table(*nodes: NodeFacts, style: Style = PLAIN) -> str:
    return render(run(*nodes), "table", style)


def words(text: str) -> list[str]:
    return text.split()


def row(text: str, first: str, holding: str = "") -> list[str]:
    """The words of the first line that begins with `first`, below a line that holds `holding`."""
    lines = text[text.index(holding) :].splitlines()
    return next(line.split() for line in lines if line.split()[:1] == [first])


def test_a_node_with_all_its_devices() -> None:
    text = table(node(0))
    assert text.startswith("wirespeed topo · 1 node · openmpi\n")
    assert "node-0  Ubuntu 24.04.2 LTS · kernel 6.8.0 · NVIDIA driver 570.86.15\n" in text
    assert "AMD EPYC 9654 · 192 cores / 384 threads · 2 NUMA nodes · 1.5 TiB memory" in text
    assert row(text, "0", "numa") == ["0", "0-95", "GPU0", "mlx5_0", "eth0"]
    assert row(text, "GPU0")[-8:] == [*words("0000:1b:00.0 0 gen 5 ×16"), *words("4 to NVSwitch")]
    assert row(text, "GPU1")[-5:] == words("4 to NVSwitch, 1 inactive")
    assert "gen 5 ×8 of ×16" in text
    assert row(text, "mlx5_0", "rdma")[-1] == "ens1"
    assert row(text, "eth0", "nic") == words("eth0 ice 25 Gbit/s 1500 10.0.0.0 0000:03:00.0 0")
    assert text.endswith("500 ms   run 91ae33fe\n")


def test_interfaces_that_carry_nothing_are_left_to_verbose() -> None:
    text = table(node(0))
    assert row(text, "docker0")[1] == "bridge"
    assert "veth1" not in text
    assert "127.0.0.1" not in text
    verbose = table(node(0), style=Style(verbose=True))
    assert "veth1" in verbose
    assert "127.0.0.1" in verbose


def test_the_matrix_tells_each_card_once_and_nvlinks_before_pci() -> None:
    text = table(node(0))
    assert "GPU0 and GPU1: NV4\n" in text
    assert row(text, "distance") == ["distance", "mlx5_0", "mlx5_1", "eth0"]
    assert row(text, "GPU0", "distance") == ["GPU0", "PIX", "SYS", "NODE"]
    assert row(text, "GPU1", "distance") == ["GPU1", "SYS", "PXB", "SYS"]
    for word in ("NV#:", "PIX:", "PXB:", "NODE:", "SYS:"):
        assert word in text
    assert "PHB:" not in text


def test_gpus_that_are_not_all_alike_stand_in_the_matrix() -> None:
    near = {
        "GPU0": {"GPU1": "PIX", "GPU2": "SYS"},
        "GPU1": {"GPU0": "PIX", "GPU2": "SYS"},
        "GPU2": {"GPU0": "SYS", "GPU1": "SYS"},
    }
    links = {"GPU0": {"GPU1": 2}, "GPU1": {"GPU0": 2}}
    text = table(node(0, **{"topo.distances": near, "topo.nvlinks": links}))
    assert row(text, "distance") == ["distance", "GPU0", "GPU1", "GPU2"]
    assert row(text, "GPU0", "distance") == ["GPU0", "X", "NV2", "SYS"]
    assert row(text, "GPU2", "distance") == ["GPU2", "SYS", "SYS", "X"]


def test_one_gpu_has_no_column_for_itself() -> None:
    one = replace(node(0), gpus=(gpu(0, 0),))
    facts = replace(one.facts, topo_distances={"GPU0": {"mlx5_0": "PIX"}}, topo_nvlinks={})
    text = table(replace(one, facts=facts))
    assert row(text, "distance") == ["distance", "mlx5_0"]
    assert row(text, "GPU0", "distance") == ["GPU0", "PIX"]


def test_a_pair_that_is_not_known_is_a_question_mark() -> None:
    near = {"GPU0": {"mlx5_0": "PIX"}, "GPU1": {}}
    text = table(node(0, **{"topo.distances": near, "topo.nvlinks": {}}))
    assert "GPU0 and GPU1: ?\n" in text
    assert row(text, "GPU1", "distance") == ["GPU1", "?"]


def test_nodes_that_are_alike_are_told_once() -> None:
    text = table(*map(node, range(16)))
    assert "node-1 … node-15 (15 nodes): the same as node-0\n" in text
    assert text.count("NVIDIA H100") == 2
    assert table(*map(node, range(3)), style=Style(verbose=True)).count("NVIDIA H100") == 6


def test_a_node_that_differs_stands_by_itself() -> None:
    odd = replace(node(2), gpus=(gpu(0, 0),))
    text = table(node(0), node(1), odd, node(3))
    assert "node-1, node-3 (2 nodes): the same as node-0\n" in text
    assert "node-2  Ubuntu" in text


def test_another_kind_of_instance_is_not_the_same() -> None:
    other = node(1, **{"placement.instance_type": "p5.48xlarge"})
    assert "the same as" not in table(node(0), other)


def test_zones_and_racks_are_listed_for_nodes_that_are_otherwise_alike() -> None:
    def at(number: int, zone: str, rack: str) -> NodeFacts:
        place = {"placement.zone": zone, "placement.zone_id": "use1-az4", "placement.rack": rack}
        return node(number, **place)

    text = table(at(0, "us-east-1a", "r7"), at(1, "us-east-1a", "r7"), at(2, "", "r8"), node(3))
    assert "node-1, node-2, node-3 (3 nodes): the same as node-0" in text
    assert row(text, "us-east-1a", "rack") == words("us-east-1a (use1-az4) r7 node-0, node-1 (2)")
    assert row(text, "use1-az4", "rack") == ["use1-az4", "r8", "node-2"]
    assert row(text, "not", "rack") == ["not", "known", "node-3"]


def test_a_node_without_gpus_and_rdma_says_how_that_is_known() -> None:
    bare = replace(node(0), gpus=(), rdma=())
    on_bus = replace(bare, facts=replace(bare.facts, gpu_on_bus=["0000:1b:00.0"]))
    on_bus = replace(on_bus, unknown={"gpus": "NVML: Driver Not Loaded"})
    blind = replace(bare, unknown={"gpus": "no NVML", "rdma": "/sys: Permission denied"})
    none = replace(bare, facts=replace(bare.facts, gpu_on_bus=[]))
    assert "no NVIDIA GPU; no RDMA device\n" in table(none)
    assert "1 GPU on the PCI bus, and NVML gives none (NVML: Driver Not Loaded)" in table(on_bus)
    assert "no GPU known (no NVML); no RDMA device known (/sys: Permission denied)" in table(blind)


def test_nothing_read_is_unknown_with_the_reasons() -> None:
    empty = NodeFacts(host="a", ranks=(0,), facts=Facts(), unknown={"nics": "cannot be listed"})
    text = render(run(empty, exit_code=3), "table", PLAIN)
    assert "cannot be listed" in text
    assert "UNKNOWN" in text
    assert "exit 3" in text


def test_foreign_text_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in table(node(0, **{"cpu.model": "evil\x1b[2Jcpu"}))


def test_markdown_keeps_the_columns_and_ascii_is_ascii() -> None:
    text = render(run(node(0)), "md", PLAIN)
    assert text.startswith("## Topology\n\n```\nwirespeed topo")
    assert text.endswith("```\n")
    assert render(run(node(0)), "table", Style(ascii=True)).isascii()


def test_colour_is_only_colour() -> None:
    plain, coloured = table(node(0)), table(node(0), style=Style(color=True))
    assert "\x1b[33mSYS" in coloured
    for code in ("0", "1", "2", "32", "33"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert [line.rstrip() for line in coloured.splitlines()] == plain.splitlines()


def test_a_gpu_that_is_lost_says_so_in_its_row() -> None:
    lost = {
        "index": 0,
        "name": "H100",
        "errors": [{"call": "x", "code": 15, "text": "GPU is lost"}],
    }
    text = table(replace(node(0), gpus=(lost,)))
    assert "answers 'GPU is lost'" in text
