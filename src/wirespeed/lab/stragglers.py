"""A node that computes slowly: a CPU quota where cgroups allow one, else stops and goes.

The quota counts in shares of one core, whatever the machine has. cgroup v1 writes
`cpu.cfs_quota_us`, v2 `cpu.max` (Linux: Documentation/scheduler/sched-bwc.rst and
admin-guide/cgroup-v2.rst).
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from wirespeed.lab.daemons import start_daemon, stop_daemon
from wirespeed.lab.layout import Layout, space_path
from wirespeed.lab.processes import living_in
from wirespeed.lab.spec import Bursts, Fault, Quota
from wirespeed.lab.state import State

__all__ = ["cgroup_files", "cpu_hierarchy", "remove_cgroups", "straggle"]

_PERIOD_US = 100_000
_PERIOD_S = _PERIOD_US / 1e6
_GONE_S = 5.0
_V1, _V2 = "cpu.cfs_quota_us", "cpu.max"


def straggle(state: State, layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Bring the node's processes, those that run and those to come, to the speed asked for."""
    role = f"pulse {node}"
    stop_daemon(layout, role)
    _send(layout, node, signal.SIGCONT)
    own = [fault for fault in faults if isinstance(fault, Quota | Bursts) and fault.node == node]
    shares = [fault.share for fault in own if isinstance(fault, Quota)]
    bursts = [(one.stopped_s, one.every_s) for one in own if isinstance(one, Bursts)]
    if not _set_quota(state, layout, node, min(shares, default=None)):
        bursts += [((1 - share) * _PERIOD_S, _PERIOD_S) for share in shares if share < 1]
    if bursts:
        path = str(space_path(layout.space(node)))
        start_daemon(layout, role, "pulse", path, *(f"{seconds:.6f}" for seconds in bursts[0]))


def cpu_hierarchy(mounts: str) -> Path | None:
    """The folder in which a group with a CPU quota can be made, from /proc/self/mounts."""
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        path = Path(place)
        if kind == "cgroup" and "cpu" in options.split(","):
            return path
        if kind == "cgroup2" and "cpu" in _words(path / "cgroup.subtree_control"):
            return path
    return None


def cgroup_files(state: State, layout: Layout, node: str) -> list[str]:
    """Where a process of that node writes its id before it becomes the command."""
    groups = [Path(thing.name) for thing in state.made if thing.kind == "cgroup"]
    own = [group for group in groups if group.name == layout.cgroup(node)]
    return [str(group / "cgroup.procs") for group in own if group.is_dir()]


def remove_cgroups(state: State) -> list[str]:
    """Remove those that the state names; the paths of those that are still there."""
    groups = [Path(thing.name) for thing in state.made if thing.kind == "cgroup"]
    deadline = time.monotonic() + _GONE_S
    while groups and time.monotonic() < deadline:
        for group in groups:
            with suppress(OSError):  # busy until the kernel has let go of the last process
                group.rmdir()
        groups = [group for group in groups if group.exists()]
        if groups:
            time.sleep(0.02)
    return [str(group) for group in groups]


def _set_quota(state: State, layout: Layout, node: str, share: float | None) -> bool:
    """False when there is no group to set it on, or when the machine does not allow one."""
    known = [Path(file).parent for file in cgroup_files(state, layout, node)]
    if share is None and not known:
        return True
    group = known[0] if known else _new_group(state, layout, node)
    if group is None:
        return False
    try:
        _write_quota(group, share)
        for pid in living_in([layout.space(node)]):
            with suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        return False
    return True


def _new_group(state: State, layout: Layout, node: str) -> Path | None:
    hierarchy = cpu_hierarchy(Path("/proc/self/mounts").read_text())
    if hierarchy is None:
        return None
    group = hierarchy / layout.cgroup(node)
    if group.exists() or not os.access(hierarchy, os.W_OK):
        return None
    state.will_make("cgroup", str(group))
    try:
        group.mkdir()
    except OSError:
        return None
    return group


def _write_quota(group: Path, share: float | None) -> None:
    quota = None if share is None else max(1000, int(share * _PERIOD_US))
    if (group / _V2).exists():
        (group / _V2).write_text(f"{'max' if quota is None else quota} {_PERIOD_US}")
    else:
        (group / _V1).write_text(str(-1 if quota is None else quota))


def _send(layout: Layout, node: str, number: signal.Signals) -> None:
    for pid in living_in([layout.space(node)]):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
