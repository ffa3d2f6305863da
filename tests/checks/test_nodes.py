import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from found import only
from wirespeed.checks.gpu_health import gpu_state_findings
from wirespeed.checks.judge import node_findings
from wirespeed.checks.registry import EXPLAINED
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.node.facts import gather_node

GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_bytes": 85520809984,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "performance_state": 0,
    "ecc": True,
    "ecc_uncorrected": 0,
    "clock_sm_MHz": 345,
    "clock_sm_max_MHz": 1980,
    "slowed_by": [],
    "idle": True,
    "temperature_C": 34,
    "slowdown_C": 87,
    "mig": False,
    "power_limit_W": 700.0,
}
PORT = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate_Gbitps": 400.0, "gids": 1}
NIC = {
    "name": "ens1",
    "loopback": False,
    "virtual": False,
    "mtu": 9000,
    "families": ["ipv4"],
    "speed_Gbitps": 100.0,
}
LO = {"name": "lo", "loopback": True, "virtual": True, "mtu": 65536, "families": ["ipv4"]}
FACTS = {
    "kernel": "6.8.0",
    "os": "Ubuntu 24.04",
    "python": "3.12.3",
    "torch": "2.9.1+cu128",
    "nccl": "2.27.5",
    "cuda": "12.8",
    "gpu.driver": "570.86.15",
    "gpu.count": 8,
    "cpu.model": "Xeon 8480",
    "cpu.logical": 224,
    "cpu.allowed": 224,
    "cpu.quota": "unlimited",
    "cpu.governor": "performance",
    "numa.nodes": 2,
    "memory.total_bytes": 2 << 40,
    "memory.limit_bytes": "unlimited",
    "memlock.soft": "unlimited",
    "memlock.exempt": False,
    "shm.size_bytes": 1 << 40,
}

IDS = [*(f"NODE-{i:03d}" for i in range(1, 10)), *(f"GPU-{i:03d}" for i in range(1, 5))]


def node(host: str, **changes: Any) -> NodeFacts:
    """A healthy node; `changes` are fields of NodeFacts, `facts` is laid over the healthy ones."""
    facts = {**FACTS, **changes.pop("facts", {})}
    healthy = NodeFacts(
        host=host,
        ranks=(0, 1),
        facts=from_json(Facts, {name: value for name, value in facts.items() if value is not None}),
        gpus=tuple({"index": index, **GPU} for index in range(8)),
        nics=(NIC, LO),
        rdma=(PORT, {**PORT, "device": "mlx5_1"}),
        environment={"NCCL_DEBUG": "WARN"},
    )
    return replace(healthy, **changes)


def gpus(**changed: Any) -> tuple[dict[str, Any], ...]:
    """Eight GPUs of which the sixth is changed."""
    return tuple({"index": i, **GPU, **(changed if i == 5 else {})} for i in range(8))


def whole(but: dict[str, Any] | None = None, **changed: Any) -> tuple[dict[str, Any], ...]:
    """Eight GPUs that are all changed, the sixth once more."""
    return tuple({"index": i, **GPU, **changed, **(but or {} if i == 5 else {})} for i in range(8))


def judged(*nodes: NodeFacts, backend: str = "nccl") -> list[Finding]:
    world = World(size=2 * len(nodes), nodes=nodes, backend=backend, launcher="torchrun")
    return node_findings(world)


def all_judged(*nodes: NodeFacts) -> list[Finding]:
    """With what is judged of GPUs elsewhere."""
    world = World(size=len(nodes), nodes=nodes, backend="nccl", launcher="torchrun")
    return node_findings(world) + gpu_state_findings(world)


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.status in ("warn", "fail")]


def test_equal_healthy_nodes_pass_every_check_once() -> None:
    findings = judged(node("a"), node("b"))
    assert [(f.id, f.status) for f in findings] == [(id, "pass") for id in IDS]
    software = only(findings, "NODE-001")
    assert software.title == "software identical on 2 nodes"
    assert "torch 2.9.1+cu128" in software.saw
    assert "NCCL 2.27.5" in software.saw


