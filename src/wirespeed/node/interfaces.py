"""The interfaces of this network namespace in the order of getifaddrs(3), which gloo and NCCL walk.

A kind comes from the flags and the driver, which the kernel tells of our own namespace, and else
from sysfs (the kernel's Documentation/ABI/testing/sysfs-class-net), which is believed only where
the hardware address there is the same: /sys may show another namespace (see `node/nics.py`).
"""

import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface
from pathlib import Path
from typing import Any, Literal

from wirespeed.node.nics import ethtool
from wirespeed.node.reading import read_text

BOUND_S = 1.0
"""Seconds; a resolver with a dead name server may take half a minute."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
Lookup = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Named:
    """A host name and the addresses that it resolves to, in the resolver's order."""

    name: str
    addresses: tuple[str, ...] = ()
    usable: str = ""
    """The first of them that a socket here can be bound to: what gloo takes."""
    reason: str = ""
    """Why there is no address."""

    @property
    def loopback(self) -> bool:
        """Whether the usable address, or else the first one, is of the loopback interface."""
        first = self.usable or next(iter(self.addresses), "")
        return bool(first) and ip_address(first.partition("%")[0]).is_loopback


def resolve_name(
    name: str | None = None, *, bound_s: float = BOUND_S, lookup: Lookup = socket.getaddrinfo
) -> Named:
    """The addresses of `name` (this host's own if None); never raises, never waits above `bound_s`.

    `lookup` stands in for getaddrinfo in tests.
    """
    own = socket.gethostname() if name is None else name
    answers: list[Named] = []
    # getaddrinfo has no bound of its own; a daemon does not keep the process from ending.
    thread = threading.Thread(
        target=lambda: answers.append(_ask(own, lookup)), name="look-up", daemon=True
    )
    thread.start()
    thread.join(bound_s)
    if answers:
        return answers[0]
    return Named(own, reason=f"no answer to {own!r} within {bound_s:g} s")


