"""Two installations of wirespeed against each other: whole checks on local ranks, and their memory.

    python benchmarks/local_ranks.py BEFORE/bin/python AFTER/bin/python [--ranks 4,32] [--rounds 7]

Each is the interpreter of an environment that has wirespeed installed. In each round both run
`check -l quick --ranks N`, every other round in the other order, so that what else the machine does
hits both alike; the ratio after/before is taken pair by pair, with the 95 % interval of its median.
Memory is the proportional set size (`Pss` of /proc/PID/smaps_rollup: shared pages divided among those
that share them) of all processes of `bench barrier` but the command itself, once its 8 ranks measure.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from wirespeed.statistics import LEAST_SAMPLES, median_interval

RANKS_OF_MEMORY = 8
BOUND_S = 600.0


def environment(home: str) -> dict[str, str]:
    """Bytecode is kept, as users have it; runs of others on this machine are not looked at."""
    own = {"WIRESPEED_HOME": home, "WIRESPEED_NEIGHBOURS": home}
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**kept, **own}


def check_s(python: str, ranks: int) -> tuple[float, ...]:
    """Seconds of the whole command, and of processors by all of its processes."""
    before = cpu_s()
    with tempfile.TemporaryDirectory() as home:
        begin = time.perf_counter()
        words = [python, "-m", "wirespeed", "check", "-l", "quick", "-q", "--ranks", str(ranks)]
        done = subprocess.run(words, env=environment(home), capture_output=True, timeout=BOUND_S)
        took = time.perf_counter() - begin
    if done.returncode not in (0, 1):  # a slow machine may fail a check; it has run all the same
        raise SystemExit(f"{words} ended with {done.returncode}\n{done.stdout.decode()}")
    return took, cpu_s() - before


def cpu_s() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_mb(python: str, _: int = 0) -> tuple[float, ...]:
    with tempfile.TemporaryDirectory() as home:
        words = [python, "-m", "wirespeed", "bench", "barrier", "-q", "-n", "100000000"]
        words += ["--time-per-size", "600", "--ranks", str(RANKS_OF_MEMORY)]
        command = subprocess.Popen(words, env=environment(home), stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + BOUND_S
            while not (found := measuring(home, command.pid)):
                if command.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{words} does not measure")
                time.sleep(0.5)
            time.sleep(2.0)
            return (sum(map(pss_mb, found)),)
        finally:
            command.terminate()
            command.wait(BOUND_S)


def measuring(home: str, command: int) -> list[int]:
    """The processes of that home but the command itself, once its ranks have joined."""
    told = [path.read_text() for path in Path(home).glob("runs/*/records.jsonl")]
    if not any('"kind": "world"' in text for text in told):
        return []
    mark, found = f"WIRESPEED_HOME={home}".encode(), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != command]


def pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def rows(
    whats: Sequence[str],
    measured: Callable[[str, int], tuple[float, ...]],
    pythons: Sequence[str],
    ranks: int,
    rounds: int,
) -> list[str]:
    """A line of the table for each figure that `measured` gives."""
    pairs = []
    for number in range(rounds):
        order = list(pythons) if number % 2 else list(reversed(pythons))
        took = {python: measured(python, ranks) for python in order}
        pairs.append((took[pythons[0]], took[pythons[1]]))
        sys.stderr.write(f"{whats}: {pairs[-1]}\n")
    lines = []
    for place, what in enumerate(whats):
        before, after = [a[place] for a, _ in pairs], [b[place] for _, b in pairs]
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        told = f"{median(ratios):.2f}"
        if rounds >= LEAST_SAMPLES:
            inside = median_interval(ratios)
            told += f" ({inside.low:.2f} … {inside.high:.2f})"
        figures = f"{median(before):.1f} | {median(after):.1f}"
        lines.append(f"| {what} | {figures} | {told} | {rounds} |\n")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Two installations against each other.")
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--ranks", default="4,32")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    pythons = [asked.before, asked.after]
    sys.stdout.write("| what | before | after | after/before | pairs |\n|---|---|---|---|---|\n")
    for ranks in map(int, asked.ranks.split(",")):
        whats = [f"`check -l quick`, {ranks} ranks, {what}" for what in ("s", "s of processors")]
        sys.stdout.writelines(rows(whats, check_s, pythons, ranks, asked.rounds))
        sys.stdout.flush()
    whats = [f"{RANKS_OF_MEMORY} ranks in barriers, MB (PSS)"]
    sys.stdout.writelines(rows(whats, memory_mb, pythons, 0, min(asked.rounds, 3)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
