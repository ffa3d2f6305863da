"""10,000 ranks on 1,250 nodes: from samples to a verdict, and from a run folder to every view of it.

The folder holds what such a run writes: each node's facts, data checks, timed operations, 16 rounds of
pairs over 8 rails, findings, training. A second one lost its end and is rebuilt from its records. Each
line is a process of its own, start of Python included: its seconds, and its peak of memory.

Run: python benchmarks/aggregate.py [--ranks 10000] [--keep FOLDER]
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only the processes that make or read a run import it
    from wirespeed.model.records import (
        Finding,
        Measurement,
        NodeFacts,
        PairFigures,
        Run,
        Verification,
    )
    from wirespeed.model.training_records import Training

PER_NODE, SAMPLES, SIZES, ROUNDS = 8, 64, 22, 16
SECONDS, MEGABYTES = 2.0, 500
WHOLE = ("runs show -o json", "runs show -o jsonl", "report -o html", "runs list")
"""No aggregates: they write all 50 MB again, draw maps, read every run; only memory is bound."""
FINISHED, UNFINISHED = "a0000001", "a0000002"
VIEWS = {
    "load": ("-c", "LOAD", FINISHED),
    "rebuild": ("-c", "LOAD", UNFINISHED),
    **{
        f"runs show -o {form}": ("-m", "wirespeed", "runs", "show", FINISHED, "-o", form)
        for form in ("table", "wide", "md", "json", "jsonl", "csv", "nccl-tests")
    },
    **{
        f"report -o {form}": ("-m", "wirespeed", "report", FINISHED, "-o", form)
        for form in ("md", "junit", "prometheus", "html")
    },
    "report of the unfinished -o md": ("-m", "wirespeed", "report", UNFINISHED, "-o", "md"),
    "runs list": ("-m", "wirespeed", "runs", "list"),
}
LOAD = "import sys; from wirespeed.runs.store import find, load; load(find(sys.argv[1]))"


def to_verdict(ranks: int) -> int:
    """What rank 0 does with all ranks' samples; says its own seconds (torch is there already)."""
    import torch

    from wirespeed.checks.judge import judge
    from wirespeed.checks.verdicts import Extent, grade
    from wirespeed.rank.measure import Samples
    from wirespeed.reference import NoReference
    from wirespeed.statistics import time_stats

    generator = torch.Generator().manual_seed(1)
    rows = torch.rand(ranks, SAMPLES, generator=generator, dtype=torch.float64) * 1e-3 + 1e-3
    run = large_run(ranks)
    begin = time.perf_counter()
    samples = Samples()
    samples.add(rows, 1.0)
    time_stats(samples.slowest)
    findings = judge("check", run.world, run.measurements, (), NoReference())
    grade("check", findings, Extent(measured=len(run.measurements)))
    sys.stdout.write(f"{time.perf_counter() - begin:.3f}\n")
    return 0


