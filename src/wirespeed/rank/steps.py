"""Carry out a plan's steps in order, on every rank alike; rank 0 tells the session the results."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Collective
from wirespeed.collectives.oracle import needed_bytes
from wirespeed.model.codec import to_json
from wirespeed.model.records import Verification
from wirespeed.plan import Measure, Plan, Step
from wirespeed.rank.faulty_engine import PROCESS_FAULTS, Fault, strike
from wirespeed.rank.measure import measure, slots_of
from wirespeed.rank.place import Place, Site, site_of
from wirespeed.rank.time_limit import TimeLimit
from wirespeed.rank.verify import reason_not_to_run, verify


class Reporter(Protocol):
    """What a step tells the outside (see `watchdog.heartbeat.Heartbeat`)."""

    def enter(self, label: str) -> None: ...

    def record(self, kind: str, data: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Shortage:
    """A case that does not fit."""

    host: str
    need_bytes: int
    """Of the ranks that share that memory; of one where its allocator refused it."""
    free_bytes: int


Tell = Callable[[str, dict[str, Any]], None]


def teller(place: Place, heartbeat: Reporter) -> Tell:
    """What rank 0 tells the session with; silent on the others."""
    return heartbeat.record if place.rank == 0 else lambda kind, data: None


def run_steps(
    place: Place, plan: Plan, heartbeat: Reporter, limit: TimeLimit, parts_after: int = 0
) -> None:
    """Run all steps; out of memory ends the larger sizes of that operation, not the run.

    parts_after: what is measured after the steps, in steps that would take as long.
    """
    tell = teller(place, heartbeat)
    faults = [Countdown(fault) for fault in process_faults(plan, place.rank)]
    full: set[tuple[str, str, bool, str]] = set()
    previous: int | None = None
    for number, step in enumerate(plan.steps):
        case = step.case
        family = (case.op, case.dtype, case.in_place, case.groups)
        tell("progress", {"index": number, "of": len(plan.steps), "label": step.label})
        if family in full or limit.skip(step.label):
            continue
        for fault in faults:
            step = fault.apply(step)
        heartbeat.enter(step.label)
        seed = plan.seed * 1_000_003 + number
        parts = sum(one.measure is not None for one in plan.steps[number:]) + parts_after
        short = _run_step(place, step, seed, previous, tell, limit, parts)
        if short is not None:
            full.add(family)
            told = {"label": step.label, "size_bytes": case.size_bytes, **asdict(short)}
            tell("memory", told)
        previous = seed


def _run_step(
    place: Place,
    step: Step,
    seed: int,
    previous: int | None,
    tell: Tell,
    limit: TimeLimit,
    parts: int,
) -> Shortage | None:
    """What memory lacks, where it does: all ranks then skip the step alike.

    parts: of the time limit, this step and those after it.
    """
    site = _fitting_site(place, step, CATALOGUE[step.case.op])
    if isinstance(site, Shortage):
        return site
    reason = reason_not_to_run(place, site)
    checked: Verification | None = None
    if step.verify or reason:
        checked = verify(place, site, seed, previous)
        tell("verification", to_json(checked))
    refused = reason or (checked is not None and checked.wrong is None and checked.reason)
    if step.measure is None or refused:
        return None
    how = limit.share(step.measure, parts)
    if how is None:
        limit.left_out.append(step.label)
        return None
    wrong = checked.wrong if checked else None
    tell("measurement", to_json(measure(place, site, how, wrong)))
    return None


def _fitting_site(place: Place, step: Step, collective: Collective) -> Site | Shortage:
    """The site at the asked size, or at the largest that fits."""
    if not step.case.max_fit:
        site = site_of(place, step.case, collective, step.case.size_bytes)
        return shortage(place, site, step) or site
    # The same sizes in the same order on every rank: nodes differ in memory, and so do moments.
    least = place.control.matrix([float(_memory(place.device))]).min()
    short = Shortage("", 0, int(least))
    for size in _halving(int(least)):
        site = site_of(place, step.case, collective, size)
        found = shortage(place, site, step)
        if found is None:
            return replace(site, case=replace(step.case, size_bytes=site.size_bytes))
        short = found
    return short


def _halving(start: int) -> Iterator[int]:
    """Powers of two from the largest not above `start` down to 1 KiB."""
    for power in range(max(start, 1024).bit_length() - 1, 9, -1):
        yield 1 << power


def shortage(place: Place, site: Site, step: Step) -> Shortage | None:
    """Where buffers of all ranks, and what checking them takes, do not fit; collective."""
    return lacking(place, needed(place, site, step.measure, check=step.verify))


def lacking(place: Place, need: int) -> Shortage | None:
    """Where that many bytes on this rank, and what the others need, do not fit; collective."""
    rows = place.control.matrix([float(need), float(_memory(place.device))]).tolist()
    for rank, host in enumerate(place.hosts):
        mine = [rows[other] for other in place.sharers(rank)]
        wanted, free = sum(row[0] for row in mine), min(row[1] for row in mine)
        if wanted > free:
            return Shortage(host, int(wanted), int(free))
    refused = place.control.matrix([float(not _granted(place, need))])[:, 0].tolist()
    if not any(refused):
        return None
    rank = refused.index(1.0)
    return Shortage(place.hosts[rank], int(rows[rank][0]), int(rows[rank][1]))


def needed(place: Place, site: Site, how: Measure | None, *, check: bool = False) -> int:
    """Bytes that timing it so, and checking its data, takes on this rank."""
    if site.group is None:
        return 0
    return needed_bytes(
        site.collective,
        site.geometry,
        site.dtype.itemsize,
        in_place=site.case.in_place,
        check=check,
        backend=place.engine.backend,
        slots=slots_of(place, site, how) if how else 1,
    )


def _granted(place: Place, need: int) -> bool:
    """Whether the allocator would give this rank as many bytes; a limit on its own may be lower."""
    try:
        torch.empty(need, dtype=torch.uint8, device=place.device)
    except (RuntimeError, MemoryError):
        return False
    return True


def _memory(device: torch.device) -> int:
    """Bytes that are free for buffers on this device."""
    if device.type == "cuda":
        # What torch's allocator keeps of steps before is taken for the driver, and free for ours.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int((torch.cuda.mem_get_info(device)[0] + kept) * 0.9)
    from wirespeed.node.limits import memory_available_bytes

    return int(memory_available_bytes() * 0.9)


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
