"""What does a flood cost? Quick checks of two nodes, in turns with and without a stranger's flood.

The nodes are network namespaces, and a third is the stranger: it keeps 200 silent connections at each
port of ours and opens 500 more a second. Goal: at most 1.2 times the seconds. Exit code 1 beyond it, or
where a check is not READY.

Requires: root, iproute2. Run: python benchmarks/flood.py [--rounds 5]
"""

import argparse
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from wirespeed.lab import Lab, LabSpec

STRANGER = Path(__file__).parents[1] / "tests" / "programs" / "stranger.py"
CHECK = (sys.executable, "-m", "wirespeed", "check", "-l", "quick", "-q", "-o", "json")
NODES = ["node-0", "node-1"]
RATE, SILENT, GOAL, BOUND_S = 500, 200, 1.2, 300.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if os.geteuid() != 0 or shutil.which("ip") is None:
        sys.stderr.write("Requires: root and iproute2, for network namespaces as nodes\n")
        return 3
    quiet, flooded, opened = [], [], 0
    with Lab(LabSpec(3, f"flood{os.getpid()}")) as lab:
        anchors = lab.start(["sleep", "36000"], nodes=NODES, ranks=False).pids
        targets = [f"{lab.address(node)}={anchors[node]}" for node in NODES]
        words = [sys.executable, str(STRANGER), str(RATE), str(SILENT), *targets]
        for _ in range(rounds):
            quiet.append(seconds(lab))
            stranger = lab.start(words, nodes=["node-2"], ranks=False)
            flooded.append(seconds(lab))
            opened += sum(json.loads(stranger.end(within_s=5.0)[0].stdout).values())
    ratio = median(flooded) / median(quiet)
    sys.stdout.write(
        f"| check of 2 nodes | seconds (median of {rounds}) |\n|---|---|\n"
        f"| alone | {median(quiet):.2f} ({min(quiet):.2f} to {max(quiet):.2f}) |\n"
        f"| while a stranger opens {opened / sum(flooded):.0f} connections a second "
        f"| {median(flooded):.2f} ({min(flooded):.2f} to {max(flooded):.2f}) |\n\n"
        f"ratio {ratio:.2f}, goal at most {GOAL}\n"
    )
    return int(ratio > GOAL)


def seconds(lab: Lab) -> float:
    """Of one check by both nodes, which must be READY."""
    with tempfile.TemporaryDirectory() as home:
        env = {"WIRESPEED_HOME": home, "OMP_NUM_THREADS": "1"}
        env["WIRESPEED_SECRET"] = secrets.token_hex(32)
        begin = time.perf_counter()
        first = lab.run(CHECK, nodes=NODES, env=env, timeout=BOUND_S)[0]
        took = time.perf_counter() - begin
    if first.returncode or json.loads(first.stdout)["verdict"] != "READY":
        raise SystemExit(f"a check was not READY: {first.stdout[-1500:]} {first.stderr[-500:]}")
    return took


if __name__ == "__main__":
    sys.exit(main())
