"""Does `check` find one of two cores that is 5 % slower, and accuse none? On real cores of this machine.

Two cores are two nodes: each rank has a core and a host name of its own. Healthy runs of `check --only
COMP-004` fill a folder; of those after the first ones every fourth is followed by one with `--inject
slow` of either core in turn. In the end each healthy run is judged once more for each core, as if that
had been slow: with its rates divided by 1.05, which is what the injection does. Each is judged by
what is stored of the healthy ones before it. Linux, root, 2 cores. Run it as

    python benchmarks/compute_nights.py [--past 10] [--nights 30] [--level medium] [--home FOLDER]

and see docs/benchmarks.md for what it gave.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.model.compute_records import Compute

CORES = 2
LIMIT_S = 120.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--past", type=int, default=10)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--level", default="medium")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--be", nargs=2, metavar=("HOST", "CORE"))
    asked, command = parser.parse_known_args()
    if asked.be:
        become(asked.be[0], int(asked.be[1]), command)
    counts: Counter[str] = Counter()
    before: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = asked.home or Path(folder)
        for night in range(-asked.past, asked.nights):
            run = one_run(home, asked.level)
            accused = told("past" if night < 0 else "healthy", run)
            if night >= 0:
                counts["healthy"] += 1
                counts["accused"] += bool(accused)
                for slow in range(CORES):
                    count(counts, "judged anew", f"n{slow}", as_if_slow(run, f"n{slow}", before))
            before.append(run)
            if night >= 0 and night % 4 == 3:
                slow = night // 4 % CORES
                run = one_run(home, asked.level, f"--inject=slow:rank={slow}")
                count(counts, "injected", f"n{slow}", told(f"n{slow} slow", run))
            print(f"{'':>8} {dict(counts)}", flush=True)


def count(counts: Counter[str], how: str, slow: str, names: set[str]) -> None:
    counts[how] += 1
    counts[f"{how}: found"] += slow in names
    counts[f"{how}: the other accused"] += bool(names - {slow})


def as_if_slow(run: dict[str, Any], host: str, before: list[dict[str, Any]]) -> set[str]:
    """Hosts that are told to be slow of that run, had the one's times been told 5 % longer."""
    from wirespeed.checks.compute_rates import fast_findings
    from wirespeed.model.codec import from_json
    from wirespeed.model.records import Run
    from wirespeed.rank.compute.faults import SLOWER

    now = from_json(Run, run).compute
    rates = now.rates if now else ()
    slower = (
        replace(one, own_per_second=one.own_per_second / (SLOWER if one.host == host else 1))
        for one in rates
    )
    past = [from_json(Run, one) for one in before]
    found = fast_findings(Compute(rates=tuple(slower)), lambda: past)
    return {one.subject.name for one in found if one.status in ("warn", "fail")}


def become(host: str, core: int, command: list[str]) -> None:
    """The command, as that host on that core; called in a UTS namespace of its own."""
    socket.sethostname(host)
    os.sched_setaffinity(0, {core})
    os.execv(command[0], command)


def one_run(home: Path, level: str, *more: str) -> dict[str, Any]:
    """The run that rank 0 tells."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    check = [sys.executable, "-m", "wirespeed", "check", "-l", level, "--only", "COMP-004"]
    check += ["-o", "json", "-q", *more]
    ranks = []
    for core in range(CORES):
        told = {"RANK": str(core), "WORLD_SIZE": str(CORES), "LOCAL_RANK": "0"}
        told |= {"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        told |= {"GLOO_SOCKET_IFNAME": "lo", "WIRESPEED_HOME": str(home)}
        words = ["unshare", "--uts", sys.executable, __file__, "--be", f"n{core}", str(core)]
        out = subprocess.PIPE if core == 0 else subprocess.DEVNULL
        ranks.append(subprocess.Popen([*words, *check], env=os.environ | told, stdout=out))
    try:
        text = ranks[0].communicate(timeout=LIMIT_S)[0]
        ranks[1].wait(LIMIT_S)
    finally:
        for one in ranks:
            one.kill()
            one.wait()
    found: dict[str, Any] = json.loads(text)
    return found


def told(what: str, run: dict[str, Any]) -> set[str]:
    """Print a line; the hosts that are told to be slow."""
    judged = [one for one in run["findings"] if one["id"] == "COMP-004"]
    rates: dict[str, list[float]] = {}
    for one in run["compute"]["rates"]:
        rates.setdefault(f"{one['op']} {one['dtype']}", []).append(one["own_per_second"] / 1e9)
    shown = ", ".join(f"{name} {' '.join(f'{x:.1f}' for x in r)}" for name, r in rates.items())
    print(f"{what:>8} {run['seconds']:5.1f} s  {shown}", flush=True)
    for one in judged:
        print(f"{'':>8} {one['status']}: {one['title']}", flush=True)
    return {one["subject"]["name"] for one in judged if one["status"] in ("warn", "fail")}


if __name__ == "__main__":
    main()
