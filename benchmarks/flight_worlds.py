"""How right `diagnose` is on flight recorder dumps of random jobs in which one rank goes wrong.

    python benchmarks/flight_worlds.py --worlds 100
    python benchmarks/flight_worlds.py --worlds 100 --fault elsewhere

Each world is a real gloo job of 4 to 8 ranks with tensor, pipeline and data parallel groups. One rank
sleeps, raises (its process ends, or it only stops), or calls another collective than its peers. When
nothing moves any more each rank writes torch's own dump. Exit code 1 where somebody else is named, or
fewer than 99 of 100 culprits are found. `elsewhere`: one rank calls a collective of all ranks, which
only two peers or more at the same place of the program tell from the others' wrong: none need be found.
"""

import argparse
import mmap
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

os.environ["TORCH_FR_BUFFER_SIZE"] = "100"

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import find_sources

FAULTS = ("sleeps", "raises", "ends", "calls another")
ELSEWHERE = "elsewhere"
QUIET_S = 0.7
LONGEST_S = 60.0


@dataclass(frozen=True)
class World:
    """One random job."""

    sizes: dict[str, int]
    """Of a TP, PP and DP group."""
    fault: str
    culprit: int
    step: int
    call: int
    """The culprit's calls in that step before the fault."""
    layers: int
    named: bool
    """Whether its groups have descriptions."""
    odd: str
    """What it calls instead."""
    sends: bool
    """Whether stages hand over by send and receive, which gloo does not record; else by broadcast."""
    patience: float
    """Seconds after which a call that waits fails."""

    @property
    def ranks(self) -> int:
        return self.sizes["TP"] * self.sizes["PP"] * self.sizes["DP"]


def random_world(dice: random.Random, most: int = 8) -> World:
    while True:
        sizes = {name: dice.choice((1, 2, 2, 3, 4)) for name in ("TP", "PP", "DP")}
        count = sizes["TP"] * sizes["PP"] * sizes["DP"]
        if 4 <= count <= most and sum(size > 1 for size in sizes.values()) > 1:
            break
    return World(
        sizes,
        dice.choice(FAULTS),
        dice.randrange(count),
        dice.randrange(1, 4),
        dice.randrange(6),
        dice.randrange(1, 4),
        dice.random() < 0.7,
        dice.choice(("all_gather", "broadcast", "barrier")),
        dice.random() < 0.6,
        dice.choice((120.0, 120.0, 2.0)),
    )


def lines_of(world: World, along: str) -> list[list[int]]:
    """The groups along one dimension; TP is the innermost, PP the outermost."""
    tp, dp = world.sizes["TP"], world.sizes["DP"]
    stride = {"TP": 1, "DP": tp, "PP": tp * dp}[along]
    size = world.sizes[along]
    starts = [rank for rank in range(world.ranks) if rank // stride % size == 0]
    return [[start + stride * place for place in range(size)] for start in starts]


class Rank:
    """One rank's program: steps of pipelined layers, then the gradients."""

    def __init__(self, world: World, rank: int, moved: mmap.mmap, folder: Path) -> None:
        self.world, self.rank, self.moved, self.folder = world, rank, moved, folder
        self.step = self.calls = 0
        self.broken = False

    def run(self) -> None:
        try:
            self.connect()
            for step in range(5):
                self.step, self.calls = step, 0
                self.one_step()
        except Exception:
            return

    def connect(self) -> None:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(self.folder / "store"), self.world.ranks),
            rank=self.rank,
            world_size=self.world.ranks,
            timeout=timedelta(seconds=self.world.patience),
        )
        self.groups = {}
        self.pairs = {}
        for along in self.world.sizes:
            desc = f"{along}_GROUP" if self.world.named else None
            for ranks in lines_of(self.world, along):
                group = dist.new_group(ranks, group_desc=desc)
                if self.rank in ranks:
                    self.groups[along] = (group, ranks)
        # One group for each step between two stages, as a broadcast needs it.
        for line in lines_of(self.world, "PP"):
            for pair in pairwise(line):
                group = dist.new_group(list(pair), group_desc=None)
                if self.rank in pair:
                    self.pairs[pair] = group

    def one_step(self) -> None:
        data = torch.ones(256)
        _, line = self.groups["PP"]
        stage = line.index(self.rank)
        for _ in range(2):
            if stage > 0:
                self.hand_over(data, line[stage - 1], self.rank)
            for _ in range(self.world.layers):
                self.call("TP", data)
            if stage + 1 < len(line):
                self.hand_over(data, self.rank, line[stage + 1])
        for _ in range(2):
            self.call("DP", torch.ones(64))
        if self.step % 2:
            self.call("PP", torch.ones(2))

    def hand_over(self, data: torch.Tensor, source: int, target: int) -> None:
        """From one stage to the next."""
        if not self.world.sends:
            dist.broadcast(data, source, group=self.pairs[source, target])
        elif self.rank == source:
            dist.send(data, target)
        else:
            dist.recv(data, source)

    def call(self, along: str, data: torch.Tensor) -> None:
        group, ranks = self.groups[along]
        if len(ranks) == 1:
            return
        self.calls += 1
        if self.is_time():
            self.go_wrong(data, group, len(ranks))
        else:
            dist.all_reduce(data, group=group)
        self.moved[self.rank] = (self.moved[self.rank] + 1) % 256

    def is_time(self) -> bool:
        if self.broken or self.rank != self.world.culprit or self.step < self.world.step:
            return False
        return self.calls > self.world.call or self.step > self.world.step

    def go_wrong(self, data: torch.Tensor, group: dist.ProcessGroup, size: int) -> None:
        self.broken = True
        if self.world.fault == "sleeps":
            time.sleep(LONGEST_S * 2)
        if self.world.fault == "raises":
            raise ValueError("a batch that cannot be")
        if self.world.fault == "ends":
            dump(self.folder, self.rank)
            os._exit(1)
        if self.world.fault == ELSEWHERE and (whole := dist.group.WORLD) is not None:
            group, size = whole, self.world.ranks
        if self.world.odd == "all_gather":
            dist.all_gather([torch.empty_like(data) for _ in range(size)], data, group=group)
        elif self.world.odd == "broadcast":
            dist.broadcast(data, dist.get_global_rank(group, 0), group=group)
        else:
            dist.barrier(group=group)


