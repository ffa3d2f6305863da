"""What a user waits for: start-up of the command, and whole checks on local gloo ranks.

Bounds in seconds are for 2 cores. The share that is ours is what remains of a quick check after
process start, the import of torch in the ranks (both measured by starting as many bare processes at
once) and measuring (warm-ups, common starts and timed calls, from the times in the
run's records).
Run: python benchmarks/user_time.py
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
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
    """(seconds of the command, seconds of it in measuring: warm-ups, common starts, timed calls)."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "wirespeed", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True)
    took = time.perf_counter() - begin
    run_id = json.loads(done.stdout)["id"]
    (folder,) = Path(os.environ["WIRESPEED_HOME"], "runs").glob(f"*-{run_id}")
    return took, measuring(folder / "records.jsonl")


def measuring(records: Path) -> float:
    """Each measurement's record comes when it is over; the record before it, when it began."""
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    return sum(
        now["at"] - before["at"] for before, now in pairwise(lines) if now["kind"] == "measurement"
    )


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
        ours = median(took - loops for took, loops in quick) - median(imports)
        rows += [
            ("`check -l quick`, 4 gloo ranks", median(took for took, _ in quick), 15.0),
            ("`check`, 4 gloo ranks", median(whole_check(MEDIUM)[0] for _ in range(3)), 30.0),
            ("4 processes that import torch", median(imports), float("inf")),
            ("quick check beyond imports and measuring", ours, 2.0),
        ]
    sys.stdout.write("| what | seconds (median) | bound |\n|---|---|---|\n")
    for what, value, bound in rows:
        over = " **over**" if value > bound else ""
        sys.stdout.write(f"| {what} | {value:.2f}{over} | {bound:g} |\n")
    return int(any(value > bound for _, value, bound in rows))


if __name__ == "__main__":
    sys.exit(main())