@pytest.mark.parametrize(
    ("changes", "id", "status", "saw"),
    [
        ({"facts": {"torch": "2.8.0"}}, "NODE-001", "fail", "torch: 2.8.0"),
        ({"facts": {"nccl": "2.26.2"}}, "NODE-001", "fail", "NCCL: 2.26.2"),
        ({"facts": {"cuda": "12.6"}}, "NODE-001", "fail", "CUDA: 12.6"),
        ({"facts": {"gpu.driver": "550.1"}}, "NODE-001", "fail", "NVIDIA driver: 550.1"),
        ({"facts": {"kernel": "5.15"}}, "NODE-001", "warn", "kernel: 5.15"),
        ({"facts": {"python": "3.11"}}, "NODE-001", "warn", "Python: 3.11"),
        ({"facts": {"cpu.model": "EPYC"}}, "NODE-002", "warn", "CPU model: EPYC"),
        ({"facts": {"cpu.quota": 4.0}}, "NODE-002", "warn", "CPU quota: 4.0"),
        ({"facts": {"cpu.governor": "powersave"}}, "NODE-002", "warn", "powersave"),
        ({"facts": {"memory.total_bytes": 1 << 40}}, "NODE-002", "warn", "memory: 1 TiB"),
        ({"facts": {"memory.limit_bytes": 1 << 36}}, "NODE-002", "warn", "limit: 64 GiB"),
        ({"facts": {"gpu.count": 7}}, "NODE-003", "fail", "number of GPUs: 7"),
        ({"gpus": gpus(name="NVIDIA A100")}, "NODE-003", "warn", "NVIDIA A100, NVIDIA H100"),
        ({"gpus": gpus(ecc=False)}, "NODE-003", "warn", "ECC mode: off, on"),
        ({"gpus": gpus(power_limit_W=500.0)}, "NODE-003", "warn", "W: 500, 700"),
        ({"nics": ({**NIC, "speed_Gbitps": 10.0}, LO)}, "NODE-004", "warn", "Gbit/s: 10"),
        ({"nics": ({**NIC, "mtu": 1500}, LO)}, "NODE-004", "warn", "MTU: 1500"),
        ({"rdma": (PORT,)}, "NODE-005", "warn", "number of RDMA ports: 1"),
        (
            {"rdma": (PORT, {**PORT, "rate_Gbitps": 200.0})},
            "NODE-005",
            "warn",
            "rate of active RDMA ports in Gbit/s: 200, 400",
        ),
        (
            {"facts": {"memlock.soft": 65536}},
            "NODE-006",
            "warn",
            "ulimit -l: 64 KiB, without CAP_IPC_LOCK",
        ),
        ({"facts": {"shm.size_bytes": 64 << 20}}, "NODE-007", "fail", "64 MiB for 2 rank(s)"),
        ({"facts": {"shm.size_bytes": 65 << 20}}, "NODE-007", "fail", "65 MiB"),
        ({"facts": {"shm.size_bytes": 512 << 20}}, "NODE-007", "warn", "512 MiB"),
        ({"environment": {"NCCL_DEBUG": "INFO"}}, "NODE-008", "warn", "NCCL_DEBUG: INFO"),
        ({"environment": {}}, "NODE-008", "warn", "NCCL_DEBUG: (not set)"),
        ({"gpus": gpus(pcie_width=8)}, "GPU-001", "fail", "GPU5: PCIe x8 of x16, its siblings"),
        ({"gpus": gpus(pcie_gen=3)}, "GPU-001", "fail", "GPU5: PCIe generation 3 of 5, its"),
        ({"gpus": gpus(pcie_gen=3, pcie_gen_max=3)}, "GPU-001", "fail", "siblings have 5"),
        ({"gpus": gpus(pcie_gen_max=4, pcie_gen=4)}, "GPU-001", "fail", "PCIe generation 4, its"),
        ({"gpus": whole(pcie_width=12)}, "GPU-001", "warn", "GPU0: PCIe x12 of x16"),
        ({"gpus": whole(pcie_width=8)}, "GPU-001", "fail", "GPU0: PCIe x8 of x16"),
        ({"gpus": gpus(ecc_uncorrected=2)}, "GPU-002", "fail", "GPU5: 2 uncorrected ECC"),
        ({"gpus": gpus(mig=True)}, "GPU-003", "warn", "GPU5: MIG is on"),
        ({"gpus": gpus(sram={"uncorrected": 2, "exceeded": 1})}, "GPU-002", "fail", "threshold (2"),
        ({"gpus": gpus(sram={"uncorrected": 2, "exceeded": 0})}, "GPU-002", "fail", "GPU5: 2 unc"),
        ({"gpus": gpus(slowed_by=["power brake"])}, "GPU-004", "fail", "GPU5: clocks lowered"),
        ({"gpus": gpus(slowed_by=["thermal, by software"])}, "GPU-004", "warn", "by software"),
        ({"gpus": gpus(temperature_C=87)}, "GPU-011", "warn", "GPU5: 87 °C, and clocks are low"),
        ({"gpus": gpus(clock_sm_MHz=300)}, "GPU-012", "warn", "GPU5: SM clock 300 MHz, its sibl"),
    ],
)
def test_the_one_node_that_differs_is_named(
    changes: dict[str, Any], id: str, status: str, saw: str
) -> None:
    findings = all_judged(node("a"), node("b", **changes), node("c"))
    finding = only(bad(findings), id)
    assert len(bad(findings)) == 1
    assert (finding.status, finding.subject.kind, finding.subject.name) == (status, "node", "b")
    assert "b" in finding.title.split(":")[0].split()
    assert saw in finding.saw
    for said in (finding.expected, finding.because, finding.costs, finding.fix, finding.next):
        assert said
    assert finding.next == f"wirespeed check --only {id}"
    assert [f for f in findings if f.id == id] == [finding]


