"""Bring a lab's nodes into the state that follows from its faults, at the start and later."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from wirespeed.lab import network, spec
from wirespeed.lab.processes import living_in, need, start_daemon, stop_daemon
from wirespeed.lab.spec import Fault
from wirespeed.lab.state import Layout, State, space_path

_PERIOD_US = 100_000
_PERIOD_S = _PERIOD_US / 1e6
_GONE_S = 5.0
_V1, _V2 = "cpu.cfs_quota_us", "cpu.max"


def straggle(state: State, layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Bring the node's processes, those that run and those to come, to the speed asked for."""
    role = f"pulse {node}"
    stop_daemon(layout, role)
    _send(layout, node, signal.SIGCONT)
    own = [
        fault
        for fault in faults
        if isinstance(fault, spec.Quota | spec.Bursts) and fault.node == node
    ]
    shares = [fault.share for fault in own if isinstance(fault, spec.Quota)]
    bursts = [(one.stopped_s, one.every_s) for one in own if isinstance(one, spec.Bursts)]
    if not _set_quota(state, layout, node, min(shares, default=None)):
        bursts += [((1 - share) * _PERIOD_S, _PERIOD_S) for share in shares if share < 1]
    if bursts:
        path = str(space_path(layout.space(node)))
        start_daemon(layout, role, "stalls", path, *(f"{seconds:.6f}" for seconds in bursts[0]))


def cpu_hierarchy(mounts: str) -> Path | None:
    """The folder in which a group with a CPU quota can be made, from /proc/self/mounts."""
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        path = Path(place)
        if kind == "cgroup" and "cpu" in options.split(","):
            return path
        with suppress(OSError):
            control = path / "cgroup.subtree_control"
            if kind == "cgroup2" and "cpu" in control.read_text().split():
                return path
    return None


def cgroup_files(state: State, layout: Layout, node: str) -> list[str]:
    """Where a process of that node writes its id before it becomes the command."""
    own = [group for group in _groups(state) if group.name == layout.space(node)]
    return [str(group / "cgroup.procs") for group in own if group.is_dir()]


def remove_cgroups(state: State) -> list[str]:
    """Remove those that the state names; the paths of those that are still there."""
    groups = _groups(state)
    deadline = time.monotonic() + _GONE_S
    while groups and time.monotonic() < deadline:
        for group in groups:
            with suppress(OSError):  # busy until the kernel has let go of the last process
                group.rmdir()
        groups = [group for group in groups if group.exists()]
        if groups:
            time.sleep(0.02)
    return [str(group) for group in groups]


def _groups(state: State) -> list[Path]:
    return [Path(thing.name) for thing in state.made if thing.kind == "cgroup"]


def _set_quota(state: State, layout: Layout, node: str, share: float | None) -> bool:
    """False when there is no group to set it on, or when the machine does not allow one."""
    known = [Path(file).parent for file in cgroup_files(state, layout, node)]
    if share is None and not known:
        return True
    group = known[0] if known else _new_group(state, layout, node)
    if group is None:
        return False
    try:
        quota = None if share is None else max(1000, int(share * _PERIOD_US))
        if (group / _V2).exists():
            (group / _V2).write_text(f"{'max' if quota is None else quota} {_PERIOD_US}")
        else:
            (group / _V1).write_text(str(-1 if quota is None else quota))
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
    group = hierarchy / layout.space(node)
    if group.exists() or not os.access(hierarchy, os.W_OK):
        return None
    state.will_make("cgroup", str(group))
    try:
        group.mkdir()
    except OSError:
        return None
    return group


def _send(layout: Layout, node: str, number: signal.Signals) -> None:
    for pid in living_in([layout.space(node)]):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def subject(fault: Fault) -> tuple[object, ...]:
    """What a fault is about: of two faults with the same subject the later one counts."""
    part = fault.name if isinstance(fault, spec.Variable) else getattr(fault, "way", "")
    return type(fault), frozenset(fault.nodes), part


def need_tools(faults: Iterable[Fault]) -> None:
    """Raises CannotMeasure, with the package, when a command for these is not here."""
    need("ip", "tc", "tee")
    if any(isinstance(fault, spec.Lossy | spec.Firewall) for fault in faults):
        need("nft")


def settle_all(state: State, layout: Layout) -> None:
    """All of a new lab."""
    for node in layout.nodes:
        network.shape_node(layout, node, state.spec.rate, state.spec.faults)
    for fault in state.spec.faults:
        settle(state, layout, fault)


def settle(state: State, layout: Layout, fault: Fault) -> None:
    """What `fault` is about, where it has come to the state's faults or gone from them."""
    faults = state.spec.faults
    for node in fault.nodes:
        _settle_node(state, layout, node, fault, [one for one in faults if node in one.nodes])
    if isinstance(fault, spec.Lossy):
        network.set_congestion(layout, faults, _CONGESTION.read_text().strip())


def _settle_node(
    state: State, layout: Layout, node: str, changed: Fault, own: Iterable[Fault]
) -> None:
    match changed:
        case spec.Slow() | spec.SlowLink():
            network.shape_node(layout, node, state.spec.rate, own)
        case spec.Delay():
            _delay(layout, node, own)
        case spec.Lossy():
            network.single_packets(layout, node, own)
            network.lose(layout, node, own)
        case spec.Mtu():
            network.single_packets(layout, node, own)
            network.set_mtu(layout, node, own)
            network.shape_node(layout, node, state.spec.rate, own)
        case spec.Cut():
            network.cut_or_plug(layout, node, own)
        case spec.Quota() | spec.Bursts():
            straggle(state, layout, node, own)
        case spec.Firewall():
            network.close_ports(layout, node, own)
        case spec.LoopbackName():
            network.write_hosts(layout, node, own)
        case _:
            pass  # a variable is read from the state when a command starts: see Lab.start


def _delay(layout: Layout, node: str, own: Iterable[Fault]) -> None:
    seconds = sum(fault.seconds for fault in own if isinstance(fault, spec.Delay))
    role = f"relay {node}"
    stop_daemon(layout, role)
    network.undo_detour(layout, node)
    if seconds:
        start_daemon(layout, role, "relay", *network.detour(layout, node), f"{seconds:.6f}")
