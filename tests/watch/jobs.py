"""Calls of made-up jobs: what each rank issues in a step, step after step, with noise."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wirespeed.watch.calls import Call

MB = 1 << 20


@dataclass(frozen=True)
class Do:
    """One collective of a step as one rank issues it."""

    op: str
    size_bytes: int
    group: tuple[int, ...]
    name: str = "world"
    took: float = 0.004
    gap: float = 0.001
    dtype: str = "float32"
    waits: bool = True
    """Whether the rank issues nothing more until it is over."""


def calls_of(
    step: Callable[[int], Sequence[Do]],
    ranks: Sequence[int],
    *,
    steps: int = 10,
    before: Sequence[Do] = (),
    now_and_then: Mapping[int, Do] = {},
    numbered: bool = True,
    ended: bool = True,
    work: float = 0.05,
    seed: int = 1,
) -> dict[int, list[Call]]:
    """By rank. before: warm-up; now_and_then: a call after these steps; work: before each step."""
    return {
        rank: _Clock(rank, random.Random(seed * 1000 + rank), numbered, ended).run(
            step(rank), steps, before, now_and_then, work
        )
        for rank in ranks
    }


class _Clock:
    def __init__(self, rank: int, dice: random.Random, numbered: bool, ended: bool) -> None:
        self.rank, self.dice, self.numbered, self.ended = rank, dice, numbered, ended
        self.now = 1000.0 + dice.random()
        self.seq: dict[tuple[str, tuple[int, ...]], int] = {}
        self.calls: list[Call] = []

    def run(
        self,
        step: Sequence[Do],
        steps: int,
        before: Sequence[Do],
        now_and_then: Mapping[int, Do],
        work: float,
    ) -> list[Call]:
        for one in before:
            self.issue(one)
        for number in range(steps):
            self.now += work * self.dice.uniform(0.95, 1.05)
            for one in step:
                self.issue(one)
            if number in now_and_then:
                self.issue(now_and_then[number])
        return self.calls

    def issue(self, one: Do) -> None:
        key = one.name, one.group
        self.seq[key] = self.seq.get(key, -1) + 1
        begin = self.now + one.gap * self.dice.uniform(0.9, 1.1)
        end = begin + one.took * self.dice.uniform(0.9, 1.1)
        self.now = end if one.waits else begin
        self.calls.append(
            Call(
                rank=self.rank,
                op=one.op,
                group=one.group,
                group_name=one.name,
                seq=self.seq[key] if self.numbered else -1,
                size_bytes=one.size_bytes,
                dtype=one.dtype,
                begin_s=begin,
                end_s=end if self.ended else None,
            )
        )


def ddp(world: int, buckets: Sequence[int] = (1, 25, 25, 7)) -> Callable[[int], list[Do]]:
    """All-reduces of buckets of so many MB, overlapped with backward."""
    everyone = tuple(range(world))
    return lambda rank: [
        Do("all_reduce", size * MB, everyone, waits=False, gap=0.002, took=0.006)
        for size in buckets
    ]


def fsdp(world: int, layers: int = 12) -> Callable[[int], list[Do]]:
    """Gathers of every layer forth, gathers and scatters back; all layers alike."""
    everyone = tuple(range(world))
    gather = Do("all_gather", MB // world, everyone, dtype="bfloat16")
    scatter = Do("reduce_scatter", MB, everyone)
    return lambda rank: [gather] * layers + [gather, scatter] * layers


def tp_dp(tp: int, dp: int) -> Callable[[int], list[Do]]:
    """Tensor-parallel neighbours, data-parallel ranks `tp` apart."""

    def step(rank: int) -> list[Do]:
        first = rank // tp * tp
        across = tuple(range(first, first + tp))
        along = tuple(range(rank % tp, tp * dp, tp))
        inner = [Do("all_reduce", MB // 4, across, f"tp{first}", dtype="bfloat16")] * 4
        return [*inner, Do("all_reduce", 8 * MB, along, f"dp{rank % tp}")]

    return step