def test_what_most_nodes_have_is_expected() -> None:
    odd = node("a", facts={"torch": "2.8.0"})
    finding = only(judged(odd, node("b"), node("c")), "NODE-001")
    assert finding.subject.name == "a"
    assert finding.expected == "2.9.1+cu128, as on 2 of 3 nodes (b, …)"


def test_two_nodes_have_no_majority_and_the_finding_says_so() -> None:
    finding = only(judged(node("a"), node("b", facts={"torch": "2.8.0"})), "NODE-001")
    assert finding.subject.name == "b"
    assert finding.title == "b has another torch than a"
    assert "without a majority" in finding.expected


def test_each_odd_node_and_fact_is_its_own_finding() -> None:
    other = {"torch": "2.8.0", "nccl": "2.26.2"}
    findings = judged(
        node("a"), node("b"), node("c"), node("d", facts=other), node("e", facts={"torch": "2.7"})
    )
    assert [(f.subject.name, f.saw) for f in bad(findings)] == [
        ("d", "torch: 2.8.0"),
        ("e", "torch: 2.7"),
        ("d", "NCCL: 2.26.2"),
    ]


def test_memory_that_firmware_reserves_is_no_difference() -> None:
    total = FACTS["memory.total_bytes"]
    assert isinstance(total, int)
    nearly = [node(h, facts={"memory.total_bytes": total - d * (1 << 30)}) for h, d in (("b", 20),)]
    assert bad(judged(node("a"), *nearly)) == []


def test_a_value_that_one_node_does_not_tell_is_not_passed() -> None:
    blind = replace(node("b", facts={"nccl": None}), unknown={"nccl": "torch is built without"})
    finding = only(judged(node("a"), blind), "NODE-001")
    assert (finding.status, finding.subject.name) == ("not_checked", "b")
    assert finding.because == "torch is built without"
    assert "2.27.5, as on a" in finding.expected


def test_a_value_that_no_node_tells_is_left_out() -> None:
    finding = only(judged(*(node(h, facts={"nccl": None}) for h in "ab")), "NODE-001")
    assert finding.status == "pass"
    assert "NCCL" not in finding.saw


def test_one_node_has_nothing_to_be_compared_with() -> None:
    findings = judged(node("a"))
    for id in ("NODE-001", "NODE-002", "NODE-003", "NODE-004", "NODE-008"):
        finding = only(findings, id)
        assert (finding.status, finding.because.split(":")[0]) == ("not_applicable", "one node")
    assert only(findings, "NODE-006").status == "pass"
    assert only(findings, "GPU-002").status == "pass"


def test_no_nodes_no_findings() -> None:
    assert judged() == []


def test_what_may_differ_between_nodes_is_not_compared() -> None:
    nodes = [node(h, environment={"CUDA_VISIBLE_DEVICES": h, "NCCL_HOSTID": h}) for h in "ab"]
    assert bad(judged(*nodes)) == []


def test_virtual_interfaces_count_only_where_there_are_no_others() -> None:
    docker = {**NIC, "name": "docker0", "virtual": True, "mtu": 1500}
    assert bad(judged(node("a"), node("b", nics=(NIC, docker, LO)))) == []
    veth = [node(h, nics=({**docker, "mtu": mtu}, LO)) for h, mtu in (("a", 1450), ("b", 1500))]
    assert only(bad(judged(*veth)), "NODE-004").saw == "MTU: 1500"


def test_a_port_that_is_down_is_named() -> None:
    down = {**PORT, "device": "mlx5_1", "state": "DOWN", "phys_state": "Disabled"}
    findings = [f for f in bad(judged(node("a", rdma=(PORT, down)))) if f.id == "NODE-009"]
    assert [f.saw for f in findings] == ["mlx5_1 port 1: DOWN, Disabled"]
    assert findings[0].title == "a: 1 of 2 RDMA ports not ACTIVE"


def test_memlock_does_not_matter_without_rdma_or_with_the_capability() -> None:
    low = {"memlock.soft": 65536}
    without = [node(h, rdma=(), facts=low) for h in "ab"]
    assert only(judged(*without), "NODE-006").status == "not_applicable"
    assert only(judged(*without), "NODE-009").status == "not_applicable"
    assert only(judged(node("a", facts={**low, "memlock.exempt": True})), "NODE-006").status == (
        "pass"
    )