def large_run(ranks: int) -> "Run":
    from wirespeed.model.records import Located, Run, World

    rng = random.Random(1)
    hosts = [f"gpu-{n:05d}.pod-{n // 32}.example.org" for n in range(ranks // PER_NODE)]
    pairs = tuple(_pairs(hosts, rng))
    located = Located(
        over="rails",
        nodes=tuple(hosts),
        rounds=ROUNDS,
        pairs_measured=len(pairs) // PER_NODE,
        pairs_possible=len(hosts) * (len(hosts) - 1) // 2,
        stopped="every node is clear",
        compute=tuple(rng.gauss(0.01, 1e-4) for _ in hosts),
        pairs=pairs,
    )
    nodes = tuple(_node(host, n, hosts) for n, host in enumerate(hosts))
    return Run(
        id=FINISHED,
        command="check",
        verdict="NOT READY",
        exit_code=1,
        started="2026-11-21T12:00:00Z",
        seconds=600.0,
        world=World(size=ranks, nodes=nodes, backend="nccl", launcher="slurm"),
        versions={"wirespeed": "0.1.0", "torch": "2.13.0", "nccl": "2.29.3"},
        findings=tuple(_findings(hosts)),
        measurements=tuple(_measurements(ranks, rng)),
        verifications=tuple(_verifications(ranks)),
        located=located,
        training=tuple(_training(ranks)),
    )


def _node(host: str, number: int, hosts: list[str]) -> "NodeFacts":
    """About 10 KB as JSON, as a node with 8 GPUs and 8 adapters has."""
    from wirespeed.model.node_facts import Facts
    from wirespeed.model.records import NodeFacts

    first = number * PER_NODE
    link = {"pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16}
    gpus = tuple(
        {
            "index": i,
            "pci": f"0000:{0x1A + i:02x}:00.0",
            "uuid": f"GPU-{number:08x}-{i}",
            **GPU,
            **link,
        }
        for i in range(PER_NODE)
    )
    rdma = tuple(
        {
            "device": f"mlx5_{i}",
            "pci": f"0000:{0x40 + i:02x}:00.0",
            "numa_node": i // 4,
            **PORT,
            **link,
        }
        for i in range(PER_NODE)
    )
    near = [hosts[(number + step) % len(hosts)] for step in (1, 2, 3)]
    return NodeFacts(
        host=host,
        ranks=tuple(range(first, first + PER_NODE)),
        facts=Facts(
            cpu_model="AMD EPYC 9654 96-Core Processor",
            kernel="6.8.0",
            os="Ubuntu 24.04",
            gpu_count=8,
            gpu_driver="570.86.15",
            gpu_on_bus=[f"0000:{0x1A + i:02x}:00.0" for i in range(PER_NODE)],
            gpu_mute=[],
            gpu_driverless=[],
            gpu_xids=[],
            machine_virtual=False,
            other={f"fact.{i}": f"value of fact {i}" for i in range(50)},
        ),
        gpus=gpus,
        nics=({"name": "eth0", **NIC}, {"name": "eth1", **NIC}),
        rdma=rdma,
        peers=tuple({"rank": 0, "host": one, "address": "10.0.0.1", **KNOCKED} for one in near),
        environment={f"NCCL_{i}": "value" for i in range(12)},
        unknown={f"fact.{i}": "not there: no such file" for i in range(4)},
    )


GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_bytes": 85520809984,
    "clock_sm_MHz": 1980,
    "clock_sm_max_MHz": 1980,
    "ecc": True,
    "ecc_uncorrected": 0,
    "power_limit_W": 700.0,
    "remapped_rows": {"corrected": 2, "uncorrected": 0, "pending": 0, "failure": 0},
    "fabric": {"state": "completed", "status": 0, "unhealthy": []},
    "nvlinks": [True] * 18,
}
PORT = {
    "port": 1,
    "state": "ACTIVE",
    "phys_state": "LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "rate_Gbitps": 400.0,
    "width": 4,
    "link_layer": "InfiniBand",
    "gids": 3,
    "firmware": "28.41.1000",
    "board": "MT_0000000838",
    "driver": "mlx5_core",
}
NIC = {"loopback": False, "mtu": 9000, "families": ["ipv4"], "speed_Gbitps": 25.0, "virtual": False}
KNOCKED = {"port": 53651, "tcp": "", "mtu": 9000, "passes": 9000, "clock_offset_s": 9.5e-7}
KNOCKED |= {"clock_error_s": 1e-5, "resolves": ["10.0.0.1"], "resolve_error": ""}


def _pairs(hosts: list[str], rng: random.Random) -> "Iterator[PairFigures]":
    from wirespeed.model.records import PairFigures

    for round in range(ROUNDS):
        order = rng.sample(hosts, len(hosts))
        for first, second in zip(order[::2], order[1::2], strict=False):
            for rail in range(PER_NODE):
                forth, back = (rng.gauss(45e9, 5e8) for _ in range(2))
                yield PairFigures(
                    first=first,
                    second=second,
                    rail=rail,
                    round=round,
                    latency=rng.gauss(6e-6, 2e-7),
                    forth=forth,
                    back=back,
                    both=forth + back,
                )


def _findings(hosts: list[str]) -> "Iterator[Finding]":
    """A failure with evidence for each tenth node, a warning for each second, and what is good."""
    from wirespeed.model.records import Finding, Subject

    for number, host in enumerate(hosts):
        about = Subject("node", host)
        if number % 10 == 0:
            evidence = tuple(f"round {n}: {91 + number % 7}.{n} GB/s" for n in range(ROUNDS))
            title = f"{host} is slow with every partner"
            yield Finding(
                id="LOC-001",
                status="fail",
                title=title,
                subject=about,
                saw=f"median {91 + number % 7} GB/s",
                expected="362 GB/s, as the others",
                evidence=evidence,
            )
        elif number % 2:
            title = f"{host} has another NIC firmware"
            yield Finding(id="NODE-004", status="warn", title=title, subject=about, saw="28.39")
    for number in range(150):
        yield Finding(id=f"COL-{number:03d}", status="pass", title=f"operation {number}: exact")


OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv")


def _measurements(ranks: int, rng: random.Random) -> "Iterator[Measurement]":
    from wirespeed.model.records import Measurement
    from wirespeed.statistics import time_stats

    for op in OPERATIONS:
        for power in range(SIZES):
            size = 1024 << power
            time = 20e-6 + size / 90e9
            yield Measurement(
                op=op,
                engine="torch",
                dtype="float32",
                redop="sum" if "reduce" in op else "none",
                root=-1,
                in_place=False,
                size_bytes=size,
                count=size // 4,
                ranks=ranks,
                iterations=40,
                time=time_stats([time * rng.gauss(1, 0.02) for _ in range(40)]),
                algbw=size / time,
                busbw=size / time * 1.9,
            )


def _verifications(ranks: int) -> "Iterator[Verification]":
    """As many as `check -l long` has; one of them wrong on each 50th rank."""
    from wirespeed.model.records import Verification, WrongData

    wrong = tuple(
        WrongData(
            rank=rank,
            host=f"gpu-{rank // PER_NODE:05d}",
            wrong=7,
            elements=1021,
            first_byte=0,
            last_byte=27,
            chunk="from rank 2",
            guess="stale",
            example="[0] 1.0, expected 2.0",
        )
        for rank in range(0, ranks, 50)
    )
    for number in range(600):
        yield Verification(
            op=OPERATIONS[number % len(OPERATIONS)],
            engine="torch",
            dtype="float32",
            redop="sum",
            root=-1,
            in_place=False,
            size_bytes=4 * (1021 + number),
            count=1021 + number,
            ranks=ranks,
            wrong=0 if number else 7 * len(wrong),
            elements=ranks * 1021,
            errors=() if number else wrong,
        )


def _training(ranks: int) -> "Iterator[Training]":
    from dataclasses import replace

    from wirespeed.model.codec import from_json
    from wirespeed.model.records import Run

    golden = Path(__file__).parents[1] / "tests" / "golden" / "train.run.json"
    import json

    for one in from_json(Run, json.loads(golden.read_bytes())).training:
        yield replace(one, ranks=ranks)


def make(ranks: int) -> int:
    """Both folders: one as it is stored, one that ended before its `run.json` was whole."""
    from dataclasses import replace

    from wirespeed.model.codec import to_json
    from wirespeed.runs.folder import RunFolder
    from wirespeed.runs.store import find, save

    run = large_run(ranks)
    save(run)
    path = save(replace(run, id=UNFINISHED))
    folder = RunFolder(path, replace(run, id=UNFINISHED))
    located = run.located
    if located is None:
        raise RuntimeError("such a run measures pairs")
    folder.append("located", to_json(replace(located, pairs=())))
    for round in range(ROUNDS):
        pairs = [to_json(pair) for pair in located.pairs if pair.round == round]
        folder.append("pairs", {"pairs": pairs})
    for one in run.training:
        folder.append("training", to_json(one))
    document = path / "run.json"
    document.write_bytes(document.read_bytes()[:-1000])
    sizes = [(find(FINISHED) / "run.json").stat().st_size, (path / "records.jsonl").stat().st_size]
    sys.stderr.write(f"run.json {sizes[0] / 1e6:.0f} MB, records.jsonl {sizes[1] / 1e6:.0f} MB\n")
    return 0


def timed(words: tuple[str, ...]) -> tuple[float, float, float]:
    """(seconds, seconds of a core, peak in MB) of a Python with these words."""
    begin = time.perf_counter()
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(words[:6])}: exit code {child.returncode}")
    # A child's peak begins at its parent's, so this process imports nothing large.
    busy = used.ru_utime + used.ru_stime
    return time.perf_counter() - begin, busy, used.ru_maxrss / 1024


def own(step: str, ranks: int) -> str:
    words = [sys.executable, __file__, "--step", step, "--ranks", str(ranks)]
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def report(ranks: int) -> int:
    took = float(own("verdict", ranks))
    sys.stdout.write("| what | seconds | of a core | peak MB |\n|---|---|---|---|\n")
    sys.stdout.write(f"| samples to a verdict (torch is loaded) | {took:.2f} | – | – |\n")
    own("make", ranks)
    good = took <= SECONDS
    for name, words in VIEWS.items():
        words = tuple(LOAD if word == "LOAD" else word for word in words)
        seconds, busy, peak = min(timed(words) for _ in range(3))
        sys.stdout.write(f"| {name} | {seconds:.2f} | {busy:.2f} | {peak:.0f} |\n")
        sys.stdout.flush()
        good = good and peak <= MEGABYTES and (name in WHOLE or seconds <= SECONDS)
    return 0 if good else 1


STEPS: dict[str, Callable[[int], int]] = {"verdict": to_verdict, "make": make, "report": report}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--keep", help="Put the run folders there, to look at.")
    parser.add_argument("--step", choices=STEPS, default="report", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step != "report":
        return STEPS[asked.step](asked.ranks)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIRESPEED_HOME"] = asked.keep or folder
        return report(asked.ranks)


if __name__ == "__main__":
    sys.exit(main())
