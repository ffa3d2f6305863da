"""A small training job over gloo, as users write them: all_reduce until it is told to end."""

import datetime
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    steps, timeout_s = int(sys.argv[1]), float(sys.argv[2])
    fault = sys.argv[3] if len(sys.argv) > 3 else ""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout_s))
    rank = dist.get_rank()
    say(f"rank {rank} of {dist.get_world_size()} on {socket.gethostname()}")
    gradient = torch.ones(1 << 16)
    for step in range(steps):
        if fault and rank == 1 and step == 3:
            strike(fault)
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
        say(f"step {step} loss {1 / (step + 1):.3f}")
        time.sleep(0.2)
    dist.destroy_process_group()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def strike(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "raise":
        raise ValueError("the batch of this rank is empty")


if __name__ == "__main__":
    main()
