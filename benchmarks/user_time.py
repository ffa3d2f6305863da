"""What a user waits for: start-up of the command, and whole checks on local gloo ranks.

Bounds in seconds are for 2 cores. The share that is ours is what remains of a quick check after
process start, the import of torch in the ranks (both measured by starting as many bare processes at
once) and the operations (from the run's own records). Run: python benchmarks/user_time.py
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

ROUNDS = 5
QUICK = ("check", "-l", "quick", "-q", "--ranks", "4", "-o", "json")
MEDIUM = ("check", "-q", "--ranks", "4", "-o", "json")


def seconds(command: list[str], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        times.append(time.perf_counter() - begin)
    return median(times)


def whole_check(arguments: tuple[str, ...]) -> tuple[float, float]:
    """(seconds of the command, seconds in its timed operations, warm-ups included)."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", *arguments],
        capture_output=True,
        timeout=300,
        check=True,
    )
    took = time.perf_counter() - begin
    run = json.loads(done.stdout)
    operations = sum(
        m["time_us"]["median"] * (m["iterations"] + m["warmup"]) / 1e6 for m in run["measurements"]
    )
    return took, operations


def bare_ranks(count: int) -> float:
    """Start that many processes that only import torch.distributed, and wait for all."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", "import torch.distributed"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    for process in processes:
        process.wait(timeout=120)
    return time.perf_counter() - begin


def main() -> int:
    wirespeed = [sys.executable, "-m", "wirespeed"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIRESPEED_HOME"] = folder
        rows = [
            ("`wirespeed --version`", seconds([*wirespeed, "--version"], ROUNDS), 0.15),
            ("`wirespeed --help`", seconds([*wirespeed, "--help"], ROUNDS), 0.25),
        ]
        quick, imports = [whole_check(QUICK) for _ in range(3)], [bare_ranks(4) for _ in range(3)]
        ours = median(took - operations for took, operations in quick) - median(imports)
        rows += [
            ("`check -l quick`, 4 gloo ranks", median(took for took, _ in quick), 15.0),
            ("`check`, 4 gloo ranks", median(whole_check(MEDIUM)[0] for _ in range(3)), 30.0),
            ("4 processes that import torch", median(imports), float("inf")),
            ("quick check beyond imports and timed operations", ours, 2.0),
        ]
    sys.stdout.write("| what | seconds (median) | bound |\n|---|---|---|\n")
    for what, value, bound in rows:
        over = " **over**" if value > bound else ""
        sys.stdout.write(f"| {what} | {value:.2f}{over} | {bound:g} |\n")
    return int(any(value > bound for _, value, bound in rows))


if __name__ == "__main__":
    sys.exit(main())
