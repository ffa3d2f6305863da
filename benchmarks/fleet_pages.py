"""How long pages of a large fleet take, and how much memory: `python benchmarks/fleet_pages.py`.

It makes a store of `--runs` runs of 8 nodes each over 300 days, on `--nodes` nodes, as folders with
their rows in the index, serves it by the command itself, and asks for each page several times. `--keep
FOLDER` keeps the store there, or takes the one that lies there. The first page is that of a server that
has just started; the median is of the others.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wirespeed.model.codec import from_json, to_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Finding,
    Measurement,
    NodeFacts,
    Run,
    Subject,
    TimeStats,
    World,
)
from wirespeed.runs.folder_stamps import run_stamp
from wirespeed.runs.index import Index
from wirespeed.runs.rows import Rows, rows_of

DAYS, EACH, ASKED = 300, 8, 7
BATCH = 2000
BESIDE_S = 8.0
"""So long a page is asked for after a new run: the states of the nodes are found beside it meanwhile."""
PAGES = {
    "overview": "/",
    "nodes": "/nodes",
    "lemons": "/lemons",
    "nodes by name": "/nodes?name=node-00012",
    "a node": "/nodes/node-00012",
    "runs": "/runs",
    "runs of a node": "/runs?node=node-00012",
    "failed runs": "/runs?verdict=fail&since=7",
    "a trend": "/trends?op=all_reduce",
    "a run": "/runs/{run}",
    "a comparison": "/compare?run={run}&run={other}",
    "metrics": "/metrics",
}


def measured(op: str, size: int, time_s: float) -> Measurement:
    names = ("median", "mean", "low", "high", "min", "p95", "p99", "max")
    return Measurement(
        op=op,
        engine="torch",
        dtype="float32",
        redop="sum",
        root=-1,
        in_place=False,
        size_bytes=size,
        count=size // 4,
        ranks=8 * EACH,
        iterations=40,
        time=TimeStats(**dict.fromkeys(names, time_s)),
        algbw=size / time_s,
        busbw=2 * size / time_s,
    )


def template(number: int, rng: random.Random) -> Run:
    """A run whose names stand for others: `{host0}`, `{id}`, `{started}`."""
    facts = from_json(Facts, {"kernel": "6.8.0", "gpu.driver": "580.95", "machine.boot": "b"})
    nodes = tuple(
        NodeFacts(
            host=f"{{host{n}}}",
            ranks=tuple(range(8 * n, 8 * n + 8)),
            facts=facts,
            gpus=tuple({"index": i, "name": "NVIDIA H100 80GB HBM3"} for i in range(8)),
        )
        for n in range(EACH)
    )
    bad = number % 4 == 0
    failed = Finding(
        id="LINK-002",
        status="fail",
        title="{host3}: a link went down",
        subject=Subject("node", "{host3}"),
    )
    good = Finding(id="COL-001", status="pass", title="all_reduce: data exact")
    return Run(
        id="{id}",
        command="check",
        verdict="NOT READY" if bad else "READY",
        exit_code=int(bad),
        started="{started}",
        seconds=90.0,
        world=World(size=8 * EACH, nodes=nodes, backend="nccl", launcher="slurm"),
        versions={"wirespeed": "0.1.0", "nccl": "2.29.3"},
        findings=(*([failed] if bad else []), good),
        measurements=tuple(
            measured(op, 1 << power, (2e-5 + (1 << power) / 3e11) * rng.gauss(1, 0.02))
            for op in ("all_reduce", "all_gather")
            for power in (10, 20, 30)
        ),
    )


def make(home: Path, runs: int, nodes: int) -> None:
    """Folders, each with a run.json, and their rows as the index would make them."""
    rng, now = random.Random(3), datetime.now(UTC)
    (home / "runs").mkdir(0o700, parents=True)
    kinds = [template(n, rng) for n in range(64)]
    texts = [json.dumps(to_json(run)) for run in kinds]
    told = []
    for n in range(runs):
        at = now - timedelta(days=DAYS * (runs - n) / runs)
        id, kind = f"{rng.getrandbits(32):08x}", rng.randrange(64)
        words = {"{id}": id, "{started}": f"{at.isoformat()[:23]}Z"}
        first = rng.randrange(nodes)
        words |= {f"{{host{k}}}": f"node-{(first + k) % nodes:05d}" for k in range(EACH)}
        name = f"{at:%Y%m%d-%H%M%S}-{id}"
        folder = home / "runs" / name
        folder.mkdir(0o700)
        (folder / "run.json").write_text(filled(texts[kind], words))
        told.append((name, kind, words))
    patterns = [rows_of(run, "{name}") for run in kinds]
    with Index.opened(seconds=0.0) as index:
        for start in range(0, runs, BATCH):
            index._keep(
                [
                    (name, run_stamp(home / "runs" / name), rows(patterns[kind], name, words))
                    for name, kind, words in told[start : start + BATCH]
                ]
            )


def filled(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\{\w+\}", lambda found: words.get(found[0], found[0]), text)


def rows(pattern: Rows, name: str, words: dict[str, str]) -> Rows:
    started = words["{started}"]
    of_run: dict[str, Any] = {"run": name, "started": started}
    return Rows(
        replace(
            pattern.run, id=words["{id}"], headline=filled(pattern.run.headline, words), **of_run
        ),
        tuple(replace(one, **of_run) for one in pattern.figures),
        tuple(
            replace(
                one,
                host=filled(one.host, words),
                subject=filled(one.subject, words),
                title=filled(one.title, words),
                **of_run,
            )
            for one in pattern.findings
        ),
        tuple(replace(one, host=filled(one.host, words), **of_run) for one in pattern.nodes),
    )


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """(address, process id) of `wirespeed serve`."""
    command = [sys.executable, "-m", "wirespeed", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://\S+(?=/;)", line)
            if found is None:
                raise SystemExit(line)
            yield found[0], process.pid
        finally:
            process.terminate()


def ask(address: str) -> tuple[float, int]:
    """(seconds, bytes)."""
    begun = time.monotonic()
    with urllib.request.urlopen(address, timeout=60) as answer:
        size = len(answer.read())
    return time.monotonic() - begun, size


def peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = asked.keep or Path(temporary) / "home"
        home.mkdir(0o700, exist_ok=True)
        os.environ["WIRESPEED_HOME"] = str(home)
        if not (home / "runs").exists():
            begun = time.monotonic()
            make(home, asked.runs, asked.nodes)
            took_s = time.monotonic() - begun
            print(f"made {asked.runs:,} runs on {asked.nodes:,} nodes in {took_s:.0f} s")
        names = sorted(path.name for path in (home / "runs").iterdir())[-9:]
        with served() as (address, process):
            for name, path in PAGES.items():
                path = path.format(run=names[-1], other=names[0])
                took, sizes = zip(*(ask(address + path) for _ in range(ASKED)), strict=True)
                rest = statistics.median(took[1:])
                print(
                    f"{name:16} first {took[0]:.3f} s, then {rest:.3f} s, {sizes[0] / 1e3:.0f} kB"
                )
            for name, path in PAGES.items():
                path = path.format(run=names[-1], other=names[0])
                added = home / "runs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-00ff00ff"
                shutil.copytree(home / "runs" / names[-1], added)
                longest, until = 0.0, time.monotonic() + BESIDE_S
                while time.monotonic() < until:
                    longest = max(longest, ask(address + path)[0])
                shutil.rmtree(added)
                print(f"{name:16} while a new run is taken in: at most {longest:.3f} s")
            print(f"memory at most {peak_mb(process):.0f} MB")


if __name__ == "__main__":
    main()
