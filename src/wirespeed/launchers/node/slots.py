"""How many ranks each node gets."""

from collections.abc import Mapping
from dataclasses import replace

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.node.probe import Facts

__all__ = ["with_slots"]


def with_slots(job: Job, facts: Mapping[str, Facts]) -> list[Host]:
    """The job's hosts that get ranks, with their numbers, also those that cannot be used.

    Slots as named, else ranks a node, else GPUs, else 1. A world size that was asked for fills the
    slots in order, or is spread evenly where nothing says how many a node takes. UsageError where
    it does not fit.
    """
    told = [host.slots or job.ranks_per_node for host in job.hosts]
    if job.ranks is None:
        return [
            replace(host, slots=slots or _gpus(facts, host) or 1)
            for host, slots in zip(job.hosts, told, strict=True)
        ]
    if not any(told):
        each, more = divmod(job.ranks, len(job.hosts))
        spread = [each + (index < more) for index in range(len(job.hosts))]
        return _some(job, spread)
    left, filled = job.ranks, []
    for slots in told:
        filled.append(min(slots or 1, left))
        left -= filled[-1]
    if left:
        room = job.ranks - left
        raise UsageError(
            f"{job.ranks} ranks do not fit: the nodes take {room}",
            expected=f"--ranks {room} or fewer, or more slots",
        )
    return _some(job, filled)


def _some(job: Job, slots: list[int]) -> list[Host]:
    return [
        replace(host, slots=number) for host, number in zip(job.hosts, slots, strict=True) if number
    ]


def _gpus(facts: Mapping[str, Facts], host: Host) -> int:
    return facts[host.name].gpus if host.name in facts else 0
