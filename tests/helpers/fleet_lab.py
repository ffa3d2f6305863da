"""A store that is made up: a month of checks of a fleet, with nodes that fail, recover and are new."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import usual
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Finding,
    Measurement,
    NodeFacts,
    Run,
    Subject,
    World,
)

EVIL = "<script>document.title='owned'</script>"
WHY = (
    ("BW-001", "{host} GPU {gpu}: 91 GB/s of NVLink, others 362"),
    ("GPU-004", "{host} GPU {gpu} has 3 uncorrected ECC errors since its driver was loaded"),
    ("NET-003", "{host} trains over TCP, not InfiniBand"),
    ("LINK-002", "{host} mlx5_{gpu}: the link went down 4 times during the check"),
)
SIZES = (1 << 10, 1 << 20, 1 << 30)


@dataclass
class Fleet:
    """What is known of it while it is made."""

    hosts: Sequence[str]
    bad: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    """By host: from which day to which it fails, and why."""
    new: frozenset[str] = frozenset()


def fleet(nodes: int, days: int, rng: random.Random, evil: bool = False) -> Fleet:
    """Two kinds of GPU nodes and a few without."""
    few = max(1, nodes // 50)
    many = (nodes - few) * 3 // 5
    hosts = [f"gpu-a-{n:04d}" for n in range(1, many + 1)]
    hosts += [f"gpu-b-{n:04d}" for n in range(1, nodes - few - many + 1)]
    hosts += [f"login-{n}" for n in range(1, few + 1)]
    if evil:
        hosts[0], hosts[-1] = EVIL, "'; DROP TABLE nodes; --"
    usual = [host for host in hosts[1:] if host != "gpu-b-0002"]
    found = Fleet(hosts, new=frozenset(rng.sample(usual, max(1, nodes // 200))))
    for host in rng.sample(usual, max(2, nodes // 60)):
        since = rng.uniform(0, days)
        until = days if rng.random() < 0.5 else rng.uniform(since, days)
        found.bad[host] = (since, until, rng.randrange(len(WHY)))
    found.bad[hosts[0]] = (1.0, days, 0)
    return found


def stored(
    home: Path, nodes: int = 60, days: int = 12, now: datetime | None = None, evil: bool = False
) -> Fleet:
    """Run folders in `home`/runs: each day checks of 40 nodes each."""
    rng = random.Random(7)
    now = now or datetime(2026, 11, 25, 12, 0, 0)
    made = fleet(nodes, days, rng, evil)
    runs = home / "runs"
    runs.mkdir(0o700, parents=True)
    for day in range(days):
        for number, start in enumerate(range(0, nodes, 40)):
            hosts = [
                host
                for host in made.hosts[start : start + 40]
                if host not in made.new or day >= days - 1
            ]
            at = now - timedelta(days=days - day - 1, minutes=20 + 7 * (number % 60))
            write(runs, _check(made, hosts, day + 0.5, at, rng))
    return made


def write(runs: Path, run: Run) -> Path:
    """The folder of a run that has ended."""
    at = datetime.fromisoformat(run.started)
    folder = runs / f"{at:%Y%m%d-%H%M%S}-{run.id}"
    (folder / "logs").mkdir(0o700, parents=True)
    (folder / "run.json").write_text(json.dumps(to_json(run)))
    (folder / "records.jsonl").write_text("")
    return folder


def _check(made: Fleet, hosts: Sequence[str], day: float, at: datetime, rng: random.Random) -> Run:
    findings = [
        Finding(
            id=WHY[why][0],
            status="fail",
            title=WHY[why][1].format(host=host, gpu=rng.randrange(8)),
            subject=Subject("node", host),
        )
        for host in hosts
        for since, until, why in [made.bad.get(host, (1e9, 0.0, 0))]
        if since <= day <= until
    ]
    warned = [
        Finding(
            id="NODE-004",
            status="warn",
            title=f"{host} has another NIC firmware",
            subject=Subject("node", host),
        )
        for host in hosts
        if host.endswith("7") and host.startswith("gpu-b-01")
    ]
    passed = [Finding(id="COL-001", status="pass", title="all_reduce: data exact")]
    ranks = 8 * len(hosts)
    return Run(
        id=f"{rng.getrandbits(32):08x}",
        command="check",
        verdict="NOT READY" if findings else "READY",
        exit_code=1 if findings else 0,
        started=f"{at.isoformat(timespec='milliseconds')}Z",
        seconds=rng.uniform(60, 240),
        world=World(
            size=ranks,
            nodes=tuple(_node(host, n, day) for n, host in enumerate(hosts)),
            backend="nccl",
            launcher="slurm",
        ),
        versions={"wirespeed": "0.1.0", "torch": "2.13.0", "nccl": _nccl(day)},
        findings=(*findings, *warned, *passed),
        measurements=tuple(
            measured(op, size, ranks, day, rng)
            for op in ("all_reduce", "all_gather")
            for size in SIZES
        ),
    )


def _nccl(day: float) -> str:
    return "2.28.9" if day < 8 else "2.29.1"


def _node(host: str, number: int, day: float) -> NodeFacts:
    boot = f"{host}-{int(day > 5 and number % 17 == 3)}"
    gpu = "NVIDIA H100 80GB HBM3" if host.startswith("gpu-a") else "NVIDIA B200"
    facts = {
        "kernel": "6.8.0-79" if day < 6 else "6.8.0-85",
        "os": "Ubuntu 24.04",
        "nccl": _nccl(day),
        "torch": "2.13.0",
        "cuda": "13.0",
        "gpu.driver": "580.95.05",
        "machine.boot": boot,
    }
    return NodeFacts(
        host=host,
        ranks=tuple(range(8 * number, 8 * number + 8)),
        facts=from_json(Facts, facts),
        gpus=() if host.startswith("login") else tuple({"index": i, "name": gpu} for i in range(8)),
    )


def measured(op: str, size: int, ranks: int, day: float, rng: random.Random) -> Measurement:
    """With a change of the level on day 8."""
    time = (2e-5 + size / 360e9 * 2) * rng.gauss(1, 0.015) * (1.12 if day > 8 else 1.0)
    stats = usual.times(time, 0.02, min=time * 0.9, p95=time * 1.2, p99=time * 1.4, max=time * 2.0)
    return usual.measurement(
        size=size,
        op=op,
        redop="sum" if "reduce" in op else "none",
        ranks=ranks,
        iterations=50,
        time=stats,
        algbw=size / time,
        busbw=2 * size / time if size > SIZES[0] else 0.0,
    )
