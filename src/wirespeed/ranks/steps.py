"""Carry out a plan's steps in order, on every rank alike; rank 0 tells the console the results."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from wirespeed.collectives.catalogue import CATALOGUE, Collective
from wirespeed.plan import Plan, Step
from wirespeed.ranks.faults import PROCESS_FAULTS, Fault, strike
from wirespeed.ranks.measure import measure
from wirespeed.ranks.place import Place, Site, site_of
from wirespeed.ranks.verify import reason_not_to_run, verify
from wirespeed.records import Verification
from wirespeed.records_json import measurement_to_json, verification_to_json

if TYPE_CHECKING:
    import torch

__all__ = ["Countdown", "Reporter", "fits", "process_faults", "run_steps"]


class Reporter(Protocol):
    """What a step tells the outside (see `world.watch.beacon.Beacon`)."""

    def enter(self, label: str) -> None: ...

    def record(self, kind: str, data: dict[str, Any]) -> None: ...


def run_steps(place: Place, plan: Plan, beacon: Reporter) -> None:
    """All steps; out of memory ends the larger sizes of that operation, not the run."""
    tell = beacon.record if place.rank == 0 else _silent
    faults = [Countdown(fault) for fault in process_faults(plan, place.rank)]
    full: set[tuple[str, str, bool, str]] = set()
    previous: int | None = None
    for number, step in enumerate(plan.steps):
        case = step.case
        family = (case.op, case.dtype, case.in_place, case.groups)
        tell("progress", {"index": number, "of": len(plan.steps), "label": step.label})
        if family in full:
            continue
        for fault in faults:
            step = fault.apply(step)
        beacon.enter(step.label)
        seed = plan.seed * 1_000_003 + number
        if not _run_step(place, step, seed, previous, tell):
            full.add(family)
            tell("memory", {"label": step.label, "size_bytes": case.size_bytes})
        previous = seed


def _silent(_: str, __: dict[str, Any]) -> None:
    return None


Tell = Callable[[str, dict[str, Any]], None]


def _run_step(place: Place, step: Step, seed: int, previous: int | None, tell: Tell) -> bool:
    """False when some rank had not enough memory (all ranks then skip the step alike)."""
    collective = CATALOGUE[step.case.op]
    site = _fitting_site(place, step, collective)
    if site is None:
        return False
    reason = reason_not_to_run(place, site)
    checked: Verification | None = None
    if step.verify or reason:
        checked = verify(place, site, seed, previous)
        tell("verification", verification_to_json(checked))
    refused = reason or (checked is not None and checked.wrong is None and checked.reason)
    if step.measure is None or refused:
        return True
    wrong = checked.wrong if checked else None
    tell("measurement", measurement_to_json(measure(place, site, step.measure, wrong)))
    return True


def _fitting_site(place: Place, step: Step, collective: Collective) -> Site | None:
    """The site at the asked size, or at the largest that fits; None when memory does not do."""
    if not step.case.max_fit:
        site = site_of(place, step.case, collective, step.case.size_bytes)
        return site if place.control.all_true(fits(place, site)) else None
    # The same sizes in the same order on every rank: nodes differ in memory, and so do moments.
    least = place.control.matrix([float(_memory(place.device))]).min()
    for size in _halving(int(least)):
        site = site_of(place, step.case, collective, size)
        if place.control.all_true(fits(place, site)):
            return replace_size(site, step)
    return None


def replace_size(site: Site, step: Step) -> Site:
    return replace(site, case=replace(step.case, size_bytes=site.size_bytes))


def _halving(start: int) -> Iterator[int]:
    """Powers of two from the largest not above `start` down to 1 KiB."""
    for power in range(max(start, 1024).bit_length() - 1, 9, -1):
        yield 1 << power


def fits(place: Place, site: Site) -> bool:
    """Whether this rank's buffers, and one slice of expected values, can be allocated now."""
    import torch

    if site.group is None:
        return True
    elements = site.collective.input_count(site.geometry) + site.collective.output_count(
        site.geometry
    )
    needed = 2 * elements * site.dtype.itemsize
    share = place.local_ranks_here if place.device.type == "cpu" else 1
    if needed > _memory(place.device) // share:
        return False
    try:
        torch.empty(elements, dtype=site.torch_dtype, device=place.device)
    except (RuntimeError, MemoryError):
        return False
    return True


def _memory(device: "torch.device") -> int:
    """Bytes that are free for buffers on this device."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0] * 0.9)
    from wirespeed.world.facts import memory_available_bytes

    return int(memory_available_bytes() * 0.8)


def process_faults(plan: Plan, rank: int) -> list[Fault]:
    """What this rank shall act out itself, apart from wrong data."""
    parsed = (Fault.parse(text) for text in plan.faults)
    return [fault for fault in parsed if fault.kind in PROCESS_FAULTS and fault.rank == rank]


class Countdown:
    """Strikes a process fault when its turn has come."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._left = fault.after

    def apply(self, step: Step) -> Step:
        """The step to run instead, should the fault be of that kind."""
        if self._fault.at not in ("", step.case.op):
            return step
        self._left -= 1
        if self._left != -1:
            return step
        if self._fault.kind == "other":
            other = "all_gather" if step.case.op != "all_gather" else "all_reduce"
            redop = "sum" if other == "all_reduce" else "none"
            return replace(step, case=replace(step.case, op=other, redop=redop, root=-1))
        strike(self._fault)
        return step
