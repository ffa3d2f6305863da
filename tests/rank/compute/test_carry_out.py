"""Devices of real ranks: who works when, and what of a node with a fault comes to the judge."""

from typing import Any

import pytest

from wirespeed.checks.compute import right_findings
from wirespeed.model.codec import from_json
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate
from wirespeed.plan import ComputePlan, ComputeWork, Measure, Plan

GEMM = ComputeWork(op="gemm", on="cpu", shape=(64, 64, 64))
WORKS = (
    GEMM,
    ComputeWork(op="triad", on="cpu", size_bytes=1 << 16),
    ComputeWork(op="copy", on="gpu"),
)


def compute_plan(*faults: str) -> Plan:
    compute = ComputePlan(
        works=WORKS, proofs=(GEMM,), how=Measure(iterations=6, max_time_s=0.1), sustain_s=0.1
    )
    return Plan(command="check", steps=(), compute=compute, faults=faults)


def devices(rank: int, ranks: int, hosts: list[str], nodes: int, faults: list[str]) -> Any:
    """What this rank recorded; each host has the same cores, dealt to so many NUMA nodes."""
    import os

    from places import place_of
    from wirespeed.rank.compute import carry_out, proof, units, worker
    from wirespeed.rank.compute.carry_out import run_compute
    from wirespeed.rank.time_limit import TimeLimit

    cores = list(range(4))
    os.sched_getaffinity = lambda _: set(cores)  # type: ignore[assignment]
    units.numa_nodes = lambda *_: [(n, frozenset(cores[n::nodes])) for n in range(nodes)]
    units.cpu_quota = lambda _: None
    carry_out._OVERRUN = 1000  # a loaded machine takes its time for the samples of an interval
    worker._SAMPLE_S = worker._CHUNK_S = 0.002
    proof.CPU_SIDE = 64
    told: list[tuple[str, Any]] = []

    class Reporter:
        def enter(self, label: str) -> None:
            told.append(("enter", label))

        def record(self, kind: str, data: dict[str, Any]) -> None:
            told.append((kind, data))

    place = place_of(rank, ranks, hosts=tuple(hosts), cache_bytes=1 << 16)
    plan = compute_plan(*faults)
    if plan.compute is not None:
        run_compute(place, plan, plan.compute, Reporter(), TimeLimit(place, None))
    return told


def seen(world: Any, hosts: list[str], nodes: int, *faults: str) -> Compute:
    arguments = {"hosts": hosts, "nodes": nodes, "faults": list(faults)}
    by_rank = world("devices", ranks=len(hosts), arguments=arguments)
    records = [one for told in by_rank for one in told]
    labels = [[label for kind, label in told if kind == "enter"] for told in by_rank]
    assert all(one == labels[0] for one in labels), "alike on every rank"
    return Compute(
        rates=tuple(from_json(ComputeRate, d) for kind, d in records if kind == "compute_rate"),
        proofs=tuple(from_json(ComputeProof, d) for kind, d in records if kind == "compute_proof"),
    )


def test_numa_nodes_work_alone_and_at_once_whoever_works_with_them(world: Any) -> None:
    hosts = ["a", "a", "b"]
    found = seen(world, hosts, 2)
    names = {(one.host, one.device) for one in found.rates}
    assert names == {(host, f"NUMA node {n}") for host in hosts for n in range(2)}
    for host, device in names:
        mine = [one for one in found.rates if (one.host, one.device) == (host, device)]
        timed = [("gemm", False), ("gemm", True), ("triad", False), ("triad", True)]
        assert [(one.op, one.together) for one in mine] == [*timed, ("gemm", True)], (
            "kept up at last"
        )
        assert all(one.samples >= 6 and not one.reason for one in mine)
    assert len({one.digest for one in found.proofs}) == 1


def test_a_fault_strikes_one_core_of_one_node(world: Any) -> None:
    """Rank 2 is the second of b, whose second core lies at the second NUMA node."""
    found = seen(world, ["a", "b", "b"], 2, "lane:rank=2")
    wrong = {(one.host, one.device, fault.core) for one in found.proofs for fault in one.faults}
    assert len(wrong) == 1
    ((host, _, core),) = wrong
    assert host == "b"
    titles = [one.title for one in right_findings(found) if one.status == "fail"]
    assert f"b {core} multiplies wrong (float32)" in titles


def test_a_plan_crosses_to_the_ranks_as_it_is() -> None:
    plan = compute_plan("lane:rank=2")
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("fault", ["lane:rank=1", "mantissa:rank=0,after=3", "rare:rank=3"])
def test_faults_of_devices_are_known(fault: str) -> None:
    from wirespeed.rank.faulty_engine import COMPUTE_FAULTS, Fault

    assert Fault.parse(fault).kind in COMPUTE_FAULTS
