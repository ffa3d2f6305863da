"""One device of a rank at work: its samples, what they come to, and the errors that it answers with."""

import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from wirespeed.collectives.engines.torch_engine import device_failed
from wirespeed.errors import CannotMeasure
from wirespeed.model.compute_records import ComputeProof, ComputeRate
from wirespeed.node.limits import memory_available_bytes
from wirespeed.node.reading import read_fields
from wirespeed.plan import ComputeWork, Measure
from wirespeed.rank.compute.devices import Spent, device_of
from wirespeed.rank.compute.faults import corruptions, slowness
from wirespeed.rank.compute.jobs import MEMORY, OVER_PCIE, Job, job_for
from wirespeed.rank.compute.proof import prove
from wirespeed.rank.compute.sensors import Felt, Sensors
from wirespeed.rank.compute.units import Kind, Unit
from wirespeed.rank.faulty_engine import Fault
from wirespeed.rank.place import Place
from wirespeed.reference.shape import peak_flops, product_named
from wirespeed.statistics import LEAST_SAMPLES, median_interval, relative_half_width

T = TypeVar("T")
_SAMPLE_S = 0.04
"""About so long a sample takes, unless one call takes longer."""
_CHUNK_S = 0.25
"""About so long devices work between two looks whether it is enough."""
_HELD_S = 6.0
"""From so long on a rate is split into thirds, to tell what heat leaves of it."""
_CACHE_BYTES = 32 << 20
"""Where the machine does not tell its last-level cache."""
_UNITS = ("amx", "asimd", "avx", "bf16", "f16", "fma", "i8mm", "sme", "sve")
"""Begins of what the kernel calls units that multiply; libraries choose their code by them."""
_DEVICE_ERRORS = (RuntimeError, MemoryError)
_REFUSAL = "CUBLAS_STATUS_NOT_SUPPORTED"
"""Told as an error of CUDA, where this device or version has no such product."""


@dataclass(slots=True)
class _Turn:
    """What it did in one turn: per second of each sample, by the clock and by time of its own."""

    walls: list[float] = field(default_factory=list)
    owns: list[float] = field(default_factory=list)
    lanes: list[list[Spent]] = field(default_factory=list)


class Worker:
    """Nothing of it is collective, and it raises nothing that its device answers with."""

    def __init__(self, place: Place, unit: Unit, faults: Sequence[Fault], seed: int) -> None:
        self.unit, self.device = unit, device_of(unit, place)
        self.sensors = Sensors(unit, place.gpus[place.rank])
        self._place, self._faults, self._seed = place, faults, seed
        self._times = slowness(unit, faults)
        self._broken = self._reason = ""
        self._job: Job | None = None
        self._counts: list[int] = []
        self._turn = _Turn()

    def proof(self, work: ComputeWork, seconds: float) -> ComputeProof:
        """Products of that type, compared bit for bit."""
        self._reason = ""
        found = self._answer(
            lambda: prove(
                self.unit,
                self.device,
                work.dtype,
                seconds=seconds,
                seed=self._seed,
                corrupt=corruptions(self.unit, self._faults),
                tick=self._place.tick,
            )
        )
        about = self._about(work) | {"software": _software(self.unit.kind)}
        if found is None:
            return ComputeProof(**about)
        about["shape"] = "x".join(map(str, found.shape))
        names = ("products", "elements", "digest", "odd", "faults")
        return ComputeProof(
            **about, **{name: getattr(found, name) for name in names}, seconds=seconds
        )

    def prepare(self, stack: ExitStack, work: ComputeWork, sharing: int) -> None:
        """Buffers for a work, which live as long as `stack`; sharing: devices of one node's memory."""

        def prepared() -> Job:
            job = stack.enter_context(
                job_for(
                    self.unit,
                    self.device,
                    work,
                    cache=self._place.cache_bytes or _CACHE_BYTES,
                    free=self._free(work, sharing),
                )
            )
            self._once(job)
            return job

        self._reason = ""
        self._job = self._answer(prepared)

    def begin(self, warmup: int) -> None:
        """A turn begins: some calls, the last of which tells how many make a sample."""
        self._turn = _Turn()
        job = self._job
        if job is None:
            return
        self._answer(lambda: [self._once(job) for _ in range(warmup)])
        spent = self._answer(lambda: self._once(job)) or []
        self._counts = [max(1, round(_SAMPLE_S / max(one.own_s, 1e-7))) for one in spent]

    def chunk(self, how: Measure) -> None:
        """Samples for a moment; no more than are wanted."""
        begin = time.monotonic()
        while (job := self._job) is not None and time.monotonic() - begin < _CHUNK_S:
            if how.iterations and len(self._turn.walls) >= how.iterations:
                return
            self._answer(partial(self._sample, job))

    def look(self, how: Measure) -> tuple[float, float]:
        """(samples, half width of their interval), as if there were enough where it does not work."""
        if self._job is None:
            return float(how.iterations or LEAST_SAMPLES), 0.0
        owns = self._turn.owns
        enough = len(owns) >= LEAST_SAMPLES
        return float(len(owns)), min(relative_half_width(owns), 1e9) if enough else 1e9

    def told(self, work: ComputeWork, felt: Felt, *, together: bool) -> ComputeRate:
        """What the turn came to."""
        job, turn, figures = self._job, self._turn, dict[str, Any]()
        if job is not None and turn.walls:
            figures = felt.told() | _figures(self.unit, turn) | _slowest(self.unit, turn)
            figures |= {"size_bytes": job.size_bytes, "peak": _peak(self.unit, work)}
            figures["cores"] = len(self.unit.cpus)
            figures["wrong"] = self._answer(job.wrong) if job.wrong else None
        if self._reason:
            figures = {}
        return ComputeRate(op=work.op, together=together, **self._about(work), **figures)

    def release(self) -> None:
        """Buffers go, and of a GPU also what torch keeps for further ones of that size."""
        self._job = None
        if self.unit.kind == "gpu" and not self._broken:
            self._answer(torch.cuda.empty_cache)

    def _about(self, work: ComputeWork) -> dict[str, Any]:
        return {
            "host": self._place.hosts[self._place.rank],
            "device": self.sensors.name,
            "product": self.unit.product,
            "rank": self._place.rank,
            "dtype": work.dtype,
            "shape": "x".join(map(str, work.shape)) if any(work.shape) else "",
            "reason": self._reason,
            "broke": bool(self._reason and self._broken),
        }

    def _answer(self, do: Callable[[], T]) -> T | None:
        """What that gives; None where the device answers with an error, which becomes the reason.

        One that broke is not asked again.
        """
        try:
            if self._broken:
                raise CannotMeasure(f"it answered with an error before: {self._broken}")
            return do()
        except CannotMeasure as error:
            self._job, self._reason = None, error.saw
        except _DEVICE_ERRORS as error:
            text = " ".join(str(error).split())[:200] or type(error).__name__
            if device_failed(error) and _REFUSAL not in text:
                self._broken = text
            self._job, self._reason = None, text
        return None

    def _free(self, work: ComputeWork, sharing: int) -> int:
        """Bytes that it may fill: of a GPU's memory, of its part of the host's, or the less of both."""
        host = memory_available_bytes() // sharing
        if self.unit.kind == "cpu":
            return host
        own = int(torch.cuda.mem_get_info(self._place.device)[0])
        return min(own, host) if work.op in OVER_PCIE else own

    def _once(self, job: Job) -> list[Spent]:
        return self.device.timed(job.fires, [1] * self.device.lanes)

    def _sample(self, job: Job) -> None:
        times, turn = self._times, self._turn
        spent = [
            replace(one, wall_s=max(one.wall_s, 1e-9) * times, own_s=max(one.own_s, 1e-9) * times)
            for one in self.device.timed(job.fires, self._counts)
        ]
        turn.lanes.append(spent)
        turn.walls.append(sum(job.amount * one.calls / one.wall_s for one in spent))
        turn.owns.append(sum(job.amount * one.calls / one.own_s for one in spent))
        self._place.tick()