def dump(folder: Path, rank: int) -> None:
    """As torch writes it, under its last name only when it is whole."""
    half = folder / f"half-{rank}"
    half.write_bytes(_dump_fr_trace(True, False))
    half.rename(folder / "dumps" / f"trace_{rank}")


def run_rank(world: World, rank: int, moved: mmap.mmap, folder: Path) -> None:
    """In a forked child; never returns."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    program = threading.Thread(target=Rank(world, rank, moved, folder).run, daemon=True)
    program.start()
    until = time.monotonic() + LONGEST_S
    while not (folder / "now").exists() and time.monotonic() < until:
        time.sleep(0.02)
    dump(folder, rank)
    time.sleep(LONGEST_S)
    os._exit(0)


def run_world(world: World, folder: Path) -> None:
    """Until nothing moves; then dump."""
    moved = mmap.mmap(-1, world.ranks)
    (folder / "dumps").mkdir()
    children = []
    try:
        for rank in range(world.ranks):
            if (pid := os.fork()) == 0:
                run_rank(world, rank, moved, folder)
            children.append(pid)
        _settle(moved, world.patience)
        (folder / "now").touch()
        until = time.monotonic() + 10
        while len(list((folder / "dumps").iterdir())) < world.ranks and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


def _settle(moved: mmap.mmap, patience: float) -> None:
    """Until every rank has begun, and for a while none has made a call."""
    quiet = QUIET_S if patience > LONGEST_S else 2 * patience + QUIET_S
    begin = since = time.monotonic()
    last = moved[:]
    while time.monotonic() - begin < LONGEST_S:
        time.sleep(0.02)
        if moved[:] != last:
            last, since = moved[:], time.monotonic()
        elif any(last) and time.monotonic() - since > quiet:
            return


def named_in(folder: Path) -> set[int]:
    """Whom `diagnose` names."""
    reading = diagnose(find_sources([str(folder)]))
    failing = [one for one in reading.findings if one.status == "fail"]
    return {int(one.subject.name.split()[1]) for one in failing if one.subject.kind == "rank"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--most", type=int, default=8, help="ranks of a world, 4 or more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="a folder for the dumps of worlds that came out wrong"
    )
    parser.add_argument("--fault", choices=(*FAULTS, ELSEWHERE), help="this one in all worlds")
    given = parser.parse_args()
    tally: Counter[str] = Counter()
    right = wrong = 0
    for number in range(given.worlds):
        world = random_world(random.Random(given.seed * 100_003 + number), given.most)
        world = replace(world, fault=given.fault or world.fault)
        with tempfile.TemporaryDirectory(prefix="wirespeed-flight-") as name:
            folder = Path(name)
            run_world(world, folder)
            told = named_in(folder / "dumps")
            if told != {world.culprit} and given.keep:
                (folder / "dumps").rename(given.keep / f"world-{given.seed}-{number}")
        tally[world.fault] += 1
        tally[f"{world.fault}: found"] += world.culprit in told
        right += world.culprit in told
        wrong += len(told - {world.culprit})
        if told != {world.culprit}:
            print(f"world {number}: {world}: named {sorted(told)}", flush=True)
    precision = right / max(right + wrong, 1)
    recall = right / given.worlds
    for fault in FAULTS if not given.fault else (given.fault,):
        print(f"{fault:<14} {tally[f'{fault}: found']} of {tally[fault]} found")
    print(f"precision {precision:.3f}, recall {recall:.3f} over {given.worlds} worlds")
    return 0 if wrong == 0 and (recall >= 0.99 or given.fault == ELSEWHERE) else 1


if __name__ == "__main__":
    sys.exit(main())