def test_a_small_shm_is_no_failure_where_it_is_not_used() -> None:
    small = {"shm.size_bytes": 64 << 20}
    assert only(judged(node("a", facts=small), backend="gloo"), "NODE-007").status == "warn"
    alone = node("a", facts=small, ranks=(0,))
    assert only(judged(alone), "NODE-007").status == "warn"


def test_an_unknown_shm_is_not_passed() -> None:
    blind = replace(
        node("b", facts={"shm.size_bytes": None}), unknown={"shm.size_bytes": "no mount"}
    )
    finding = only(judged(node("a"), blind), "NODE-007")
    assert (finding.status, finding.because) == ("not_checked", "no mount")


def test_an_idle_gpu_may_lower_its_pcie_generation() -> None:
    assert bad(all_judged(node("a", gpus=gpus(pcie_gen=1, performance_state=8)))) == []


def test_a_gpu_that_is_idle_is_not_held_to_those_at_work() -> None:
    """Nor one at full clock to those that rest, or idle ones of which some keep their clock."""
    work = {"clock_sm_MHz": 1980, "idle": False}
    assert bad(all_judged(node("a", gpus=gpus(**work)))) == []
    assert (
        bad(all_judged(node("a", gpus=whole(**work, but={"clock_sm_MHz": 345, "idle": True}))))
        == []
    )
    assert bad(all_judged(node("a", gpus=whole(**work, but={"clock_sm_MHz": 1755})))) == []
    lower = {"clock_sm_MHz": 900, "slowed_by": ["power cap"]}
    assert bad(all_judged(node("a", gpus=whole(**work, but=lower)))) == []
    [finding] = bad(all_judged(node("a", gpus=whole(**work, but={"clock_sm_MHz": 900}))))
    assert (finding.id, finding.status) == ("GPU-012", "warn")
    assert "(also at work) 1980 MHz" in finding.saw


def test_a_power_cap_is_normal() -> None:
    assert bad(judged(node("a", gpus=gpus(slowed_by=["power cap", "sync boost"])))) == []


def test_several_faulty_gpus_of_a_node_are_one_finding() -> None:
    narrow = tuple({"index": i, **GPU, "pcie_width": 8} for i in range(3))
    finding = only(judged(node("a", gpus=narrow)), "GPU-001")
    assert finding.title == "a: GPU0: PCIe x8 of x16, and 2 more"
    assert len(finding.evidence) == 3


def test_a_gpu_that_does_not_tell_is_not_passed_and_hides_no_fault() -> None:
    some = [dict(gpu) for gpu in gpus(ecc_uncorrected=1)]
    del some[0]["ecc_uncorrected"]
    reason = {"gpu.0.ecc_uncorrected": "NVML: Not Supported"}
    findings = [f for f in judged(node("a", gpus=tuple(some), unknown=reason)) if f.id == "GPU-002"]
    assert [f.status for f in findings] == ["fail", "not_checked"]
    assert findings[1].title == "GPU memory (ECC) not checked on 1 of 8 GPUs"
    assert findings[1].because == "NVML: Not Supported"


def test_no_gpu_is_not_checked_with_its_reason() -> None:
    bare = {"gpu.count": None, "gpu.driver": None}
    why = {"gpus": "NVML: NVML Shared Library Not Found"}
    findings = judged(*(node(h, facts=bare, gpus=(), unknown=why) for h in "ab"))
    for id in ("NODE-003", "GPU-001", "GPU-002", "GPU-003", "GPU-004"):
        finding = only(findings, id)
        assert (finding.status, finding.because) == ("not_checked", why["gpus"])


def test_real_facts_of_this_machine_as_two_nodes() -> None:
    here = gather_node([0, 1], environ={"NCCL_DEBUG": "WARN"})
    findings = judged(here, replace(here, host="other"), backend="gloo")
    alike = {f.id for f in findings if f.status == "pass"}
    assert {"NODE-001", "NODE-002", "NODE-008"} <= alike
    other = replace(here, host="other", facts=replace(here.facts, kernel="0"))
    assert [f.subject.name for f in bad(judged(here, other)) if f.id == "NODE-001"] == ["other"]
    json.dumps([asdict(finding) for finding in findings])


def test_every_finding_can_be_explained() -> None:
    for id in IDS:
        text = EXPLAINED[id].explanation
        assert 2 <= text.count(". ") + 1 <= 4
        assert len(text.split(". ")[0]) < 90


def test_a_thousand_nodes_are_judged_quickly_enough_to_be_run() -> None:
    many = [node(f"n{i}", facts={"torch": "2.8.0"} if i == 700 else {}) for i in range(1000)]
    assert [f.subject.name for f in bad(judged(*many))] == ["n700"]
