"""Does `locate` stay right on a busy machine? Labs beside busy loops: healthy ones, and one slow node.

Each run starts `wirespeed locate` on four network namespaces of this machine, beside other work that
takes its cores. Goals: of the healthy at most 1 in 50 has anybody accused; a node with a CPU quota of
50 % is named as a straggler in 19 of 20. With fewer runs than that nothing is proven, and the line says
how many of how many. Exit code 1 where a share is beyond its goal.

Requires: root, iproute2. Run: python benchmarks/locate_busy.py [--healthy 50] [--slow 20] [--loops 2]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from wirespeed.lab import Lab, LabSpec

NODES, VICTIM, QUOTA = 4, "node-2", "50%"
MOST_ACCUSED, LEAST_FOUND = 1 / 50, 19 / 20
BOUND_S = 300.0
LOCATE = (sys.executable, "-m", "wirespeed", "locate", "-q", "-o", "json")
Named = set[tuple[str, str]]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--loops", type=int, default=2)
    asked = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        sys.stderr.write("Requires: root and iproute2, for network namespaces as nodes\n")
        return 3
    with busy(asked.loops), Lab(LabSpec(NODES, f"busy{os.getpid()}")) as lab:
        healthy = [named(lab, number, "healthy") for number in range(asked.healthy)]
        lab.straggler(VICTIM, QUOTA)
        slow = [named(lab, number, f"{VICTIM} has {QUOTA}") for number in range(asked.slow)]
    accused = sum(map(bool, healthy))
    found = sum(("LOC-007", VICTIM) in one for one in slow)
    others = sum(any(name != VICTIM for _, name in one) for one in slow)
    sys.stdout.write(
        f"\n{NODES} nodes on {os.cpu_count()} cores beside {asked.loops} busy loops\n\n"
        "| lab | runs | | goal |\n|---|---|---|---|\n"
        f"| healthy | {len(healthy)} | somebody accused in {accused} | at most 1 in 50 |\n"
        f"| {VICTIM} has {QUOTA} of a core | {len(slow)} | named in {found}, another in {others} "
        "| 19 of 20, no other |\n"
    )
    kept = accused <= MOST_ACCUSED * len(healthy) and found >= LEAST_FOUND * len(slow)
    return 0 if kept else 1


def named(lab: Lab, number: int, what: str) -> Named:
    """(id, node) of every failing finding of one run."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"WIRESPEED_HOME": home, "OMP_NUM_THREADS": "1"}
        first = lab.run(LOCATE, env=environment, timeout=BOUND_S)[0]
    if first.ended:
        raise SystemExit(f"a run did not end within {BOUND_S:g} s: {first.stderr[-500:]}")
    run = json.loads(first.stdout)
    failing = [one for one in run["findings"] if one["status"] == "fail"]
    found = {(one["id"], one["subject"]["name"]) for one in failing}
    sys.stdout.write(f"{what}, run {number + 1}: {sorted(found) or 'nobody'}\n")
    sys.stdout.flush()
    return found


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that do nothing but take a core."""
    words = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(words) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