def _figures(unit: Unit, turn: _Turn) -> dict[str, Any]:
    ends, owns = median_interval(turn.walls), turn.owns
    every = [one for lanes in turn.lanes for one in lanes]
    wall, own = sum(one.wall_s for one in every), sum(one.own_s for one in every)
    found = {
        "per_second": median(turn.walls),
        "low": ends.low,
        "high": ends.high,
        "samples": len(owns),
        "own_per_second": own_rate(unit, owns),
        "own_spread": _spread(unit, owns) if len(owns) >= LEAST_SAMPLES else 1.0,
        "own_share": min(1.0, own / wall),
        "call": median(one.wall_s / one.calls for one in every),
    }
    third = len(owns) // 3
    if third and sum(max(one.wall_s for one in lanes) for lanes in turn.lanes) >= _HELD_S:
        found["held"] = own_rate(unit, owns[-third:]) / own_rate(unit, owns[:third])
    return found


def own_rate(unit: Unit, rates: Sequence[float]) -> float:
    """A GPU's median; of cores what the best tenth of the samples reach.

    Neighbours on a physical core, caches and memory that others fill, and a host that takes time only
    ever slow a core down.
    """
    return median(rates) if unit.kind == "gpu" else sorted(rates)[-1 - len(rates) // 10]


def _spread(unit: Unit, rates: Sequence[float]) -> float:
    """About the half width of its 95 % interval, relative to it."""
    if unit.kind == "gpu":
        return relative_half_width(rates)
    ordered = sorted(rates)
    return (ordered[-1] - ordered[-1 - len(rates) // 5]) / 2 / own_rate(unit, rates)


def _slowest(unit: Unit, turn: _Turn) -> dict[str, Any]:
    """The core that was slowest; of a GPU nothing."""
    if len(unit.cpus) < 2:
        return {}
    by_lane = zip(*turn.lanes, strict=True)
    rates = [own_rate(unit, [one.calls / one.own_s for one in lane]) for lane in by_lane]
    lane = min(range(len(rates)), key=rates.__getitem__)
    return {"slowest": f"core {unit.cpus[lane]}", "slowest_share": rates[lane] / median(rates)}


def _peak(unit: Unit, work: ComputeWork) -> float:
    """Operations a second by the data sheet, or bytes of its own memory; 0: not known."""
    product = product_named(unit.product) if unit.kind == "gpu" else None
    if product is None or work.op not in ("gemm", *MEMORY):
        return 0.0
    if work.op in MEMORY:
        return (product.memory_GBps or 0.0) * 1e9
    found = peak_flops(unit.product, work.dtype)
    return found.flops_per_s if found else 0.0


def _software(kind: Kind) -> str:
    """What decides how a product is added up; of a processor with the units that we may use."""
    if kind == "gpu":
        return f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    fields = read_fields(Path("/proc/cpuinfo"))
    words = (fields.get("flags") or fields.get("Features", "")).split()
    units = " ".join(sorted(word for word in words if word.startswith(_UNITS)))
    return f"torch {torch.__version__}, units {zlib.crc32(units.encode()):08x}"
