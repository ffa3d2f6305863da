"""Whether ranks have CPUs, clocks and memory enough, for themselves alone: NODE-014 to NODE-016."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wirespeed.checks.per_node import Blind, absent, judge_nodes, worse
from wirespeed.model.records import Finding, NodeFacts, Subject, World
from wirespeed.model.units import format_size

_SLOW_GOVERNORS = ("powersave", "ondemand", "conservative")
_OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers in active mode: their `powersave` is a balance that the processor itself keeps."""
_LEAST_SHARE, _LEAST_BYTES = 0.05, 1 << 30


def cpu_findings(world: World) -> list[Finding]:
    """NODE-014, NODE-015, NODE-016."""
    return [*_governors(world), *_cpus(world), *_memory(world)]


# NODE-014.


def _governors(world: World) -> list[Finding]:
    known = {_governor(node) for node in world.nodes if node.facts.cpu_governor is not None}
    return judge_nodes(
        "NODE-014",
        world.nodes,
        _judge_governor,
        none="no node",
        saw=", ".join(sorted(known)),
    )


def _governor(node: NodeFacts) -> str:
    return f"{node.facts.cpu_governor} ({node.facts.cpu_scaling_driver or 'driver unknown'})"


def _judge_governor(node: NodeFacts) -> Finding | Blind | None:
    governor = node.facts.cpu_governor
    if governor is None:
        if node.facts.machine_virtual:
            return Blind("virtual machine: the host sets the clocks")
        return Blind(node.unknown.get("cpu.governor", "not reported"))
    if governor not in _SLOW_GOVERNORS or node.facts.cpu_scaling_driver in _OWN_GOVERNORS:
        return None
    return worse(
        "NODE-014",
        "warn",
        node,
        f"CPU governor is {governor}",
        saw=f"{_governor(node)} (/sys/devices/system/cpu/cpu0/cpufreq)",
    )


# NODE-015.


def _cpus(world: World) -> list[Finding]:
    short = [node for node in world.nodes if (_visible(node) or len(node.ranks)) < len(node.ranks)]
    limited = [node for node in world.nodes if _quota(node) is not None]
    if len(world.nodes) == 1 and world.backend == "gloo" and short and not limited:
        title = f"{len(short[0].ranks)} ranks share {_visible(short[0])} CPUs, as asked for"
        return [absent("NODE-015", title, "gloo ranks on one machine: times include the waiting")]
    told = (_tell_quota(node) for node in limited)
    return judge_nodes(
        "NODE-015",
        world.nodes,
        _judge_cpus,
        none="no node",
        saw="; ".join(text for text in told if text),
    )


def _quota(node: NodeFacts) -> float | None:
    quota = node.facts.cpu_quota
    return float(quota) if isinstance(quota, int | float) else None


def _visible(node: NodeFacts) -> int | None:
    """CPUs of all ranks here; a rank's own affinity (`cpu.allowed`) may be its binding only."""
    return node.facts.cpu_shared or node.facts.cpu_logical


def _tell_quota(node: NodeFacts) -> str:
    quota, visible = _quota(node), _visible(node)
    if quota is None or visible is None or quota >= visible:
        return ""
    return (
        f"{node.host}: a quota of {quota:g} of {visible} visible CPUs; libraries that start a thread "
        "a visible CPU use it up and are stopped for the rest of each 100 ms (OMP_NUM_THREADS)"
    )


def _judge_cpus(node: NodeFacts) -> Finding | Blind | None:
    ranks, quota, visible = len(node.ranks), _quota(node), _visible(node)
    if quota is not None and quota < ranks:
        return _few_cpus(node, f"a CPU quota of {quota:g} for {ranks} ranks", quota=True)
    if visible is None:
        return Blind(node.unknown.get("cpu.shared", "number of CPUs not reported"))
    if visible < ranks:
        return _few_cpus(node, f"{visible} CPUs for {ranks} ranks", quota=False)
    return None


