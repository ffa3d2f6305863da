"""What is recorded of a run beside its figures, and what of that differs between two sides."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wirespeed.records import NodeFacts, Run
from wirespeed.records_comparison import Difference

__all__ = ["GROUPS", "differences", "facts_of"]

GROUPS = (
    "versions",
    "environment",
    "hosts",
    "image",
    "hardware",
    "clocks",
    "world",
    "options",
)

_NODE_FACTS = {
    "cuda": "versions",
    "gpu.driver": "versions",
    "kernel": "versions",
    "nccl": "versions",
    "os": "versions",
    "python": "versions",
    "torch": "versions",
    "image": "image",
    "image.digest": "image",
    "cpu.model": "hardware",
    "cpu.logical": "hardware",
    "cpu.allowed": "hardware",
    "cpu.quota": "hardware",
    "gpu.count": "hardware",
    "memlock.soft": "hardware",
    "memory.limit_bytes": "hardware",
    "memory.total_bytes": "hardware",
    "net.gloo.interface": "hardware",
    "net.nccl.interfaces": "hardware",
    "numa.nodes": "hardware",
    "shm.size_bytes": "hardware",
    "cpu.governor": "clocks",
    "cpu.scaling_driver": "clocks",
}
_DEVICES = {
    "gpus": {
        "name": "hardware",
        "memory_bytes": "hardware",
        "ecc": "hardware",
        "clock_sm_max_MHz": "clocks",
        "power_limit_W": "clocks",
        "slowed_by": "clocks",
    },
    "nics": {"mtu": "hardware", "speed_Gbitps": "hardware"},
    "rdma": {"rate_Gbitps": "hardware", "state": "hardware", "firmware": "versions"},
}
_DEVICE_WORDS = {"gpus": "gpu", "nics": "nic", "rdma": "rdma"}
_OPTIONS = (
    *("level", "warmup", "iterations", "precision", "max_time", "rounds", "steps"),
    *("checkpoint_every", "inject"),
)
"""How long and how often was measured, and what was done meanwhile; what was measured is in each figure
itself."""
_PROCESS_OWN = (
    "OMPI_MCA_orte_",
    "OMPI_MCA_ess_",
    "NCCL_HOSTID",
    "TORCHELASTIC_RUN_ID",
    "MASTER_PORT",
)
"""Variables that a launcher makes up for each start."""

_ENVIRONMENT = ("environment", "")
"""Stands where the variables were read: to be without any is another thing than not known."""

Facts = dict[tuple[str, str], frozenset[str]]
"""Values by (group, name); several where nodes or runs differ."""


def facts_of(runs: Iterable[Run]) -> Facts:
    """Everything recorded that may explain a difference, of all runs of one side."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for group, name, value in _of_run(run):
            values.setdefault((group, name), set()).add(_text(value))
    return {key: frozenset(found) for key, found in values.items()}


def differences(
    before: Facts, after: Facts
) -> tuple[tuple[Difference, ...], tuple[str, ...], tuple[str, ...]]:
    """(what differs, groups that are alike, groups that are not recorded on both sides).

    What one side alone recorded is unknown, not different; but a variable is set or is not.
    """
    both = {_ENVIRONMENT} & before.keys() & after.keys()
    names = [
        key
        for key in sorted({*before, *after}, key=lambda key: (GROUPS.index(key[0]), key[1]))
        if (both if key[0] == "environment" else key in before and key in after)
    ]
    found = tuple(
        Difference(*key, _shown(before, key), _shown(after, key))
        for key in names
        if before.get(key) != after.get(key)
    )
    known = {group for group, _ in names}
    differing = {one.group for one in found}
    alike = tuple(g for g in GROUPS if g in known and g not in differing)
    return found, alike, tuple(g for g in GROUPS if g not in known)


def _shown(facts: Facts, key: tuple[str, str]) -> str:
    return " | ".join(sorted(facts.get(key, ("(not set)",))))


def _of_run(run: Run) -> Iterator[tuple[str, str, Any]]:
    versions = dict(run.versions)
    yield from (("versions", name, value) for name, value in versions.items())
    for name, value in _variables(run):
        if not name.startswith(_PROCESS_OWN):
            yield "environment", name, value
    if run.world.nodes:
        yield *_ENVIRONMENT, "recorded"
        yield "hosts", "hosts", sorted(node.host for node in run.world.nodes)
    if run.world.size:
        yield "world", "ranks", run.world.size
        yield "world", "nodes", run.world.node_count or None
    yield from (
        ("world", name, value)
        for name, value in (("backend", run.world.backend), ("launcher", run.world.launcher))
        if value
    )
    yield from (("options", name, run.config[name]) for name in _OPTIONS if name in run.config)
    for node in run.world.nodes:
        yield from _of_node(node, versions)


def _variables(run: Run) -> Iterator[tuple[str, str]]:
    for mapping in (run.environment, *(node.environment for node in run.world.nodes)):
        yield from mapping.items()


def _of_node(node: NodeFacts, versions: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    for name, group in _NODE_FACTS.items():
        if name in node.facts and name not in versions:
            yield group, name, node.facts[name]
    for kind, names in _DEVICES.items():
        devices: Sequence[Mapping[str, Any]] = getattr(node, kind)
        real = [one for one in devices if not one.get("loopback") and not one.get("virtual")]
        for name, group in names.items():
            values = sorted(_text(one[name]) for one in real if name in one)
            if values:
                yield group, f"{_DEVICE_WORDS[kind]} {name}", list(dict.fromkeys(values))


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "auto" if value is None else str(value)
