"""The script that people write to time all_reduce, with nothing of ours: what a figure is held against.

    torchrun --nproc-per-node 2 benchmarks/plain_all_reduce.py SIZE [BUFFERS [CALLS]]

float32, `dist.barrier()` before each call, rotating buffers; prints the median microseconds of the
slowest rank. `-` in place of SIZE: one such line after another from rank 0's standard input, and the
ranks sleep between them, so that benchmarks/overhead.py can take turns with it.
"""

import os
import sys
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist

WARM_UP, CALLS = 20, 400


def timed(size_bytes: int, buffers: int = 1, calls: int = CALLS) -> float:
    """Median seconds of the slowest rank."""
    tensors = [torch.zeros(size_bytes // 4) for _ in range(buffers)]
    times, warm_up = [], max(WARM_UP, buffers)
    for call in range(warm_up + calls):
        tensor = tensors[call % buffers]
        dist.barrier()
        begin = perf_counter()
        dist.all_reduce(tensor)
        times.append(perf_counter() - begin)
    slowest = torch.tensor(times[warm_up:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(median(slowest.tolist()))


def main() -> None:
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    if sys.argv[1] != "-":
        seconds = timed(*map(int, sys.argv[1:4]))
        if first:
            print(f"{seconds * 1e6:.1f}", flush=True)
    else:
        turns(first)
    dist.destroy_process_group()


def turns(first: bool) -> None:
    """Until rank 0's input ends. The others hear from a store, which they poll, not from gloo."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["TURNS_PORT"]), is_master=first)
    turn = 0
    while True:
        if first:
            store.set(f"turn {turn}", sys.stdin.readline())
        line = store.get(f"turn {turn}").decode()
        if not line.strip():
            return
        seconds = timed(*map(int, line.split()))
        if first:
            print(f"{seconds * 1e6:.3f}", flush=True)
        turn += 1


if __name__ == "__main__":
    main()
