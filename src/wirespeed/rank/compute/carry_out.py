"""Carry out a `ComputePlan`: proofs first, then every work alone and together; each rank tells its own.

Devices work by themselves, so that each counts its calls; what is collective is when a turn begins and
when it ends. A device that answers with an error is told, and its rank goes on meeting the others.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import torch

from wirespeed.errors import CannotMeasure
from wirespeed.model.codec import to_json
from wirespeed.model.compute_records import ComputeProof, ComputeRate
from wirespeed.node.limits import memory_available_bytes
from wirespeed.plan import ComputePlan, ComputeWork, Plan
from wirespeed.rank.compute.devices import Device, Spent, device_of
from wirespeed.rank.compute.faults import corruptions, slowness
from wirespeed.rank.compute.jobs import Job, job_for
from wirespeed.rank.compute.proof import prove
from wirespeed.rank.compute.sensors import Sensors
from wirespeed.rank.compute.units import Kind, Unit, Units, units_of
from wirespeed.rank.faulty_engine import Fault, strike
from wirespeed.rank.place import Place, busy_for
from wirespeed.rank.steps import Reporter, process_faults, teller
from wirespeed.reference.shape import peak_flops
from wirespeed.statistics import LEAST_SAMPLES, median_interval, relative_half_width

_SAMPLE_S = 0.04
"""About so long a sample takes, unless one call takes longer."""
_CHUNK_S = 0.25
"""About so long devices work between two looks whether it is enough."""
_HELD_S = 6.0
"""From so long on a rate is split into thirds, to tell what heat leaves of it."""
_DEVICE_ERRORS = (RuntimeError, MemoryError, NotImplementedError)
_REFUSALS = ("not implemented", "not supported", "unsupported", "only supported", "requires")
"""Words of torch where a device has no such product, which is no fault of it."""


@dataclass(slots=True)
class _Worker:
    """One device of this rank, while it is looked at."""

    unit: Unit
    device: Device
    sensors: Sensors
    slower: float
    """A fault: so many times as long as it takes is told."""
    broken: str = ""
    """The error that it answered with; it is not asked again."""


@dataclass(slots=True)
class _Turn:
    """What one device did in one turn of one work."""

    walls: list[float]
    owns: list[float]
    """Per second, of each sample: by the clock, and by time of its own."""
    lanes: list[list[Spent]]


def run_compute(place: Place, plan: Plan, compute: ComputePlan, heartbeat: Reporter) -> None:
    """Collective. Every rank records `compute_rate` and `compute_proof` of its devices."""
    units = units_of(place, gpus_only=compute.gpus_only)
    faults = [Fault.parse(text) for text in plan.faults]
    workers = [
        _Worker(
            unit,
            device_of(unit, place),
            Sensors(unit, place.gpus[place.rank]),
            slowness(unit, faults),
        )
        for unit in units.mine
    ]
    for worker in workers:
        worker.sensors.settle_name()
    tell = teller(place, heartbeat)
    tell("choices", {"choices": [asdict(one) for one in units.choices]})
    stage = _Stage(place, plan, compute, heartbeat, workers, units.turns)
    works = [
        one for one in compute.works if units.turns[one.on] and _says_something(one, plan, units)
    ]
    proofs = [one for one in compute.proofs if units.turns[one.on]]
    steps = [*((one, True) for one in proofs), *((one, False) for one in works)]
    for number, (work, proves) in enumerate(steps):
        what = f"proving {work.dtype} on {work.on.upper()}s" if proves else work.label
        tell("progress", {"index": number, "of": len(steps), "label": what})
        heartbeat.enter(what)
        for fault in process_faults(plan, place.rank):
            if fault.after == number:
                strike(fault)
        if proves:
            stage.prove(work, faults)
        else:
            stage.time(work)
    for work in _first_products(works) if compute.sustain_s else ():
        heartbeat.enter(f"for {compute.sustain_s:g} s: {work.label}")
        stage.sustain(work)


def _says_something(work: ComputeWork, plan: Plan, units: Units) -> bool:
    """A check need not copy from the next NUMA node where there is one only; alike on every rank."""
    return work.op != "numa" or plan.command != "check" or units.turns["cpu"] > 1


def _first_products(works: Sequence[ComputeWork]) -> Iterator[ComputeWork]:
    seen: set[Kind] = set()
    for work in works:
        if work.op == "gemm" and work.on not in seen:
            seen.add(work.on)
            yield work


@dataclass(slots=True)
class _Stage:
    place: Place
    plan: Plan
    compute: ComputePlan
    heartbeat: Reporter
    workers: list[_Worker]
    turns: dict[Kind, int]

    def prove(self, work: ComputeWork, faults: Sequence[Fault]) -> None:
        """All devices of the kind at once."""
        for worker in self._of(work.on):
            found = self._about(worker, work) | {"software": _software(worker)}
            try:
                with busy_for(self.place, 60.0 + self.compute.prove_s), self._answers(worker):
                    one = prove(
                        worker.unit,
                        worker.device,
                        work.dtype,
                        seconds=self.compute.prove_s,
                        seed=self.plan.seed,
                        corrupt=corruptions(worker.unit, faults),
                        tick=self.place.tick,
                    )
            except CannotMeasure as error:
                told = ComputeProof(**found, reason=error.saw, broke=bool(worker.broken))
            else:
                parts = {name: getattr(one, name) for name in ("products", "elements", "digest")}
                told = ComputeProof(
                    **found | {"shape": "x".join(map(str, one.shape))},
                    **parts,
                    seconds=self.compute.prove_s,
                    odd=one.odd,
                    faults=one.faults,
                )
            self.heartbeat.record("compute_proof", to_json(told))
        self.place.control.barrier()

    def time(self, work: ComputeWork) -> None:
        """Each alone, then all together; buffers are made once."""
        with ExitStack() as stack:
            jobs = {id(one): self._job(stack, one, work) for one in self._of(work.on)}
            several = range(self.turns[work.on])
            for number in several if self.compute.alone and len(several) > 1 else ():
                self._turn(work, jobs, (number,), together=False)
            self._turn(work, jobs, tuple(several), together=True)
        if self.place.device.type == "cuda":
            torch.cuda.empty_cache()

    def sustain(self, work: ComputeWork) -> None:
        """All together, for the time that the plan has for it."""
        how = replace(
            self.compute.how, iterations=None, precision=0.0, max_time_s=self.compute.sustain_s
        )
        with ExitStack() as stack:
            jobs = {id(one): self._job(stack, one, work) for one in self._of(work.on)}
            self._turn(work, jobs, tuple(range(self.turns[work.on])), together=True, how=how)

    def _of(self, kind: Kind) -> list[_Worker]:
        return [one for one in self.workers if one.unit.kind == kind]

    def _about(self, worker: _Worker, work: ComputeWork) -> dict[str, Any]:
        return {
            "host": self.place.hosts[self.place.rank],
            "device": worker.sensors.name,
            "product": worker.unit.product,
            "rank": self.place.rank,
            "dtype": work.dtype,
            "shape": "x".join(map(str, work.shape)) if any(work.shape) else "",
        }

    @contextmanager
    def _answers(self, worker: _Worker) -> Iterator[None]:
        """CannotMeasure for what a device answers with; one that broke is not asked again."""
        if worker.broken:
            raise CannotMeasure(f"it answered with an error before: {worker.broken}")
        try:
            yield
        except _DEVICE_ERRORS as error:
            text = " ".join(str(error).split())[:200] or type(error).__name__
            refused = isinstance(error, NotImplementedError) or any(
                w in text.lower() for w in _REFUSALS
            )
            if not refused and not isinstance(error, (MemoryError, torch.OutOfMemoryError)):
                worker.broken = text
            raise CannotMeasure(text) from error

    def _job(self, stack: ExitStack, worker: _Worker, work: ComputeWork) -> Job | str:
        """Or why there is none."""
        place = self.place
        try:
            with busy_for(place, 60.0), self._answers(worker):
                job = stack.enter_context(
                    job_for(
                        worker.unit,
                        worker.device,
                        work,
                        cache=place.cache_bytes or 32 << 20,
                        free=self._free(worker),
                        seed=self.plan.seed,
                    )
                )
                worker.device.timed(job.fires, [1] * worker.device.lanes)
                return job
        except CannotMeasure as error:
            return error.saw

    def _free(self, worker: _Worker) -> int:
        """Bytes that are this device's: of the host's memory its part."""
        if worker.unit.kind == "gpu":
            return int(torch.cuda.mem_get_info(self.place.device)[0])
        return memory_available_bytes() // max(1, self.turns["cpu"])

    def _turn(
        self,
        work: ComputeWork,
        jobs: dict[int, Job | str],
        numbers: tuple[int, ...],
        *,
        together: bool,
        how: Any = None,
    ) -> None:
        """One collective turn; `numbers`: which devices of each node work in it."""
        how = how or self.compute.how
        mine = [one for one in self._of(work.on) if one.unit.turn in numbers]
        done = {id(one): _Turn([], [], []) for one in mine}
        with ExitStack() as stack:
            felt = {id(one): stack.enter_context(one.sensors.watching()) for one in mine}
            counts = {id(one): self._counts(one, jobs[id(one)]) for one in mine}
            self.place.control.barrier()
            begin, over = time.monotonic(), False
            while not over:
                for one in mine:
                    self._chunk(one, jobs, counts[id(one)], done[id(one)], how.iterations)
                over = self._over(
                    [
                        done[id(one)]
                        for one in mine
                        if not one.broken and not isinstance(jobs[id(one)], str)
                    ],
                    time.monotonic() - begin,
                    how,
                )
        for one in mine:
            told = _told(one, done[id(one)], jobs[id(one)], felt[id(one)].told())
            record = ComputeRate(
                op=work.op,
                together=together,
                **self._about(one, work),
                **told,
                broke=bool(one.broken),
                peak=_peak(one, work),
            )
            self.heartbeat.record("compute_rate", to_json(record))

    def _counts(self, worker: _Worker, job: Job | str) -> list[int]:
        """Calls of each core in a sample; the second call of two tells how long one takes."""
        if isinstance(job, str):
            return []
        try:
            with self._answers(worker):
                for _ in range(self.compute.how.warmup or 0):
                    worker.device.timed(job.fires, [1] * worker.device.lanes)
                spent = worker.device.timed(job.fires, [1] * worker.device.lanes)
        except CannotMeasure:
            return []
        return [max(1, round(_SAMPLE_S / max(one.own_s, 1e-7))) for one in spent]

    def _chunk(
        self,
        worker: _Worker,
        jobs: dict[int, Job | str],
        counts: list[int],
        turn: _Turn,
        fixed: int | None,
    ) -> None:
        """Samples for about `_CHUNK_S`, or `fixed` of them."""
        job, begin = jobs[id(worker)], time.monotonic()
        if isinstance(job, str) or not counts:
            return
        try:
            with self._answers(worker):
                while True:
                    self._sample(worker, job, counts, turn)
                    enough = (
                        len(turn.walls) >= fixed if fixed else time.monotonic() - begin > _CHUNK_S
                    )
                    if enough:
                        return
        except CannotMeasure as error:
            jobs[id(worker)] = error.saw

    def _sample(self, worker: _Worker, job: Job, counts: list[int], turn: _Turn) -> None:
        times = worker.slower
        spent = [
            replace(one, wall_s=max(one.wall_s, 1e-9) * times, own_s=max(one.own_s, 1e-9) * times)
            for one in worker.device.timed(job.fires, counts)
        ]
        turn.lanes.append(spent)
        turn.walls.append(sum(job.amount * one.calls / one.wall_s for one in spent))
        turn.owns.append(sum(job.amount * one.calls / one.own_s for one in spent))
        self.place.tick()

    def _over(self, turns: Sequence[_Turn], elapsed: float, how: Any) -> bool:
        """Alike on every rank."""
        least = min((len(turn.owns) for turn in turns), default=LEAST_SAMPLES)
        width = max(
            (relative_half_width(turn.owns) for turn in turns if len(turn.owns) >= LEAST_SAMPLES),
            default=0.0,
        )
        rows = self.place.control.matrix([float(least), min(width, 1e9), elapsed])
        if how.iterations:
            return True
        least, width, elapsed = (
            float(rows[:, 0].min()),
            float(rows[:, 1].max()),
            float(rows[:, 2].max()),
        )
        if elapsed >= 4 * how.max_time_s:
            return True
        return least >= LEAST_SAMPLES and (elapsed >= how.max_time_s or width <= how.precision)


def _told(worker: _Worker, turn: _Turn, job: Job | str, felt: dict[str, Any]) -> dict[str, Any]:
    """What a `ComputeRate` says of it."""
    if isinstance(job, str) or not turn.walls:
        return {"reason": job if isinstance(job, str) else "it gave no sample"}
    ends, own = median_interval(turn.walls), median(turn.owns)
    wall = sum(one.wall_s for lanes in turn.lanes for one in lanes)
    mine = sum(one.own_s for lanes in turn.lanes for one in lanes)
    calls = [one.wall_s / one.calls for lanes in turn.lanes for one in lanes]
    found = (
        felt
        | _slowest(worker.unit, turn)
        | {
            "per_second": median(turn.walls),
            "low": ends.low,
            "high": ends.high,
            "samples": len(turn.walls),
            "own_per_second": own,
            "own_spread": relative_half_width(turn.owns)
            if len(turn.owns) >= LEAST_SAMPLES
            else 1.0,
            "own_share": min(1.0, mine / wall) if wall > 0 else 1.0,
            "call": median(calls),
            "size_bytes": job.size_bytes,
        }
    )
    if sum(max(one.wall_s for one in lanes) for lanes in turn.lanes) >= _HELD_S:
        third = len(turn.owns) // 3
        found["held"] = median(turn.owns[-third:]) / median(turn.owns[:third])
    if job.wrong is not None:
        found["wrong"] = job.wrong()
    return found


def _slowest(unit: Unit, turn: _Turn) -> dict[str, Any]:
    """The core that was slowest; of a GPU nothing."""
    by_lane = list(zip(*turn.lanes, strict=True))
    if len(by_lane) < 2:
        return {}
    rates = [median(one.calls / one.own_s for one in lane) for lane in by_lane]
    lane = min(range(len(rates)), key=rates.__getitem__)
    return {"slowest": f"core {unit.cpus[lane]}", "slowest_share": rates[lane] / median(rates)}


def _peak(worker: _Worker, work: ComputeWork) -> float:
    """Operations a second by the data sheet; 0: not known."""
    if work.op != "gemm" or worker.unit.kind == "cpu":
        return 0.0
    found = peak_flops(worker.unit.product, work.dtype)
    return found.flops_per_s if found else 0.0


def _software(worker: _Worker) -> str:
    if worker.unit.kind == "gpu":
        return f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
