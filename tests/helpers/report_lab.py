"""Runs that are made up, for pages: of many ranks, and with names that would be more than text."""

import random
from dataclasses import replace
from typing import Any

import usual
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Choice,
    Finding,
    Located,
    Measurement,
    NodeFacts,
    PairFigures,
    Run,
    Subject,
    World,
)

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv")
_LATENCY_S, _RATE = 20e-6, 360e9


def synthetic(ranks: int = 1024, per_node: int = 8, seed: int = 1) -> Run:
    """A check and a locate of a large cluster, in which one node is slow and many are told of."""
    rng = random.Random(seed)
    nodes = ranks // per_node
    hosts = [f"gpu-{number:04d}.pod-{number // 32}.example.org" for number in range(nodes)]
    slow = nodes // 3
    return Run(
        id=f"5{seed:07x}",
        command="check",
        verdict="NOT READY",
        exit_code=1,
        started="2026-11-21T12:00:00Z",
        seconds=214.0,
        world=World(
            size=ranks,
            nodes=tuple(_node(host, n, per_node) for n, host in enumerate(hosts)),
            backend="nccl",
            launcher="slurm",
        ),
        versions={"wirespeed": "0.1.0", "torch": "2.13.0", "nccl": "2.29.3"},
        environment={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5"},
        config={"level": "long"},
        choices=(Choice("backend", "nccl", "each rank has a GPU"),),
        findings=tuple(_findings(hosts, slow)),
        measurements=tuple(_measurements(ranks, slow, per_node, rng)),
        located=_located(hosts, slow, per_node, rng),
    )


def _node(host: str, number: int, per_node: int) -> NodeFacts:
    return NodeFacts(
        host=host,
        ranks=tuple(range(number * per_node, (number + 1) * per_node)),
        facts=from_json(
            Facts, {"cpu.model": "AMD EPYC 9654", "kernel": "6.8.0", "driver": "570.86.15"}
        ),
        gpus=tuple({"index": i, "name": "NVIDIA H100 80GB HBM3"} for i in range(per_node)),
        nics=({"name": "eth0", "speed_Gbitps": 25.0},),
        rdma=tuple({"name": f"mlx5_{i}", "rate_Gbitps": 400.0} for i in range(8)),
    )


def _findings(hosts: list[str], slow: int) -> list[Finding]:
    culprit = Finding(
        id="LOC-001",
        status="fail",
        title=f"{hosts[slow]} is slow: 91 GB/s with every partner, others 362",
        subject=Subject("node", hosts[slow]),
        saw="median 91.2 GB/s over 31 partners (±2.1 %)",
        expected="362 GB/s, as the other nodes",
        because="slow with every partner, in both directions",
        costs="every collective that spans it waits for it",
        fix="look at its links and clocks",
        next=f"on {hosts[slow]}: ibstat",
        evidence=tuple(f"round {n}: 91.{n} GB/s" for n in range(31)),
    )
    graded = Finding(
        id="BW-001",
        status="fail",
        title="all_reduce 1 GiB: 92.1 GB/s busbw (±1 %, n=40)",
        saw="0.25 of the reference",
        expected="362 GB/s (the fleet's median of 2026-10)",
        next="wirespeed bench all_reduce -o wide",
    )
    warned = [
        Finding(
            id="NODE-004",
            status="warn",
            title=f"{host} has another NIC firmware",
            subject=Subject("node", host),
            saw="28.39.1002",
            expected="28.41.1000, as on most nodes",
            fix="update it",
        )
        for host in hosts[::2]
    ]
    passed = [
        Finding(id=f"COL-{n:03d}", status="pass", title=f"{op}: data exact in 12 configurations")
        for n, op in enumerate(OPERATIONS, 1)
    ]
    return [culprit, graded, *warned, *passed]


def _measurements(ranks: int, slow: int, per_node: int, rng: random.Random) -> list[Measurement]:
    return [
        _measurement(op, 1024 << power, ranks, slow, per_node, rng)
        for op in OPERATIONS
        for power in range(0, 21, 2)
    ]


def _measurement(
    op: str, size: int, ranks: int, slow: int, per_node: int, rng: random.Random
) -> Measurement:
    time = (_LATENCY_S + size / _RATE * 4) * rng.gauss(1, 0.03)
    medians = [time * rng.gauss(0.97, 0.01) for _ in range(ranks)]
    for rank in range(slow * per_node, (slow + 1) * per_node):
        medians[rank] = time * 1.6
    return measurement(op, size, time, ranks, rank_medians=tuple(medians))


def measurement(op: str, size: int, time: float, ranks: int, **more: Any) -> Measurement:
    """One figure with an interval of ±2 %."""
    stats = usual.times(time, 0.02, min=time * 0.95, p95=time * 1.1, p99=time * 1.2, max=time * 1.3)
    known = {
        "redop": "sum" if "reduce" in op else "none",
        "iterations": 40,
        "algbw": size / time,
        "busbw": size / time * 1.9,
    }
    return usual.measurement(size=size, op=op, ranks=ranks, time=stats, **(known | more))


def _located(hosts: list[str], slow: int, per_node: int, rng: random.Random) -> Located:
    """Every pair of nodes, over every rail: far more than a real run measures."""
    pairs = []
    for a, first in enumerate(hosts):
        for b in range(a + 1, len(hosts)):
            rate = (90e9 if slow in (a, b) else 360e9) / per_node
            for rail in range(per_node):
                forth, back = (rate * rng.gauss(1, 0.02) for _ in range(2))
                late = rng.gauss(6e-6, 2e-7)
                pairs.append(
                    PairFigures(
                        first=first,
                        second=hosts[b],
                        rail=rail,
                        round=0,
                        latency=late,
                        forth=forth,
                        back=back,
                        both=forth + back,
                    )
                )
    possible = len(hosts) * (len(hosts) - 1) // 2
    return Located(
        over="rails",
        nodes=tuple(hosts),
        rounds=len(hosts) - 1,
        pairs_measured=possible,
        pairs_possible=possible,
        stopped="every node is clear",
        compute=(),
        pairs=tuple(pairs),
    )


def hostile(run: Run, name: str) -> Run:
    """The same run with `name` wherever text of others can stand."""
    finding = replace(
        run.findings[0],
        status="fail",
        title=name,
        subject=Subject("node", name),
        saw=name,
        expected=name,
        because=name,
        costs=name,
        fix=name,
        next=name,
        evidence=(name,),
    )
    node = NodeFacts(
        host=name, ranks=(0,), facts=from_json(Facts, {name: name}), gpus=({"name": name},)
    )
    return replace(
        run,
        findings=(finding, replace(finding, id=name, status="not_checked")),
        world=replace(run.world, nodes=(node,), backend=name, launcher=name),
        versions={**run.versions, name: name},
        environment={name: name},
        config={name: name},
        choices=(Choice(name, name, name),),
        measurements=tuple(replace(m, op=name, engine=name) for m in run.measurements),
    )
