"""A job to be watched: small training by one of several strategies, with one fault of a kind.

    python -m wirespeed.watch benchmarks/watched_job.py --strategy fsdp --fault sleep --rank 2 --from 50

It knows nothing of wirespeed. Faults begin at a step and last; their size is in milliseconds a step.
With `--device cuda` it is on GPUs and NCCL; ranks that are more than the GPUs share them.
"""

import argparse
import atexit
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

STRATEGIES = ("ddp", "fsdp", "zero1", "tpdp", "loop")
SLOW = ("sleep", "compute", "neighbour", "data", "gc", "checkpoint", "skew", "now-and-then")
HANGS = ("stop", "interpreter", "loader", "other", "early")
BATCH = 24
_NEIGHBOURS = 7
"""More than ranks share the other core of two: a rank's share of its own is smaller then."""
_WARM_UP, _BLOCK = 32, 1
_CYCLES_A_MS = 1.7e6
"""Of a GPU, about."""
Step = Callable[[torch.Tensor], torch.Tensor]
"""Of a batch; the loss."""


def main() -> None:
    asked = _arguments()
    if asked.fault == "neighbour":
        _share_cores(asked.rank)
    if asked.device == "cuda":
        _share_gpus()
    dist.init_process_group("nccl" if asked.device == "cuda" else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    step = _strategy(asked)
    fault = _Fault(asked, rank)
    losses, times, cpu = [], [], []
    begin, used, thread = time.perf_counter(), time.thread_time(), 0.0
    for number, batch in enumerate(DataLoader(_Data(asked, rank), batch_size=None)):
        fault.before(number, len(batch))
        loss = step(batch.to(asked.device, non_blocking=True))
        if number % asked.losses_every == 0:
            losses.append(float(loss))
        fault.after(number)
        time.sleep(asked.pause / 1e3)
        times.append(time.perf_counter() - begin)
        cpu.append(time.thread_time() - used)
        if number == _WARM_UP:
            thread = _thread_cpu_s()
        if asked.turns:
            _take_turns(number + 1)
        begin, used = time.perf_counter(), time.thread_time()
    fault.over()
    if rank == 0 and asked.told:
        told = {"losses": [loss.hex() for loss in losses], "times": times, "block": _BLOCK}
        told["cpu"] = cpu
        told["thread"] = (_thread_cpu_s() - thread) / max(len(times) - _WARM_UP, 1)
        told["rss"] = _resident()
        asked.told.write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()
    # gloo of torch 2.13 aborts now and then in the interpreter's last steps, watched or not.
    sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp")
    parser.add_argument("--fault", choices=("", *SLOW, *HANGS), default="")
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--from", dest="begin", type=int, default=50)
    parser.add_argument("--ms", type=float, default=30.0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--losses-every", type=int, default=1, metavar="STEPS", help="looked at")
    parser.add_argument("--wide", type=int, default=192, help="of each layer")
    parser.add_argument("--pause", type=float, default=10.0, help="ms a step on every rank")
    parser.add_argument("--told", type=Path, help="where rank 0 writes its losses and times")
    parser.add_argument(
        "--turns", action="store_true", help="watched in every other block of steps"
    )
    return parser.parse_args()


def _take_turns(number: int) -> None:
    """The hooks count in every other block: in the others they take this for another thread."""
    inside = sys.modules.get("_wirespeed_inside")
    if inside is not None and number >= _WARM_UP and number % _BLOCK == 0:
        own = threading.get_ident()
        inside.RANK.thread = -1 if inside.RANK.thread == own else own


def _thread_cpu_s() -> float:
    """Of the thread that tells; 0 where there is none."""
    for one in threading.enumerate():
        if one.name == "wirespeed-watch":
            used = Path(f"/proc/self/task/{one.native_id}/schedstat").read_text().split()[0]
            return int(used) / 1e9
    return 0.0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Data(IterableDataset[torch.Tensor]):
    def __init__(self, asked: argparse.Namespace, rank: int) -> None:
        self._asked, self._rank = asked, rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        asked, mine = self._asked, self._rank == self._asked.rank
        made = torch.Generator().manual_seed(self._rank)
        for number in range(asked.steps):
            hit = mine and number >= asked.begin
            if hit and asked.fault == "data":
                time.sleep(asked.ms / 1e3)
            if hit and asked.fault == "loader":
                time.sleep(3600)
            if hit and asked.fault == "early":
                return
            rows = BATCH
            if number >= asked.begin and asked.fault == "skew":
                rows = BATCH * (4 if torch.randint(4, (1,), generator=made).item() == 0 else 1)
            yield torch.randn(rows, asked.wide, generator=made)


class _Fault:
    def __init__(self, asked: argparse.Namespace, rank: int) -> None:
        self._asked, self._mine = asked, rank == asked.rank
        self._neighbours: list[subprocess.Popen[bytes]] = []

    def before(self, number: int, rows: int) -> None:
        asked, kind = self._asked, self._asked.fault
        if kind == "skew" and rows > BATCH:
            self._burn()
        if not self._mine or number < asked.begin:
            return
        if kind == "sleep" or (kind == "now-and-then" and number % 5 == 0):
            time.sleep(asked.ms * (5 if kind == "now-and-then" else 1) / 1e3)
        elif kind == "compute":
            self._burn()
        elif kind == "neighbour" and number == asked.begin:
            self._crowd()
        elif kind == "stop" and number == asked.begin:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "interpreter" and number == asked.begin:
            ctypes.PyDLL("").usleep(3_600_000_000)
        elif kind == "other" and number == asked.begin:
            told = torch.zeros(3, device=asked.device)
            dist.all_gather([torch.zeros_like(told) for _ in range(dist.get_world_size())], told)

    def _burn(self) -> None:
        """On the device that trains."""
        if self._asked.device == "cuda":
            torch.cuda._sleep(round(self._asked.ms * _CYCLES_A_MS))
            return
        until = time.thread_time() + self._asked.ms / 1e3
        while time.thread_time() < until:
            pass

    def _crowd(self) -> None:
        """Other programs want the core that this rank has for itself."""
        loop = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
        words = [sys.executable, "-c", loop, str(os.getpid())]
        self._neighbours = [subprocess.Popen(words) for _ in range(_NEIGHBOURS)]

    def over(self) -> None:
        for one in self._neighbours:
            one.kill()
            one.wait()

    def after(self, number: int) -> None:
        asked = self._asked
        if number < asked.begin or not self._mine:
            return
        if asked.fault == "gc":
            until = time.perf_counter() + asked.ms / 1e3
            while time.perf_counter() < until:
                gc.collect()
        elif asked.fault == "checkpoint":
            until = time.perf_counter() + asked.ms / 1e3
            while time.perf_counter() < until:
                with tempfile.TemporaryFile() as file:
                    torch.save({"batch": torch.zeros(1 << 18)}, file)


def _share_cores(alone: int) -> None:
    """One rank has a core for itself: who takes it takes no other rank's. These have the rest."""
    first, *rest = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {first} if int(os.environ["RANK"]) == alone else rest or {first})


def _share_gpus() -> None:
    """NCCL takes two ranks of one host on one GPU for a mistake; so each is a host of its own."""
    count, own = torch.cuda.device_count(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(own % count)
    if int(os.environ["LOCAL_WORLD_SIZE"]) > count:
        shared = {"NCCL_HOSTID": f"rank-{own}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0"}
        os.environ.update(shared)


def _model(wide: int) -> nn.Module:
    return nn.Sequential(*[nn.Linear(wide, wide) for _ in range(6)])


def _strategy(asked: argparse.Namespace) -> Step:
    made = {"ddp": _ddp, "fsdp": _fsdp, "zero1": _zero1, "tpdp": _tpdp, "loop": _loop}
    with torch.device(asked.device):
        return made[asked.strategy](asked.wide)


def _stepping(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        seen: torch.Tensor = loss.detach()
        return seen

    return step


def _ddp(wide: int) -> Step:
    model = DistributedDataParallel(_model(wide))
    return _stepping(model, torch.optim.SGD(model.parameters(), lr=1e-3))


def _fsdp(wide: int) -> Step:
    from torch.distributed.fsdp import fully_shard

    model = _model(wide)
    for layer in model.children():
        fully_shard(layer)
    fully_shard(model)
    return _stepping(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def _zero1(wide: int) -> Step:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(_model(wide))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1e-3)
    return _stepping(model, optimizer)


def _tpdp(wide: int) -> Step:
    """Two ranks share each layer by columns; two such pairs average their gradients."""
    rank, half = dist.get_rank(), wide // 2
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    layers = nn.ModuleList(nn.Linear(wide, half) for _ in range(4))
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)

    def step(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        value = batch
        for layer in layers:
            part = layer(value)
            parts = [torch.zeros_like(part) for _ in range(2)]
            dist.all_gather(parts, part.detach(), group=tensor)
            parts[rank % 2] = part
            value = torch.cat(parts, dim=1)
        loss = value.pow(2).mean()
        loss.backward()
        for one in layers.parameters():
            dist.all_reduce(one.grad, group=data)
        optimizer.step()
        seen: torch.Tensor = loss.detach()
        return seen

    return step


def _loop(wide: int) -> Step:
    """By hand: no optimizer, no wrapper, sums that are waited for at the end."""
    model = _model(wide)

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).pow(2).mean()
        loss.backward()
        sums = [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]
        for one in sums:
            one.wait()
        with torch.no_grad():
            for one in model.parameters():
                if one.grad is not None:
                    one.sub_(one.grad, alpha=1e-3 / dist.get_world_size())
                one.grad = None
        seen: torch.Tensor = loss.detach()
        return seen

    return step


if __name__ == "__main__":
    main()