def _few_cpus(node: NodeFacts, text: str, *, quota: bool) -> Finding:
    return worse(
        "NODE-015",
        "warn",
        node,
        text,
        saw=text,
        because="the CPU limit of a container, a pod or a service (cgroup cpu.max)"
        if quota
        else "the launcher, the scheduler or a cpuset gives the job few CPUs of this node",
        costs="every rank is stopped for the rest of each 100 ms once the quota is used up, and all "
        "others wait for it"
        if quota
        else "ranks wait for each other's turn: latencies of milliseconds, and much spread",
        fix="raise the limit (resources.limits.cpu, --cpus, CPUQuota=)"
        if quota
        else "more CPUs for the job (--cpus-per-task, a larger cpuset), or fewer ranks a node",
    )


# NODE-016.


def _memory(world: World) -> list[Finding]:
    free = [node.facts.memory_available_bytes for node in world.nodes]
    least = min((size for size in free if size is not None), default=0)
    return judge_nodes(
        "NODE-016",
        world.nodes,
        _judge_memory,
        good=f"at least {format_size(least)} of memory free",
        none="no node",
    )


def _judge_memory(node: NodeFacts) -> Finding | Blind | None:
    available, total = node.facts.memory_available_bytes, node.facts.memory_total_bytes
    if available is None or total is None:
        missing = "memory.total_bytes" if total is None else "memory.available_bytes"
        return Blind(node.unknown.get(missing, f"{missing} not reported"))
    limit = node.facts.memory_limit_bytes
    total = min(total, limit) if isinstance(limit, int) else total
    if available >= max(_LEAST_BYTES, _LEAST_SHARE * total):
        return None
    said = f"{format_size(available)} of {format_size(int(total))} free"
    return worse(
        "NODE-016",
        "warn",
        node,
        f"memory: {said}",
        saw=f"{said} (MemAvailable, and what our cgroup leaves)",
    )


SHARED = "WORLD-003"
_SKEW = "SKEW-001"
_SHOWN = 4


def beside_others(
    world: World, speed: Sequence[Finding], *, asked: bool
) -> tuple[list[Finding], list[Finding]]:
    """The findings about speed as they stand with other runs beside this one, and who those were.

    asked: tell of them also where nothing was judged by its speed: figures are shown.
    """
    crowded = {node.host: told for node in world.nodes if (told := node.facts.neighbours)}
    judged = any(map(_was_timed, speed))
    if not crowded or not (judged or asked):
        return list(speed), []
    host = max(crowded, key=lambda one: len(crowded[one]))
    others, more = crowded[host], len(crowded) - 1
    since = _clock(min(one["since"] for one in others))
    runs = f"{len(others)} other wirespeed run" + ("s" if len(others) > 1 else "")
    nodes = f" and on {more} more node" + ("s" if more > 1 else "") if more else ""
    reason = f"{runs} measured on {host}{nodes} meanwhile, since {since}"
    shared = Finding(
        id=SHARED,
        status="not_checked" if judged else "warn",
        title=reason,
        subject=Subject("node", host),
        saw="; ".join(map(_told, others[:_SHOWN])),
        expected="nodes that no other run measures on",
        because="runs at the same time share cores, memory and links, and slow each other down",
        costs="its figures are those of shared nodes: how fast these are is not known",
        fix="one run at a time",
        next="the same command again, once the others have ended",
    )
    held_back = [_held_back(one, reason) if _was_timed(one) else one for one in speed]
    return held_back, [shared]


def _was_timed(one: Finding) -> bool:
    """What is too noisy to be judged is so because of the others, too."""
    return one.id != _SKEW or one.status != "not_checked"


def _held_back(one: Finding, reason: str) -> Finding:
    """What was seen stays; nobody is accused by it."""
    return replace(
        one,
        status="not_checked",
        title="stragglers not checked" if one.id == _SKEW else one.title,
        subject=Subject("job", "job"),
        because=reason,
        costs="",
        fix="",
        next="",
    )


def _told(one: dict[str, Any]) -> str:
    return f"{one['command']} of pid {one['pid']}, since {_clock(one['since'])}"


def _clock(since: int) -> str:
    return datetime.fromtimestamp(since, UTC).strftime("%H:%M:%S UTC")
