"""What a watch costs the job that is watched: CPU time of a step, step time, memory, bytes on the wire.

Four gloo ranks, five strategies (benchmarks/watched_job.py). *Hooks*: what rank 0's training thread
computes more in steps with hooks than in those without beside them, every other one. *Thread*: CPU
time of the thread that tells, by step. *Together*: both as a share of the step, which is what the job
loses where ranks have no core to spare. *Time*: the same steps by the clock. *Whole*: `launch --watch`
against `launch`, runs in turns, which also counts the session on this machine. Goals: 1.005 of the
step, 50 MB and 1 KB/s a rank; the same losses, to the bit.

Run: python benchmarks/watch_cost.py [--pairs 6] [--steps 1000]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from wirespeed.launchers.rank_wrapper import rank_variables
from wirespeed.launchers.watch_relay import WatchRelay
from wirespeed.process import free_port
from wirespeed.statistics import median_interval

JOB = Path(__file__).with_name("watched_job.py")
JOBS = (
    ("ddp", 1024),
    ("fsdp", 192),
    ("zero1", 1024),
    ("tpdp", 1792),
    ("loop", 768),
    ("tpdp", 1024),
    ("loop", 512),
    ("zero1", 192),
    ("ddp", 192),
)
"""Strategy and width of its layers: steps of about 100 ms, and shorter ones, of which the same
microseconds are a larger share."""
RANKS, WARM_UP, BOUND_S = 4, 32, 300.0
Told = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=6, help="runs with and without; 0: hooks only")
    parser.add_argument("--steps", type=int, default=1000)
    asked = parser.parse_args()
    sys.stdout.write(
        "| job | step | hooks, µs a step | thread, µs a step | together | time | KB/s a rank "
        "| whole | memory | losses |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    for strategy, wide in JOBS:
        words = ["--strategy", strategy, "--steps", str(asked.steps), "--wide", str(wide)]
        words += ["--pause", "5"]
        told, rate = _hooks([*words, "--turns"])
        pairs = [_pair(words) for _ in range(asked.pairs)]
        memory = median(on["rss"] - off["rss"] for on, off in pairs) / 1e6 if pairs else 0.0
        same = all(on["losses"] == off["losses"] for on, off in pairs)
        sys.stdout.write(
            f"| {strategy} {wide} | {_step_s(told) * 1e3:.0f} ms | {_costs(told)} | {rate / 1e3:.2f} "
            f"| {_interval([_step_s(on) / _step_s(off) for on, off in pairs])} "
            f"| {memory:.0f} MB | {'same' if same else 'OTHERS'} |\n"
        )
        sys.stdout.flush()
    return 0


def _costs(told: Told) -> str:
    hooks = [on - off for off, on in _pairs(told, "cpu")]
    ends, thread, step_s = median_interval(hooks), told["thread"], _step_s(told)
    hook = median(hooks)
    together = (1 + (one + thread) / step_s for one in (hook, ends.low, ends.high))
    times = _interval([on / off for off, on in _pairs(told, "times")])
    return (
        f"{hook * 1e6:.0f} ({ends.low * 1e6:.0f} … {ends.high * 1e6:.0f}) | {thread * 1e6:.0f} "
        "| {:.4f} ({:.4f} … {:.4f})".format(*together)
        + f" | {times}"
    )


def _interval(ratios: list[float]) -> str:
    if not ratios:
        return "not run"
    ends = median_interval(ratios)
    return f"{median(ratios):.4f} ({ends.low:.4f} … {ends.high:.4f})"


def _step_s(told: Told) -> float:
    times: list[float] = told["times"]
    return median(times[WARM_UP:])


def _pairs(told: Told, name: str) -> Iterator[tuple[float, float]]:
    """Medians of blocks (without, with hooks)."""
    size = told["block"]
    values = told[name][WARM_UP : len(told[name]) // (2 * size) * 2 * size]
    blocks = [median(values[i : i + size]) for i in range(0, len(values) - size + 1, size)]
    # The first change, at step 32, switches the hooks off.
    return zip(blocks[::2], blocks[1::2], strict=False)


def _hooks(words: list[str]) -> tuple[Told, float]:
    """What rank 0 told of a job whose ranks are watched, and bytes a second and rank."""
    port, size = free_port("127.0.0.1"), 0
    with tempfile.TemporaryDirectory() as folder:
        relays = [WatchRelay() for _ in range(RANKS)]
        place = Path(folder, "told.json")
        ranks = []
        for rank, relay in enumerate(relays):
            env = _environment(rank, port)
            command = [sys.executable, str(JOB), *words, "--told", str(place)]
            ranks.append(subprocess.Popen(command, env=env | relay.environment(env)))
        began = time.monotonic()
        while any(one.poll() is None for one in ranks):
            size += sum(len(text) for relay in relays for text in relay.read())
            time.sleep(0.2)
            if time.monotonic() - began > BOUND_S:
                for one in ranks:
                    one.kill()
        for relay in relays:
            relay.close()
        told: Told = json.loads(place.read_text())
        return told, size / (time.monotonic() - began) / RANKS


def _environment(rank: int, port: int) -> dict[str, str]:
    own = rank_variables(rank=rank, size=RANKS, local=rank, local_size=RANKS, node=0)
    own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


def _pair(words: list[str]) -> tuple[Told, Told]:
    """(watched, not watched)."""
    return _launched(words, "--watch"), _launched(words)


def _launched(words: list[str], *options: str) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "told.json")
        command = [sys.executable, "-m", "wirespeed", "launch", "-q", *options]
        command += [
            "--ranks",
            str(RANKS),
            "--",
            sys.executable,
            str(JOB),
            *words,
            "--told",
            str(place),
        ]
        env = {**os.environ, "WIRESPEED_HOME": folder, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=BOUND_S)
        told: Told = json.loads(place.read_text())
        return told


if __name__ == "__main__":
    sys.exit(main())
