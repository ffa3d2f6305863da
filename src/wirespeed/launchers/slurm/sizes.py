"""How many nodes and ranks a job has under Slurm, where it does not say itself."""

import re
from collections.abc import Mapping
from dataclasses import replace

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host, Job
from wirespeed.records import Choice

__all__ = ["gpus_of", "sized"]


def sized(job: Job) -> tuple[Job, tuple[Choice, ...]]:
    """With hosts' slots, or nodes and ranks a node, settled; UsageError for what does not come out."""
    each, choices = job.ranks_per_node, []
    if each is None and job.ranks is None and (gpus := gpus_of(job.options)):
        each = gpus
        choices.append(Choice("ranks per node", str(gpus), "a rank for each GPU that is asked for"))
    if job.hosts:
        return _on_hosts(job, each), tuple(choices)
    nodes = job.nodes or 1
    size = job.ranks if job.ranks is not None else nodes * (each or 1)
    if size % nodes or (job.ranks is not None and each is not None and each * nodes != size):
        raise UsageError(
            f"{size} ranks on {nodes} nodes" + (f", {each} on each" if each else ""),
            expected=f"a multiple of {nodes}; or hosts with slots, such as --hosts a:2,b:1",
        )
    if job.nodes is None:
        choices.append(Choice("nodes", "1", "--nodes was not given"))
    return replace(job, nodes=nodes, ranks=size, ranks_per_node=size // nodes), tuple(choices)


def gpus_of(options: Mapping[str, str]) -> int | None:
    """GPUs of each node, as `gpus-per-node` or `gres` asks."""
    found = re.search(r"(?:^|:)(\d+)$", options.get("gpus-per-node", ""))
    if found is None:
        asked = [one for one in options.get("gres", "").split(",") if one.split(":")[0] == "gpu"]
        found = re.search(r":(\d+)$", asked[0]) if asked else None
    return int(found[1]) if found and int(found[1]) else None


def _on_hosts(job: Job, each: int | None) -> Job:
    count = len(job.hosts)
    if each is None and job.ranks is not None and not any(host.slots for host in job.hosts):
        if job.ranks % count:
            raise UsageError(
                f"{job.ranks} ranks on {count} hosts",
                expected=f"a multiple of {count}, or slots for each host",
            )
        each = job.ranks // count
    hosts = tuple(Host(host.name, host.slots or each or 1) for host in job.hosts)
    slots = sum(host.slots or 1 for host in hosts)
    if job.nodes not in (None, count) or job.ranks not in (None, slots):
        raise UsageError(
            f"{count} hosts with {slots} slots, for {job.nodes or count} nodes "
            f"and {job.ranks or slots} ranks",
            expected="the same number, or only one of them",
        )
    return replace(job, hosts=hosts, nodes=count, ranks=slots, ranks_per_node=each)
