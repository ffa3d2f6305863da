"""What a user waits for: start-up of the command, and whole checks on local gloo ranks.

Bounds in seconds are for 2 cores. The share that is ours is what remains of a quick check after
process start, the import of torch (both measured by starting a bare process, in turns with the checks;
ranks are forked from one that has imported it) and the timed operations themselves: the sum of their
times, which is mean × (warm-ups + iterations) of each measurement. The barrier before each call, the
looks at the interval, the data checks, the watchdog, start and end are all ours.
Run: python benchmarks/user_time.py
"""

import json
import math
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
    """(seconds of the command, seconds of it in the timed operations)."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "wirespeed", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True)
    took = time.perf_counter() - begin
    return took, sum(
        m["time_us"]["mean"] / 1e6 * (m["warmup"] + m["iterations"])
        for m in json.loads(done.stdout)["measurements"]
    )


def bare_import() -> float:
    """Seconds of a process that only imports torch.distributed."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch.distributed"], check=True, timeout=120)
    return time.perf_counter() - begin


def main() -> int:
    wirespeed = [sys.executable, "-m", "wirespeed"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIRESPEED_HOME"] = folder
        rows = [
            ("`wirespeed --version`", seconds([*wirespeed, "--version"], ROUNDS), 0.15),
            ("`wirespeed --help`", seconds([*wirespeed, "--help"], ROUNDS), 0.25),
        ]
        pairs = [(*whole_check(QUICK), bare_import()) for _ in range(ROUNDS)]
        quick, operations, imports = zip(*pairs, strict=True)
        ours = [took - timed - bare for took, timed, bare in pairs]
        rows += [
            ("`check -l quick`, 4 gloo ranks", median(quick), 15.0),
            ("`check`, 4 gloo ranks", median(whole_check(MEDIUM)[0] for _ in range(3)), 30.0),
            ("a process that only imports torch", median(imports), math.inf),
            ("timed operations of the quick check", median(operations), math.inf),
            ("quick check beyond these two", median(ours), 2.0),
        ]
    sys.stdout.write("| what | seconds (median) | bound |\n|---|---|---|\n")
    for what, value, bound in rows:
        over = " **over**" if value > bound else ""
        limit = "–" if math.isinf(bound) else f"{bound:g}"
        sys.stdout.write(f"| {what} | {value:.2f}{over} | {limit} |\n")
    return int(any(value > bound for _, value, bound in rows))


if __name__ == "__main__":
    sys.exit(main())
