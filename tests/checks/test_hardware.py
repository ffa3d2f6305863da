"""NODE-010 to NODE-016: a healthy node with one thing changed at a time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from found import only
from wirespeed.checks.judge import hardware_findings
from wirespeed.checks.registry import EXPLAINED
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.node.facts import gather_node
from wirespeed.node.machine import note_hardware
from wirespeed.node.nics import gather_rdma
from wirespeed.node.reading import Notes

GIB = 1 << 30
LINK = {"pcie_GTps": 32.0, "pcie_GTps_max": 32.0, "pcie_width": 16, "pcie_width_max": 16}
PORT = {
    "device": "mlx5_0",
    "port": 1,
    "state": "ACTIVE",
    "rate": "400 Gb/sec (4X NDR)",
    "rate_Gbitps": 400.0,
    "width": 4,
    "link_layer": "InfiniBand",
    "board": "MT_0000000838",
    "driver": "mlx5_core",
    "pci": "0000:1c:00.0",
    **LINK,
}
NIC = {
    "name": "ens1",
    "loopback": False,
    "virtual": False,
    "families": ["ipv4"],
    "speed_Gbitps": 100.0,
    "speed_max_Gbitps": 100.0,
    "pci": "0000:2a:00.0",
    **LINK,
}
LO = {"name": "lo", "loopback": True, "virtual": True, "families": ["ipv4"]}
GPU = {"index": 0, "name": "H100", "pci": "0000:1b:00.0"}
FACTS = {
    "kernel": "6.8.0",
    "machine.virtual": False,
    "machine.hides_devices": "",
    "gpudirect.peer_module": "nvidia_peermem",
    "gpudirect.dmabuf_kernel": True,
    "gpu.open_modules": True,
    "iommu.groups": {"0000:1b:00.0": "identity"},
    "iommu.kernel": ["iommu=pt"],
    "acs.redirects": {},
    "cpu.governor": "performance",
    "cpu.scaling_driver": "intel_pstate",
    "cpu.logical": 224,
    "cpu.shared": 224,
    "cpu.quota": "unlimited",
    "memory.total_bytes": 2048 * GIB,
    "memory.available_bytes": 1900 * GIB,
    "memory.limit_bytes": "unlimited",
}

IDS = [*(f"NODE-{i:03d}" for i in range(10, 17)), *(f"GPU-{i:03d}" for i in range(5, 14))]
EXPLANATIONS = {id: EXPLAINED[id].explanation for id in IDS}


def ports(**changed: Any) -> tuple[dict[str, Any], ...]:
    """Four ports of which the third is changed."""
    return tuple(
        {**PORT, "device": f"mlx5_{i}", "pci": f"0000:1{i}:00.0", **(changed if i == 2 else {})}
        for i in range(4)
    )


def node(host: str = "a", **changes: Any) -> NodeFacts:
    """A healthy node; `facts` is laid over the healthy ones, None takes one away."""
    facts = {**FACTS, **changes.pop("facts", {})}
    healthy = NodeFacts(
        host=host,
        ranks=tuple(range(8)),
        facts=from_json(Facts, {name: value for name, value in facts.items() if value is not None}),
        gpus=({**GPU}, {**GPU, "index": 1}),
        nics=(NIC, LO),
        rdma=ports(),
    )
    return replace(healthy, **changes)


def judged(*nodes: NodeFacts, backend: str = "nccl") -> list[Finding]:
    size = sum(len(one.ranks) for one in nodes)
    return hardware_findings(World(size=size, nodes=nodes, backend=backend, launcher="torchrun"))


def test_healthy_nodes_pass_each_check_once() -> None:
    found = [one for one in judged(node("a"), node("b")) if one.id.startswith("NODE")]
    assert [(one.id, one.status) for one in found] == [
        (id, "pass") for id in EXPLANATIONS if id.startswith("NODE")
    ]
    assert all(one.title.endswith("on 2 nodes") for one in found)


def test_findings_come_in_the_order_of_the_explanations() -> None:
    assert [one.id for one in judged(node())] == list(EXPLANATIONS)


@pytest.mark.parametrize(
    ("changes", "id", "saw"),
    [
        ({"nics": ({**NIC, "speed_Gbitps": 25.0}, LO)}, "NODE-010", "ens1: 25 of 100 Gbit/s"),
        ({"nics": ({**NIC, "pcie_width": 8}, LO)}, "NODE-010", "ens1: PCIe x8 of x16"),
        ({"rdma": ports(pcie_GTps=8.0)}, "NODE-010", "mlx5_2 port 1: PCIe 8 of 32 GT/s"),
        (
            {"rdma": ports(pcie_GTps=16.0, pcie_GTps_max=16.0)},
            "NODE-010",
            "mlx5_2 port 1: PCIe 16 GT/s x16 carries 252 Gbit/s, its port 400",
        ),
        (
            {"rdma": ports(rate="200 Gb/sec (4X HDR)", rate_Gbitps=200.0)},
            "NODE-011",
            "mlx5_2 port 1: 200 Gb/sec (4X HDR), mlx5_0 400 Gb/sec",
        ),
        (
            {"rdma": ports(rate="400 Gb/sec (2X XDR)", width=2)},
            "NODE-011",
            "mlx5_2 port 1: 400 Gb/sec (2X XDR), not 4X",
        ),
        (
            {"facts": {"gpudirect.peer_module": "", "gpu.open_modules": False}},
            "NODE-012",
            "/sys/module/nvidia_peermem is not there; kernel 6.8.0, closed NVIDIA modules",
        ),
        (
            {"facts": {"iommu.groups": {"0000:1b:00.0": "DMA-FQ"}}},
            "NODE-013",
            "IOMMU translates for 1 GPU and RDMA devices (DMA-FQ); kernel started with iommu=pt",
        ),
        (
            {"facts": {"acs.redirects": {"0000:1a:00.0": "ReqRedir+"}}},
            "NODE-013",
            "ACS is on at 1 PCI bridges above GPU and RDMA devices; kernel started with iommu=pt",
        ),
        (
            {"facts": {"cpu.governor": "ondemand", "cpu.scaling_driver": "acpi-cpufreq"}},
            "NODE-014",
            "ondemand (acpi-cpufreq) (/sys/devices/system/cpu/cpu0/cpufreq)",
        ),
        ({"facts": {"cpu.quota": 4.0}}, "NODE-015", "a CPU quota of 4 for 8 ranks"),
        ({"facts": {"cpu.shared": 6}}, "NODE-015", "6 CPUs for 8 ranks"),
        (
            {"facts": {"memory.available_bytes": 80 * GIB}},
            "NODE-016",
            "80 GiB of 2 TiB free (MemAvailable, and what our cgroup leaves)",
        ),
        (
            {"facts": {"memory.limit_bytes": 8 * GIB, "memory.available_bytes": GIB // 2}},
            "NODE-016",
            "512 MiB of 8 GiB free (MemAvailable, and what our cgroup leaves)",
        ),
    ],
)
def test_one_fault_is_one_warning_about_its_node(
    changes: dict[str, Any], id: str, saw: str
) -> None:
    findings = judged(node("a"), node("b", **changes))
    finding = only(findings, id)
    assert (finding.status, finding.subject.name, finding.saw) == ("warn", "b", saw)
    assert finding.title.startswith("b: ")
    assert all((finding.expected, finding.because, finding.costs, finding.fix, finding.next))
    others = [one.id for one in findings if one.status in ("warn", "fail") and one is not finding]
    assert others == []


# NODE-010.


def test_interfaces_that_carry_nothing_are_not_judged() -> None:
    slow = {**NIC, "speed_Gbitps": 1.0}
    idle = {**slow, "name": "ens2", "families": []}
    virtual = {**slow, "name": "docker0", "virtual": True}
    assert only(judged(node(nics=(NIC, idle, virtual))), "NODE-010").status == "pass"


def test_a_part_of_a_bond_that_has_an_address_is_judged() -> None:
    part = {**NIC, "speed_Gbitps": 25.0, "families": [], "master": "bond0"}
    bond = {"name": "bond0", "loopback": False, "virtual": True, "families": ["ipv4"]}
    assert only(judged(node(nics=(part, bond))), "NODE-010").status == "warn"


def test_a_card_with_interface_and_rdma_device_is_told_once() -> None:
    nic = {**NIC, "pci": "0000:12:00.0", "pcie_width": 8}
    finding = only(judged(node(rdma=ports(pcie_width=8), nics=(nic,))), "NODE-010")
    assert finding.evidence == ("mlx5_2 port 1: PCIe x8 of x16",)


def test_a_virtual_machine_is_not_held_to_what_its_pcie_link_says() -> None:
    rdma = ports(pcie_GTps=16.0, pcie_GTps_max=16.0)
    finding = only(judged(node(rdma=rdma, facts={"machine.virtual": True})), "NODE-010")
    assert finding.status == "pass"


def test_a_virtual_interface_card_is_not_checked_with_its_reason() -> None:
    nic = {"name": "eth0", "loopback": False, "virtual": False, "families": ["ipv4"]}
    why = {"nic.eth0.speed_max": "its driver (virtio_net) names no link mode"}
    finding = only(judged(node(nics=(nic,), rdma=(), unknown=why)), "NODE-010")
    assert finding.status == "not_checked"
    assert finding.because == "eth0: its driver (virtio_net) names no link mode"


def test_an_unchecked_node_among_good_ones_is_named() -> None:
    finding = only(judged(node("a"), node("b", nics=(LO,), rdma=())), "NODE-010")
    assert finding.title.endswith("not checked on 1 of 2 nodes")
    assert finding.because == "b: no real interface with an address"


# NODE-011.


def test_split_cables_everywhere_are_as_they_should_be() -> None:
    split = {**PORT, "rate": "100 Gb/sec (2X HDR)", "rate_Gbitps": 100.0, "width": 2}
    finding = only(judged(node("a", rdma=(split,)), node("b", rdma=(split,))), "NODE-011")
    assert (finding.status, finding.saw) == ("pass", "100 Gb/sec (2X HDR)")
    found = judged(node("a", rdma=(split,)), node("b"))
    assert only(found, "NODE-011").saw == "mlx5_0 port 1: 100 Gb/sec (2X HDR), not 4X"


def test_one_lane_is_a_fault_for_infiniband_only() -> None:
    single = {**PORT, "rate": "25 Gb/sec (1X EDR)", "rate_Gbitps": 25.0, "width": 1}
    assert only(judged(node(rdma=(single,))), "NODE-011").status == "warn"
    ethernet = {**single, "link_layer": "Ethernet"}
    assert only(judged(node(rdma=(ethernet,))), "NODE-011").status == "pass"


def test_cards_of_another_kind_and_idle_ports_may_be_slower() -> None:
    slow = {"rate_Gbitps": 200.0, "rate": "200 Gb/sec (4X HDR)"}
    assert only(judged(node(rdma=ports(**slow, board="MT_1"))), "NODE-011").status == "pass"
    assert only(judged(node(rdma=ports(**slow, state="DOWN"))), "NODE-011").status == "pass"


def test_no_active_port_is_not_checked() -> None:
    down = tuple({**port, "state": "DOWN"} for port in ports())
    finding = only(judged(node(rdma=down)), "NODE-011")
    assert (finding.status, finding.because) == ("not_checked", "no ACTIVE port on any node")


# NODE-012.


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"gpudirect.peer_module": "", "gpu.open_modules": True}, "pass"),
        ({"gpudirect.peer_module": "nv_peer_mem", "gpu.open_modules": None}, "pass"),
        ({"gpudirect.peer_module": "", "gpudirect.dmabuf_kernel": False}, "warn"),
        ({"gpudirect.peer_module": "", "gpu.open_modules": None}, "not_checked"),
        ({"gpudirect.peer_module": None, "gpu.open_modules": False}, "not_checked"),
    ],
)
def test_gpudirect(facts: dict[str, Any], status: str) -> None:
    assert only(judged(node(facts=facts)), "NODE-012").status == status


def test_gpudirect_of_another_vendor_is_not_checked() -> None:
    rdma = tuple({**port, "driver": "efa"} for port in ports())
    finding = only(judged(node(rdma=rdma, facts={"gpudirect.peer_module": ""})), "NODE-012")
    assert (finding.status, "efa" in finding.because) == ("not_applicable", True)


def test_gpudirect_needs_gpus_and_rdma() -> None:
    for changes in ({"gpus": ()}, {"rdma": ()}):
        assert only(judged(node(**changes)), "NODE-012").status == "not_applicable"


# NODE-013.


def test_a_virtual_machine_keeps_its_acs() -> None:
    facts = {"machine.virtual": True, "acs.redirects": {"0000:1a:00.0": "ReqRedir+"}}
    finding = only(judged(node(facts=facts)), "NODE-013")
    assert (finding.status, "virtual machine" in finding.because) == ("not_applicable", True)


def test_without_root_a_translating_iommu_is_still_told() -> None:
    why = {"acs.redirects": "needs root"}
    unread = node(facts={"acs.redirects": None}, unknown=why)
    assert only(judged(unread), "NODE-013").because == "needs root"
    bad = replace(unread, facts=replace(unread.facts, iommu_groups={"0000:1b:00.0": "DMA"}))
    finding = only(judged(bad), "NODE-013")
    assert (finding.status, finding.evidence) == ("warn", ("0000:1b:00.0: IOMMU group DMA",))


def test_one_gpu_alone_has_no_peer() -> None:
    assert only(judged(node(gpus=(GPU,), rdma=())), "NODE-013").status == "not_applicable"


# NODE-014.


@pytest.mark.parametrize(
    ("governor", "driver", "status"),
    [
        ("powersave", "intel_pstate", "pass"),
        ("powersave", "amd-pstate-epp", "pass"),
        ("powersave", "intel_cpufreq", "warn"),
        ("conservative", "acpi-cpufreq", "warn"),
        ("schedutil", "acpi-cpufreq", "pass"),
    ],
)
def test_governors(governor: str, driver: str, status: str) -> None:
    facts = {"cpu.governor": governor, "cpu.scaling_driver": driver}
    assert only(judged(node(facts=facts)), "NODE-014").status == status


def test_a_virtual_machine_has_no_governor() -> None:
    facts = {"cpu.governor": None, "machine.virtual": True}
    assert "host sets" in only(judged(node(facts=facts)), "NODE-014").because


# NODE-015.


def test_more_gloo_ranks_than_cpus_on_one_machine_are_no_warning() -> None:
    short = node(facts={"cpu.shared": 2})
    finding = only(judged(short, backend="gloo"), "NODE-015")
    assert (finding.status, finding.title) == (
        "not_checked",
        "8 ranks share 2 CPUs",
    )
    assert only(judged(short, node("b"), backend="gloo"), "NODE-015").status == "warn"
    assert only(judged(short, backend="nccl"), "NODE-015").status == "warn"


def test_a_quota_counts_on_one_machine_too() -> None:
    short = node(facts={"cpu.shared": 2, "cpu.quota": 1.5})
    assert (
        only(judged(short, backend="gloo"), "NODE-015").title == "a: a CPU quota of 1.5 for 8 ranks"
    )


def test_a_quota_of_one_cpu_a_rank_suffices() -> None:
    assert only(judged(node(facts={"cpu.quota": 8.0})), "NODE-015").status == "pass"


def test_a_quota_below_what_is_visible_passes_and_tells_what_it_does() -> None:
    finding = only(judged(node(facts={"cpu.quota": 32.0})), "NODE-015")
    assert finding.status == "pass"
    assert "a quota of 32 of 224 visible CPUs" in finding.saw


def test_a_rank_that_is_bound_to_one_cpu_has_its_own() -> None:
    assert only(judged(node(facts={"cpu.allowed": 1})), "NODE-015").status == "pass"


# NODE-016.


def test_memory_that_is_not_known_is_not_checked() -> None:
    unread = node(facts={"memory.total_bytes": None}, unknown={"memory.total_bytes": "no meminfo"})
    finding = only(judged(unread), "NODE-016")
    assert (finding.status, finding.because) == ("not_checked", "no meminfo")


def test_a_small_machine_with_more_than_a_gibibyte_is_good() -> None:
    facts = {"memory.total_bytes": 4 * GIB, "memory.available_bytes": 2 * GIB}
    finding = only(judged(node(facts=facts)), "NODE-016")
    assert (finding.status, finding.title) == ("pass", "at least 2 GiB of memory free on 1 node")


# All of them.


def test_this_machine_raises_nothing_and_every_check_speaks() -> None:
    found = judged(gather_node(range(4)), backend="gloo")
    assert {one.id for one in found} == set(EXPLANATIONS)
    assert all(one.because for one in found if one.status == "not_checked")


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def test_what_the_gatherers_note_is_what_the_checks_read(tmp_path: Path) -> None:
    """A bad node as files: a slow port, a narrow slot, no peer memory, an IOMMU, an Xid."""
    gpu, card = "0000:1b:00.0", "0000:1c:00.0"
    for address, kind in ((gpu, "DMA"), (card, "DMA-FQ")):
        put(tmp_path, {f"sys/bus/pci/devices/{address}/iommu_group/type": kind})
    verbs = "sys/class/infiniband"
    for name, rate in (("mlx5_0", "400 Gb/sec (4X NDR)"), ("mlx5_1", "100 Gb/sec (1X NDR)")):
        port = f"{verbs}/{name}/ports/1"
        put(tmp_path, {f"{port}/state": "4: ACTIVE", f"{port}/rate": rate})
    (tmp_path / verbs / "mlx5_0/device").symlink_to(tmp_path / "sys/bus/pci/devices" / card)
    link = {"current_link_width": "4", "max_link_width": "16"}
    put(tmp_path, {f"sys/bus/pci/devices/{card}/{name}": text for name, text in link.items()})
    alias = {"modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"}
    put(tmp_path, {f"sys/bus/pci/devices/{gpu}/{name}": text for name, text in alias.items()})
    xid = "4,0,7000000,-;NVRM: Xid (PCI:0000:1b:00): 48, pid=1, DBE"
    files = {"proc/cpuinfo": "flags : fpu", "dev/kmsg": xid, "proc/uptime": "60.0 1.0"}
    files["proc/driver/nvidia/version"] = "NVIDIA UNIX x86_64 Kernel Module  535.183.01"
    put(tmp_path, {**files, "sys/module/ib_core/refcnt": "1"})
    notes = Notes(tmp_path)
    note_hardware(notes)
    bad = NodeFacts(
        host="a", ranks=(0,), facts=notes.facts, unknown=notes.unknown, rdma=gather_rdma(notes)
    )
    found = judged(bad)
    saw = {one.id: one.title for one in found if one.status in ("warn", "fail")}
    assert saw == {
        "NODE-010": "a: mlx5_0 port 1: PCIe x4 of x16",
        "NODE-011": "a: mlx5_1 port 1: 100 Gb/sec (1X NDR), mlx5_0 400 Gb/sec",
        "NODE-012": "a: no GPUDirect RDMA: nvidia-peermem is not loaded, and dma-buf is not "
        "possible",
        "NODE-013": "a: IOMMU translates for 2 GPU and RDMA devices (DMA/DMA-FQ)",
        "GPU-006": "a: 0000:1b:00: Xid 48, double-bit ECC error, 53.0 s ago: pid=1, DBE",
    }


def test_a_node_that_told_nothing_passes_nothing() -> None:
    bare = NodeFacts(host="a", ranks=(0,), facts=Facts())
    assert {one.status for one in judged(bare)} == {"not_checked", "not_applicable"}


def test_explanations_begin_with_the_good_state() -> None:
    for id, text in EXPLANATIONS.items():
        title, _, rest = text.partition(". ")
        assert len(title) < 90, id
        assert len(rest) > 80, id