def _ask(name: str, lookup: Lookup) -> Named:
    try:
        found = lookup(name, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that is no valid IDNA
        why = error.strerror if isinstance(error, OSError) else None
        return Named(name, reason=f"{name!r} does not resolve: {why or error}")
    ends = [(entry[0], entry[4]) for entry in found if entry[0] in _FAMILIES]
    addresses = tuple(dict.fromkeys(str(end[0]) for _, end in ends))
    usable = next((str(end[0]) for family, end in ends if _can_bind(family, end)), "")
    return Named(name, addresses, usable, "" if addresses else f"{name!r} has no IP address")


def _can_bind(family: int, end: Any) -> bool:
    """Whether the address is one of this node's; port 0, so that nothing is taken."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(end)
    except OSError:
        return False
    return True


Kind = Literal[
    "physical",
    "loopback",
    "bridge",
    "bond",
    "bond member",
    "veth",
    "tunnel",
    "vlan",
    "virtual",
    "unknown",
]
_ETHTOOL_GDRVINFO, _DRVINFO_BYTES = 3, 196
_DRIVERS: dict[str, Kind] = {
    **{"bridge": "bridge", "bonding": "bond", "team": "bond", "veth": "veth"},
    **dict.fromkeys(("tun", "wireguard", "vxlan", "geneve"), "tunnel"),
    **dict.fromkeys(("dummy", "ifb"), "virtual"),
}
_SHOWN: dict[str, Kind] = {"bridge": "bridge", "bonding": "bond", "tun_flags": "tunnel"}
"""By a file of an interface's folder in sysfs."""
_STACKED = ("802.1Q", "macvlan", "ipvlan", "macvtap")
"""Drivers of what rides on a device below and is as good as that."""
_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:|virtio|vmbus|usb|platform|[0-9a-f]{8}-", re.IGNORECASE)
"""Buses of hardware as a driver spells them: PCI, virtio, Hyper-V, USB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One interface, up or not."""

    name: str
    addresses: tuple[IPv4Interface | IPv6Interface, ...] = ()
    """With their networks: IPv4 first, in the kernel's order."""
    running: bool = True
    """IFF_RUNNING: up, and with a carrier."""
    kind: Kind = "unknown"
    wired: bool = False
    """A bridge that has a physical port."""
    speed_Gbitps: float | None = None

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of its addresses, without link-local ones, which every link has."""
        routed = [one for one in self.addresses if not one.ip.is_link_local]
        return tuple(dict.fromkeys(str(one.network) for one in routed))


def read_interfaces(root: Path, nics: Sequence[Mapping[str, Any]]) -> tuple[Interface, ...]:
    """All interfaces, in the order of getifaddrs: with IPv4 first. Raises OSError.

    root: where /sys is looked for; nics: what `gather_nics` gave, for speeds.
    """
    import psutil

    speeds = {nic["name"]: nic.get("speed_Gbitps") for nic in nics}
    states = psutil.net_if_stats()
    return tuple(
        _interface(root, name, found, states.get(name), speeds.get(name))
        for name, found in psutil.net_if_addrs().items()
    )


def holder_of(address: str, interfaces: Sequence[Interface]) -> Interface | None:
    """The interface that has `address`; 127.0.1.1 is loopback's, as all of 127.0.0.0/8 is."""
    wanted = ip_address(address.partition("%")[0])
    holders = [one for one in interfaces if wanted in [known.ip for known in one.addresses]]
    if wanted.is_loopback:
        holders += [one for one in interfaces if one.kind == "loopback"]
    return next(iter(holders), None)


def _interface(
    root: Path, name: str, found: Sequence[Any], state: Any, speed: float | None
) -> Interface:
    flags = state.flags.split(",") if state else []
    folder = root / "sys/class/net" / name
    hardware = {one.address.lower() for one in found if one.family == socket.AF_PACKET}
    same = (read_text(folder / "address") or "").lower() in hardware
    kind = _flagged(flags) or kind_of_driver(*ask_driver(name)) or (_shown(folder) if same else "")
    return Interface(
        name=name,
        addresses=tuple(_address(one) for one in found if one.family in _FAMILIES),
        running="running" in flags,
        kind=kind or "unknown",
        wired=kind == "bridge" and same and _has_wire(folder),
        speed_Gbitps=speed,
    )


def _address(found: Any) -> IPv4Interface | IPv6Interface:
    address = found.address.partition("%")[0]
    if found.family == socket.AF_INET6:
        mask = int(ip_address(found.netmask)) if found.netmask else (1 << 128) - 1
        return ip_interface(f"{address}/{mask.bit_count()}")
    return ip_interface(f"{address}/{found.netmask or 32}")


def _flagged(flags: Sequence[str]) -> Kind | Literal[""]:
    if "loopback" in flags:
        return "loopback"
    return "bond member" if "slave" in flags else ""


def ask_driver(name: str) -> tuple[str, str]:
    """Driver and bus address of an interface (ETHTOOL_GDRVINFO of linux/ethtool.h); else empty.

    It asks about our own namespace and needs no privilege.
    """
    request = struct.pack("I", _ETHTOOL_GDRVINFO).ljust(_DRVINFO_BYTES, b"\0")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = ethtool(asking, name, request)
    except OSError:
        return "", ""
    fields = (field.partition(b"\0")[0] for field in (answer[4:36], answer[100:132]))
    driver, bus = (field.decode(errors="replace") for field in fields)
    return driver, bus


def kind_of_driver(driver: str, bus: str) -> Kind | Literal[""]:
    """The kind behind a driver's name; hardware has a bus address."""
    if driver in _DRIVERS:
        return _DRIVERS[driver]
    if driver.startswith(_STACKED):
        return "vlan"
    return "physical" if _BUS.match(bus) else ""


def _shown(folder: Path) -> Kind:
    """What sysfs shows of an interface whose driver does not tell."""
    for part, kind in _SHOWN.items():
        if (folder / part).exists():
            return kind
    return "physical" if (folder / "device").exists() else "virtual"


def _has_wire(bridge: Path) -> bool:
    """Whether one of a bridge's ports is hardware, a bond, or a VLAN of one."""
    ports = bridge / "brif"
    # Each is a link to the `brport` folder of the port's own device.
    devices = [port.resolve().parent for port in ports.iterdir()] if ports.is_dir() else []
    below = [lower.resolve() for device in devices for lower in device.glob("lower_*")]
    return any(
        (device / "device").exists() or (device / "bonding").exists() for device in devices + below
    )
