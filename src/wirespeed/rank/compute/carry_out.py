"""Carry out a `ComputePlan`: proofs first, then every work alone and together; each rank tells its own.

Devices work by themselves, so that each counts its calls; what is collective is when a turn begins and
when it ends. A device that answers with an error is told, and its rank stays with the others.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

import torch

from wirespeed.model.codec import to_json
from wirespeed.plan import ComputePlan, ComputeWork, Measure, Plan
from wirespeed.rank.compute.units import Kind, Units, units_of
from wirespeed.rank.compute.worker import Worker
from wirespeed.rank.faulty_engine import Fault, strike
from wirespeed.rank.place import Place, busy_for
from wirespeed.rank.steps import Reporter, process_faults, teller
from wirespeed.rank.time_limit import TimeLimit
from wirespeed.statistics import LEAST_SAMPLES

_BUILD_S = 60.0
"""For operands, arrays and known products, at most."""
_OVERRUN = 4
"""Times the time limit to get the samples of an interval, where calls are slow or cores are busy."""
T = TypeVar("T")


def run_compute(
    place: Place, plan: Plan, compute: ComputePlan, heartbeat: Reporter, limit: TimeLimit
) -> None:
    """Collective. Every rank records `compute_rate` and `compute_proof` of its devices."""
    units = units_of(place, gpus_only=compute.gpus_only)
    faults = [Fault.parse(text) for text in plan.faults]
    workers = [Worker(place, unit, faults, plan.seed) for unit in units.mine]
    for worker in workers:
        worker.sensors.settle_name()
    tell = teller(place, heartbeat)
    tell("choices", {"choices": [asdict(one) for one in units.choices]})
    stage = _Stage(place, compute, heartbeat, workers, units.turns, limit)
    steps = list(_steps(stage, plan, compute, units))
    threads = torch.get_num_threads()
    for number, (label, step) in enumerate(steps):
        tell("progress", {"index": number, "of": len(steps), "label": label})
        if limit.skip(label):
            continue
        heartbeat.enter(label)
        for fault in process_faults(plan, place.rank):
            if fault.after == number:
                strike(fault)
        stage.parts_left = len(steps) - number
        step()
    torch.set_num_threads(threads)


def _steps(
    stage: "_Stage", plan: Plan, compute: ComputePlan, units: Units
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Label and what to do, alike on every rank."""
    for work in compute.proofs:
        if units.turns[work.on]:
            yield f"proving {work.dtype} on {work.on.upper()}s", partial(stage.prove, work)
    # A check need not copy from the next NUMA node where there is one only.
    single = plan.command == "check" and units.turns["cpu"] < 2
    works = [
        one for one in compute.works if units.turns[one.on] and not (single and one.op == "numa")
    ]
    for work in works:
        how = compute.how
        if plan.command == "check" and work.on == "cpu":
            # All the time: a neighbour may slow cores down for longer than a narrow interval takes.
            how = replace(how, precision=0.0)
        yield work.label, partial(stage.time, work, how)
    if compute.sustain_s:
        for work in _first_products(works):
            yield f"{work.label} for {compute.sustain_s:g} s", partial(stage.sustain, work)


def _first_products(works: Sequence[ComputeWork]) -> list[ComputeWork]:
    """One of each kind of device."""
    first: dict[Kind, ComputeWork] = {}
    for work in works:
        if work.op == "gemm":
            first.setdefault(work.on, work)
    return list(first.values())


@dataclass(slots=True)
class _Stage:
    place: Place
    compute: ComputePlan
    heartbeat: Reporter
    workers: list[Worker]
    turns: dict[Kind, int]
    limit: TimeLimit
    parts_left: int = 1
    """Steps that are not done, the one under way among them."""

    def prove(self, work: ComputeWork) -> None:
        """All devices of the kind at once."""
        seconds = self.compute.prove_s
        with busy_for(self.place, _BUILD_S + seconds):
            found = _at_once(self._of(work.on), lambda one: one.proof(work, seconds))
            self.place.control.barrier()
        for proof in found:
            self.heartbeat.record("compute_proof", to_json(proof))

    def time(self, work: ComputeWork, how: Measure) -> None:
        """Each alone, then all together; buffers are made once."""
        with ExitStack() as stack:
            self._prepare(stack, work)
            several = range(self.turns[work.on])
            alone = several if self.compute.alone and len(several) > 1 else ()
            shared = self.limit.share(how, self.parts_left * (len(alone) + 1)) or how
            for number in alone:
                self._turn(work, shared, number)
            self._turn(work, shared)

    def sustain(self, work: ComputeWork) -> None:
        """All together, for the time that the plan has for it."""
        seconds = self.compute.sustain_s
        how = replace(self.compute.how, iterations=None, precision=0.0, max_time_s=seconds)
        with ExitStack() as stack:
            self._prepare(stack, work)
            self._turn(work, how)

    def _of(self, kind: Kind) -> list[Worker]:
        return [one for one in self.workers if one.unit.kind == kind]

    def _prepare(self, stack: ExitStack, work: ComputeWork) -> None:
        """Buffers that live as long as `stack`."""
        sharing = max(1, self.turns[work.on])
        for one in self._of(work.on):
            stack.callback(one.release)
        with busy_for(self.place, _BUILD_S):
            for one in self._of(work.on):
                one.prepare(stack, work, sharing)
            self.place.control.barrier()

    def _turn(self, work: ComputeWork, how: Measure, number: int | None = None) -> None:
        """number: the one device of each node that works; None: all of them."""
        mine = [one for one in self._of(work.on) if number in (None, one.unit.turn)]
        with ExitStack() as stack:
            felt = [stack.enter_context(one.sensors.watching()) for one in mine]
            _at_once(mine, lambda one: one.begin(how.warmup or 0))
            self.place.control.barrier()
            begin, over = time.monotonic(), False
            while not over:
                self.place.tick()
                _at_once(mine, lambda one: one.chunk(how))
                over = self._over(mine, time.monotonic() - begin, how)
        for one, read in zip(mine, felt, strict=True):
            told = one.told(work, read, together=number is None)
            self.heartbeat.record("compute_rate", to_json(told))

    def _over(self, mine: Sequence[Worker], elapsed: float, how: Measure) -> bool:
        """Alike on every rank."""
        wanted = float(how.iterations or LEAST_SAMPLES)
        looks = [one.look(how) for one in mine] or [(wanted, 0.0)]
        row = [min(look[0] for look in looks), max(look[1] for look in looks), elapsed]
        rows = self.place.control.matrix(row)
        least, widest = float(rows[:, 0].min()), float(rows[:, 1].max())
        spent = float(rows[:, 2].max())
        if how.iterations:
            return least >= wanted
        overrun = _OVERRUN if self.limit.seconds is None else 1
        if spent >= overrun * how.max_time_s:
            return True
        return least >= wanted and (spent >= how.max_time_s or widest <= how.precision)


def _at_once(workers: Sequence[Worker], do: Callable[[Worker], T]) -> list[T]:
    """By each of them, all at once: a rank may work with several NUMA nodes."""
    if len(workers) < 2:
        return [do(one) for one in workers]
    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(do, workers))
