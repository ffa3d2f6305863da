"""A small DDP job over gloo that does what a file tells one of its ranks, until the file is gone.

Who sleeps is also woken, by SIGUSR1.
"""

import contextlib
import ctypes
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

FOLDER = Path(sys.argv[1])


def told(rank: int) -> str:
    try:
        return (FOLDER / f"rank-{rank}").read_text()
    except FileNotFoundError:
        return ""


class Woken(Exception):
    pass


def wake(*_: object) -> NoReturn:
    raise Woken


def load_batch() -> None:
    time.sleep(600)


def hold_interpreter() -> None:
    ctypes.PyDLL(None).sleep(600)


def save_checkpoint(rank: int) -> None:
    state = torch.ones(1 << 20)
    while told(rank) == "save":
        torch.save(state, FOLDER / "checkpoint.pt")


def evaluate(rank: int, model: torch.nn.Module) -> None:
    with torch.no_grad():
        while told(rank) == "evaluate":
            model(torch.ones(256, 64))


def main() -> None:
    signal.signal(signal.SIGUSR1, wake)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    inner = torch.nn.Linear(64, 64)
    model = torch.nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(10**9):
        task = told(rank)
        if task in ("sleep", "gil"):
            with contextlib.suppress(Woken):
                load_batch() if task == "sleep" else hold_interpreter()
        elif task == "save":
            save_checkpoint(rank)
        elif task == "evaluate":
            evaluate(rank, inner)
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
        dist.barrier()
        if step == 3:
            (FOLDER / f"ready-{rank}").touch()


if __name__ == "__main__":
    main()
