"""What `wirespeed launch` adds to the time from the command to the first collective, engine by engine.

    python benchmarks/launch_time.py [--engines local,ssh,mpi] [--rounds 15] [--folder SHARED]

Two ranks run a script of a few lines: import torch, join a gloo world, one all_reduce, note the time.
It is started by the engine alone (torchrun; ssh and torchrun; mpirun; deepspeed; srun; a Ray program;
a Metaflow flow) and by `wirespeed launch --on ENGINE`, in turns, every other round in the other order.
What counts is from the start of the command to the end of the later rank's first all_reduce. Promised:
at most 1 s more. A row is *kept* where the whole 95 % interval of the median of the rounds' differences
lies within that, *over* where it lies above (exit code 1), else *open*: more rounds, or a quieter
machine. Fewer than 6 rounds give no such interval. An engine that is not there is told with the reason.

For ssh the benchmark starts an sshd of its own on loopback, with keys of its own, and ends it.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import IO

from launch_engines import ENGINES, SCRIPT, Commands, Missing, Pair, Place, free_port
from wirespeed.statistics import LEAST_SAMPLES, median_interval

MORE_S = 1.0
ROUNDS = 15
BOUND_S = 180.0


def environment(place: Place) -> dict[str, str]:
    """The same for both; settings and files of the user's own Ray and Metaflow stay as they are."""
    here = str(place.folder)
    return {
        **os.environ,
        "BARE_SCRIPT": place.script,
        "DS_ACCELERATOR": "cpu",
        "METAFLOW_DATASTORE_SYSROOT_LOCAL": here,
        "METAFLOW_HOME": here,
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "USER": "benchmark",
        "WIRESPEED_HOME": str(place.folder / "runs"),
    }


def until_first(commands: Commands, place: Place, **variables: str) -> float:
    """Seconds from the start to the later rank's first all_reduce."""
    marks = [place.folder / f"mark-{rank}" for rank in range(2)]
    for mark in marks:
        mark.unlink(missing_ok=True)
    log = place.folder / "output.txt"
    with log.open("wb") as output, ExitStack() as ends:
        begin = time.time()
        running = [
            started(command, {**environment(place), **variables}, output, place)
            for command in commands
        ]
        for process in running:
            ends.callback(end, process)
        for process in running:
            wait(process)
    bad = [process.returncode for process in running if process.returncode]
    if bad or not all(mark.exists() for mark in marks):
        said = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{commands} ended with {bad or 'no mark of a rank'}\n{said}")
    return max(float(mark.read_text()) for mark in marks) - begin


def started(
    command: list[str], variables: dict[str, str], output: IO[bytes], place: Place
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=variables,
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(BOUND_S)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{process.args!r} has not ended within {BOUND_S:g} s") from None


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def measured(pair: Pair, place: Place, rounds: int) -> list[tuple[float, float]]:
    """(bare, ours) of each round, after one of both that does not count."""
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            ours, bare = ours_s(pair, place), bare_s(pair, place)
        else:
            bare, ours = bare_s(pair, place), ours_s(pair, place)
        pairs.append((bare, ours))
    return pairs[1:]


def bare_s(pair: Pair, place: Place) -> float:
    port = free_port()
    return until_first(pair.bare(port), place, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def ours_s(pair: Pair, place: Place) -> float:
    return until_first([pair.ours], place)


def row(engine: str, pairs: Sequence[tuple[float, float]]) -> tuple[str, bool]:
    """The table's line, and whether the promise is broken."""
    bare, ours = zip(*pairs, strict=True)
    more = [b - a for a, b in pairs]
    inside = median_interval(more)
    word = "open"
    if len(pairs) >= LEAST_SAMPLES:
        word = "kept" if inside.high <= MORE_S else "over" if inside.low > MORE_S else "open"
    told = f"{median(more):+.2f} ({inside.low:+.2f} … {inside.high:+.2f})"
    line = (
        f"| {engine} | {median(bare):.2f} | {median(ours):.2f} | {told} | {len(pairs)} | {word} |"
    )
    return line, word == "over"


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What wirespeed launch adds to an engine's start.")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", help="where files go; for slurm one that its nodes share")
    options = parser.parse_args()
    unknown = set(options.engines.split(",")) - set(ENGINES)
    if unknown or options.rounds < 1:
        parser.error(f"--engines of {', '.join(ENGINES)}; --rounds of at least 1")
    return options


def main() -> int:
    options, over = asked(), False
    sys.stdout.write("| engine | bare s | ours s | more s, 95 % interval | rounds | ≤ 1 s |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for name in options.engines.split(","):
        sys.stdout.flush()
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            place = Place(Path(folder))
            Path(place.script).write_text(SCRIPT)
            try:
                with ENGINES[name](place) as pair:
                    line, broken = row(name, measured(pair, place, options.rounds))
            except Missing as why:
                line, broken = f"| {name} | – | – | not measured: {why} | – | – |", False
        sys.stdout.write(f"{line}\n")
        over = over or broken
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
