"""Bring a lab's nodes into the state that follows from its faults, at the start and later."""

from collections.abc import Iterable
from pathlib import Path

from wirespeed.lab.daemons import start_daemon, stop_daemon
from wirespeed.lab.firewall import close_ports
from wirespeed.lab.hosts import write_hosts
from wirespeed.lab.layout import Layout
from wirespeed.lab.links import (
    cut_or_plug,
    detour,
    lose,
    set_congestion,
    set_mtu,
    single_packets,
    undo_detour,
)
from wirespeed.lab.shaping import shape_node
from wirespeed.lab.spec import (
    Bursts,
    Cut,
    Delay,
    Fault,
    Firewall,
    LoopbackName,
    Lossy,
    Misconfigured,
    Mtu,
    Quota,
    Slow,
    SlowLink,
    Variable,
)
from wirespeed.lab.state import State
from wirespeed.lab.stragglers import straggle
from wirespeed.lab.tools import need

__all__ = ["need_tools", "settle", "settle_all", "subject"]

_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def subject(fault: Fault) -> tuple[object, ...]:
    """What a fault is about: of two faults with the same subject the later one counts."""
    part = fault.name if isinstance(fault, Variable) else getattr(fault, "way", "")
    return type(fault), frozenset(fault.nodes), part


def need_tools(faults: Iterable[Fault]) -> None:
    """Raises CannotMeasure, with the package, when a command for these is not here."""
    need("ip", "tc", "tee")
    if any(isinstance(fault, Lossy | Firewall) for fault in faults):
        need("nft")


def settle_all(state: State, layout: Layout) -> None:
    """All of a new lab."""
    for node in layout.nodes:
        shape_node(layout, node, state.spec.rate, state.spec.faults)
    for fault in state.spec.faults:
        settle(state, layout, fault)


def settle(state: State, layout: Layout, fault: Fault) -> None:
    """What `fault` is about, where it has come to the state's faults or gone from them."""
    faults = state.spec.faults
    for node in fault.nodes:
        _settle_node(state, layout, node, fault, [one for one in faults if node in one.nodes])
    if isinstance(fault, Lossy):
        set_congestion(layout, faults, _CONGESTION.read_text().strip())


def _settle_node(
    state: State, layout: Layout, node: str, changed: Fault, own: Iterable[Fault]
) -> None:
    match changed:
        case Slow() | SlowLink():
            shape_node(layout, node, state.spec.rate, own)
        case Delay():
            _delay(layout, node, own)
        case Lossy():
            single_packets(layout, node, own)
            lose(layout, node, own)
        case Mtu():
            single_packets(layout, node, own)
            set_mtu(layout, node, own)
            shape_node(layout, node, state.spec.rate, own)
        case Cut():
            cut_or_plug(layout, node, own)
        case Quota() | Bursts():
            straggle(state, layout, node, own)
        case Firewall() | LoopbackName() | Variable():
            _configure(layout, node, changed, own)


def _configure(layout: Layout, node: str, changed: Misconfigured, own: Iterable[Fault]) -> None:
    match changed:
        case Firewall():
            close_ports(layout, node, own)
        case LoopbackName():
            write_hosts(layout, node, own)
        case Variable():
            pass  # read from the state when a command starts: see Lab.start


def _delay(layout: Layout, node: str, own: Iterable[Fault]) -> None:
    seconds = sum(fault.seconds for fault in own if isinstance(fault, Delay))
    role = f"relay {node}"
    stop_daemon(layout, role)
    undo_detour(layout, node)
    if seconds:
        start_daemon(layout, role, "relay", *detour(layout, node), f"{seconds:.6f}")
