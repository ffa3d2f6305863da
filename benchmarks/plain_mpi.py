"""The loop that people write with mpi4py to time Allreduce, with nothing of ours.

Started by benchmarks/overhead.py --engine mpi4py under mpirun: as OSU's osu_allreduce does, float32,
a Barrier before each call, MPI's clock, pairs of buffers in turn; prints the median microseconds of
the slowest rank for each line `SIZE BUFFERS CALLS` of rank 0's standard input. Between lines the ranks
sleep.
"""

import os
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from mpi4py import MPI

WARM_UP = 20
COMM = MPI.COMM_WORLD


def timed(size_bytes: int, buffers: int, calls: int) -> float:
    """Median seconds of the slowest rank."""
    # Written, so that each has pages of its own: untouched ones are all the same page of zeros.
    sent = [np.ones(size_bytes // 4, np.float32) for _ in range(buffers)]
    received = [np.ones_like(one) for one in sent]
    warm_up = max(WARM_UP, buffers)
    times = np.zeros(warm_up + calls)
    for call in range(warm_up + calls):
        one, other = sent[call % buffers], received[call % buffers]
        COMM.Barrier()
        begin = MPI.Wtime()
        COMM.Allreduce(one, other)
        times[call] = MPI.Wtime() - begin
    slowest = np.zeros_like(times)
    COMM.Allreduce(times, slowest, op=MPI.MAX)
    return float(median(slowest[warm_up:]))


def main() -> None:
    folder, turn = Path(os.environ["TURNS_FOLDER"]), 0
    while line := _line(folder / f"turn-{turn}").strip():
        seconds = timed(*map(int, line.split()))
        if COMM.rank == 0:
            print(f"{seconds * 1e6:.3f}", flush=True)
        turn += 1


def _line(path: Path) -> str:
    """The next line of rank 0's input; the others wait for it without taking a core."""
    if COMM.rank == 0:
        line = sys.stdin.readline()
        path.with_suffix(".new").write_text(line)
        path.with_suffix(".new").rename(path)
        return line
    while not path.exists():
        time.sleep(0.001)
    return path.read_text()


if __name__ == "__main__":
    main()
