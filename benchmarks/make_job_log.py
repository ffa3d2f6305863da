"""A job's log of many ranks, interleaved, of any size: start, training, one cause, its consequences.

    python benchmarks/make_job_log.py job.log --ranks 1024 --megabytes 2000 [--seed 7]

The cause: one rank's process is killed by the kernel for memory; then every other rank's watchdog and
sockets complain. Prints the rank.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path

PER_NODE = 8
MILLION = 1_000_000


def start(ranks: int) -> Iterator[str]:
    """What NCCL 2.27 says with NCCL_DEBUG=INFO, in the order of one rank."""
    for rank in range(ranks):
        node, gpu = divmod(rank, PER_NODE)
        who = f"[rank{rank}]: gpu-{node:03d}:{4000 + gpu}:{5000 + gpu} [{gpu}]"
        peer = (rank + 1) % ranks
        yield f"{who} NCCL INFO NCCL version 2.27.3+cuda12.9"
        yield f"{who} NCCL INFO NET/IB : Using [0]mlx5_{gpu}:1/IB [RO]; OOB eth0:10.0.{node}.1<0>"
        yield f"{who} NCCL INFO Using network IB"
        for channel in range(16):
            via = "P2P/IPC" if peer // PER_NODE == node else f"NET/IB/{gpu}/GDRDMA"
            yield (
                f"{who} NCCL INFO Channel {channel:02d}/0 : {rank}[{gpu}] -> "
                f"{peer}[{peer % PER_NODE}] via {via}"
            )
        yield f"{who} NCCL INFO Connected all rings"
        comm = f"comm 0x5{rank:06x} rank {rank} nranks {ranks} cudaDev {gpu}"
        yield f"{who} NCCL INFO {comm} - Init COMPLETE"


def steps(ranks: int, rng: random.Random) -> Iterator[str]:
    number = 0
    while True:
        clock = f"2026-11-20 {number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        for rank in rng.sample(range(ranks), min(ranks, 64)):
            loss = 2 + rng.random()
            yield (
                f"[rank{rank}]: {clock},{rng.randrange(1000):03d} [INFO] [trainer.py:210:step] "
                f"step {number} loss {loss:.4f} lr 3.0e-04 grad_norm {rng.random():.3f} "
                f"tokens/s {rng.randrange(9000, 11000)} mem 61.2GiB"
            )
        number += 1


def end(ranks: int, killed: int) -> Iterator[str]:
    node = killed // PER_NODE
    pid = 4000 + killed % PER_NODE
    yield (
        f"[pod/gpu-{node:03d}/kernel] [98765.432101] Out of memory: Killed process {pid} (python) "
        "total-vm:912345678kB, anon-rss:498765432kB, file-rss:0kB, shmem-rss:0kB"
    )
    for rank in range(ranks):
        if rank == killed:
            continue
        host, gpu = divmod(rank, PER_NODE)
        who = f"gpu-{host:03d}:{4000 + gpu}:{6000 + gpu} [{gpu}]"
        yield (
            f"[rank{rank}]: {who} misc/socket.cc:881 NCCL WARN "
            f"socketProgress: Connection closed by remote peer gpu-{node:03d}<42311>"
        )
        yield (
            f"[rank{rank}]:[E1120 23:59:59.123456 ProcessGroupNCCL.cpp:685] [Rank {rank}] "
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48211, "
            "OpType=ALLREDUCE, NumelIn=26214400, NumelOut=26214400, Timeout(ms)=600000) "
            "ran for 600012 milliseconds before timing out."
        )


def write(path: Path, ranks: int, megabytes: int, seed: int) -> int:
    """Write the log; the rank that is killed."""
    rng = random.Random(seed)
    killed = rng.randrange(ranks)
    goal, written = megabytes * MILLION, 0
    with path.open("w") as out:
        head = list(start(ranks))
        rng.shuffle(head)
        for line in head:
            written += out.write(line + "\n")
        for line in steps(ranks, rng):
            written += out.write(line + "\n")
            if written >= goal:
                break
        cause, *after = end(ranks, killed)
        rng.shuffle(after)
        for line in (cause, *after):
            out.write(line + "\n")
    return killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    killed = write(given.path, given.ranks, given.megabytes, given.seed)
    print(f"rank {killed} is killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
