"""Does `locate` see the bandwidth that iperf3 sees? Two nodes of the lab, in turns.

A round is iperf3 one way and the other (its JSON read as `runs import` reads it), and `locate` of the
same two nodes; who goes first alternates. Each way's figure is the median of the rounds' ratios with its
95 % interval. Kept where that lies within 5 %; exit code 1 where one does not.

Requires: root, iproute2, iperf3. Run: python benchmarks/locate_iperf3.py [--rounds 8] [--rate 1gbit]
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from statistics import median

from wirespeed.lab import Lab, LabSpec
from wirespeed.lab.spec import parse_rate
from wirespeed.runs.importers import import_bytes
from wirespeed.statistics import paired_ratio

WITHIN, BOUND_S, PORT = 0.05, 120.0, "5201"
LOCATE = (sys.executable, "-m", "wirespeed", "locate", "-q", "-o", "json")
IPERF3 = ("iperf3", "-J", "-p", PORT, "-t", "2", "-i", "0.2", "-O", "1", "-c", "node-1")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rate", default="1gbit")
    asked = parser.parse_args()
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("iperf3")):
        sys.stderr.write("Requires: root, iproute2 and iperf3\n")
        return 3
    spec = LabSpec(nodes=2, name=f"iperf{os.getpid()}", rate=parse_rate(asked.rate))
    rounds = []
    with Lab(spec) as lab:
        server = lab.start(["iperf3", "-s", "-p", PORT], nodes=["node-1"], ranks=False)
        time.sleep(0.5)
        for number in range(asked.rounds):
            both = (by_iperf3, by_locate) if number % 2 else (by_locate, by_iperf3)
            found = {how.__name__: how(lab) for how in both}
            rounds.append((*found["by_locate"], *found["by_iperf3"]))
        server.end()
    return 0 if told(asked.rate, list(zip(*rounds, strict=True))) else 1


def by_iperf3(lab: Lab) -> tuple[float, float]:
    """Bytes a second from node-0 to node-1, and back."""
    return one_way(lab), one_way(lab, "-R")


def one_way(lab: Lab, *more: str) -> float:
    (told,) = lab.run([*IPERF3, *more], nodes=["node-0"], ranks=False, timeout=BOUND_S)
    (run,) = import_bytes(told.stdout.encode(), name="iperf3")
    return run.figures[0].value


def by_locate(lab: Lab) -> tuple[float, float]:
    """The same; medians over its rounds of this pair."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"WIRESPEED_HOME": home, "OMP_NUM_THREADS": "1"}
        first, *_ = lab.run(LOCATE, env=environment, timeout=BOUND_S)
    pairs = json.loads(first.stdout)["located"]["pairs"]
    forth, back = (median(one[way] for one in pairs) * 1e9 for way in ("forth_GBps", "back_GBps"))
    return (forth, back) if pairs[0]["first"] == "node-0" else (back, forth)


def told(rate: str, columns: list[tuple[float, ...]]) -> bool:
    """Print a row each way; whether both are kept."""
    sys.stdout.write(
        f"{len(columns[0])} rounds, links of {rate}\n\n"
        "| | iperf3 MB/s | locate MB/s | ratio, 95 % interval | |\n|---|---|---|---|---|\n"
    )
    kept = []
    for name, ours, theirs in zip(("forth", "back"), columns[:2], columns[2:], strict=True):
        ratio, ends = paired_ratio(ours, theirs)
        kept.append(ends.low >= 1 - WITHIN and ends.high <= 1 + WITHIN and ends.coverage >= 0.95)
        sys.stdout.write(
            f"| {name} | {median(theirs) / 1e6:.1f} | {median(ours) / 1e6:.1f} "
            f"| {ratio:.3f} ({ends.low:.3f} … {ends.high:.3f}) "
            f"| {'kept' if kept[-1] else 'not shown'} |\n"
        )
    return all(kept)


if __name__ == "__main__":
    sys.exit(main())
