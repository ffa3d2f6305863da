"""The rules by which gloo, NCCL, UCX and Open MPI choose interfaces, as functions of the node.

gloo: torch's ProcessGroupGloo.cpp (createDefaultDevice) and init.cpp: GLOO_SOCKET_IFNAME of more
than one character is a list of exact names, and each must have an address; else the first address
of the host's name that can be bound, else 127.0.0.1.
NCCL: NCCL_SOCKET_IFNAME and NCCL_IB_HCA in its user guide (user-guide/docs/env.html), and
src/misc/socket.cc: interfaces that run, with IPv4 before IPv6; bootstrap takes the first.
UCX: UCX_NET_DEVICES (https://openucx.readthedocs.io/en/master/faq.html). Open MPI:
btl_tcp_if_include (https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

from wirespeed.model import node_facts
from wirespeed.node.interfaces import (
    Interface,
    Named,
    holder_of,
    read_interfaces,
    resolve_name,
)
from wirespeed.node.reading import Notes, read_text
from wirespeed.node.redact import allowed_environment, redact_value

_MOST = 16
"""Interfaces that NCCL takes (MAX_IFS)."""
_AUTOMATIC = {"^docker,lo,virbr": "every interface but docker*, lo*, virbr*"}
_AUTOMATIC |= {name: f"nothing but {name}*" for name in ("docker", "lo", "virbr")}
"""What NCCL looks for in turn when nothing is set and no interface begins with ib."""
Port = tuple[str, int]
"""Name and port of an RDMA device."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a library will use; no interfaces: it will fail, or `why` says that it is not known."""

    interfaces: tuple[str, ...]
    address: str
    why: str


@dataclass(frozen=True, slots=True)
class Matched:
    """What a setting's entries lead to on this node."""

    chosen: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Entries that name nothing here."""
    bare: tuple[str, ...] = ()
    """Entries that name an interface without an address, or one that is down."""


# gloo.


def choose_gloo(
    environ: Mapping[str, str], interfaces: Sequence[Interface], named: Named
) -> Choice:
    """The interfaces and the first address that torch's gloo will listen on."""
    setting = environ.get("GLOO_SOCKET_IFNAME", "")
    if len(setting) > 1:
        return _set_gloo(setting, interfaces)
    if named.usable:
        holder = holder_of(named.usable, interfaces)
        held = (holder.name,) if holder else ()
        return Choice(held, named.usable, f"the host name {named.name} resolves to it")
    other = f"resolves to {', '.join(named.addresses)}, which is not this node's"
    because = other if named.addresses else "does not resolve"
    names = tuple(one.name for one in interfaces if one.kind == "loopback")
    return Choice(names, "127.0.0.1", f"the host name {named.name} {because}")


def _set_gloo(setting: str, interfaces: Sequence[Interface]) -> Choice:
    matched = match_names(setting, interfaces)
    if matched.missing or matched.bare:
        return Choice((), "", "GLOO_SOCKET_IFNAME names an interface that has no address here")
    first = next(one for one in interfaces if one.name == matched.chosen[0])
    return Choice(matched.chosen, str(first.addresses[0].ip), "GLOO_SOCKET_IFNAME")


def match_names(setting: str, interfaces: Sequence[Interface]) -> Matched:
    """A list of exact names; a blank beside a comma belongs to the name, as it does for gloo."""
    entries = setting.removesuffix(",").split(",")
    known = {one.name: one for one in interfaces}
    return Matched(
        tuple(name for name in entries if name in known and known[name].addresses),
        tuple(name for name in entries if name not in known),
        tuple(name for name in entries if name in known and not known[name].addresses),
    )


# NCCL.


def choose_nccl(environ: Mapping[str, str], interfaces: Sequence[Interface]) -> Choice:
    """The interfaces of NCCL's sockets; the first one, and its address, are those of bootstrap."""
    version = {"AF_INET": 4, "AF_INET6": 6}.get(environ.get("NCCL_SOCKET_FAMILY", ""))
    found, why = _seek_nccl(environ, _of_family(version, interfaces))
    known = [str(at.ip) for one in found[:1] for at in one.addresses]
    fit = [text for text in known if version in (None, ip_address(text).version)]
    return Choice(tuple(one.name for one in found), next(iter(fit), ""), why)


def _seek_nccl(
    environ: Mapping[str, str], fit: Sequence[Interface]
) -> tuple[Sequence[Interface], str]:
    """The interfaces out of those that fit, and why."""
    setting = environ.get("NCCL_SOCKET_IFNAME", "")
    if len(setting) > 1:
        return _filtered(setting, fit), "NCCL_SOCKET_IFNAME"
    if found := _filtered("ib", fit):
        return found, "interfaces whose names begin with ib come first"
    if found := _near(environ.get("NCCL_COMM_ID", ""), fit):
        return found, "in the subnet of NCCL_COMM_ID"
    for prefixes, why in _AUTOMATIC.items():
        if found := _filtered(prefixes, fit):
            return found, why
    return (), "no interface that runs has an address"


def match_nccl(environ: Mapping[str, str], interfaces: Sequence[Interface]) -> Matched:
    """What the entries of NCCL_SOCKET_IFNAME lead to; an excluded name that is absent is fine."""
    setting = environ["NCCL_SOCKET_IFNAME"]
    chosen = choose_nccl(environ, interfaces).interfaces
    exclude, exact, entries = _parsed(setting)
    if exclude:
        return Matched(chosen)
    names = [one.name for one in interfaces]
    missing = [one for one in entries if not any(_fits(name, one, exact) for name in names)]
    lost = [one for one in entries if not any(_fits(name, one, exact) for name in chosen)]
    bare = [one for one in lost if one not in missing]
    return Matched(chosen, tuple(missing), tuple(bare))


def _of_family(version: int | None, interfaces: Sequence[Interface]) -> list[Interface]:
    """Interfaces that run and have an address that NCCL takes, IPv4 first."""

    def usable(one: Interface, family: int) -> bool:
        return any(
            known.version == family and not (family == 6 and known.ip.is_loopback)
            for known in one.addresses
        )

    families = [version] if version else [4, 6]
    ordered = [one for family in families for one in interfaces if usable(one, family)]
    return list(dict.fromkeys(one for one in ordered if one.running))


def _parsed(setting: str) -> tuple[bool, bool, list[str]]:
    """Whether a list excludes, whether its names are exact, and its entries."""
    exclude = setting.startswith("^")
    rest = setting[exclude:]
    exact = rest.startswith("=")
    return exclude, exact, [entry for entry in rest[exact:].split(",") if entry]


def _fits(name: str, entry: str, exact: bool) -> bool:
    return name == entry if exact else name.startswith(entry)


def _filtered(setting: str, interfaces: Sequence[Interface]) -> list[Interface]:
    exclude, exact, entries = _parsed(setting)
    bare = [entry.partition(":")[0] for entry in entries]
    return [
        one
        for one in interfaces
        if not bare or any(_fits(one.name, entry, exact) for entry in bare) != exclude
    ][:_MOST]


def _near(comm_id: str, interfaces: Sequence[Interface]) -> list[Interface]:
    """The first interface whose network holds NCCL_COMM_ID's address; a host name is not asked."""
    host = comm_id[1:].partition("]")[0] if comm_id[:1] == "[" else comm_id.partition(":")[0]
    try:
        wanted: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        return []
    return [one for one in interfaces if any(wanted in at.network for at in one.addresses)][:1]


# RDMA devices.


def match_hca(setting: str, ports: Sequence[Port]) -> Matched:
    """The ports, as `mlx5_0:1`, that NCCL_IB_HCA leaves; an entry is `name[:port[:rail[:plane]]]`."""
    exclude, exact, entries = _parsed(setting)

    def fits(port: Port, entry: str) -> bool:
        name, _, rest = entry.partition(":")
        number = rest.partition(":")[0]
        return _fits(port[0], name, exact) and (not number.isdecimal() or int(number) == port[1])

    hit = {entry: [port for port in ports if fits(port, entry)] for entry in entries}
    listed = {port for found in hit.values() for port in found}
    chosen = [port for port in ports if not entries or (port in listed) != exclude]
    missing = [] if exclude else [entry for entry, found in hit.items() if not found]
    return Matched(tuple(f"{name}:{number}" for name, number in chosen), tuple(missing))


# UCX and Open MPI.


def match_ucx(setting: str, interfaces: Sequence[Interface], ports: Sequence[Port]) -> Matched:
    """UCX_NET_DEVICES: `all`, interfaces, or RDMA devices with their port, such as `mlx5_0:1`."""
    names = [f"{name}:{number}" for name, number in ports]
    names += [one.name for one in interfaces if one.addresses]
    if setting.startswith("^") or "all" in setting.split(","):
        return Matched(tuple(names))
    return _split(setting, lambda entry: [name for name in names if name == entry])


def match_networks(setting: str, interfaces: Sequence[Interface]) -> Matched:
    """btl_tcp_if_include of Open MPI: names, or networks such as `10.0.0.0/16`."""

    def within(entry: str) -> list[str]:
        if "/" not in entry:
            return [one.name for one in interfaces if one.name == entry and one.addresses]
        try:
            network = ip_network(entry, strict=False)
        except ValueError:
            return []
        return [one.name for one in interfaces if any(at.ip in network for at in one.addresses)]

    return _split(setting, within)


def _split(setting: str, hits: Callable[[str], Sequence[str]]) -> Matched:
    found = {entry: hits(entry) for entry in setting.split(",") if entry}
    chosen = dict.fromkeys(name for names in found.values() for name in names)
    return Matched(tuple(chosen), tuple(entry for entry, names in found.items() if not names))


_CONF = "etc/nccl.conf"
_LISTS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Exact names; tensorpipe (torch.distributed.rpc) takes one."""


def note_network(
    notes: Notes,
    environ: Mapping[str, str],
    nics: Sequence[Mapping[str, Any]],
    rdma: Sequence[Mapping[str, Any]],
) -> None:
    """Note what the host's name leads to, and what gloo and NCCL will use, within about a second.

    Facts, of which those that do not apply are absent: `net.name`, `net.name.addresses`,
    `net.name.usable`, `net.name.loopback`; `net.interfaces` (name, kind, wired, networks, and
    speed_Gbitps where known, of those that have an address); `net.gloo.interface` (several: with
    commas), `.address`, `.why`; `net.nccl.interfaces`, `.address`, `.why`; `net.nccl.conf`,
    variables of NCCL's files; `net.hca`, the ports that NCCL_IB_HCA leaves; `net.settings`, what
    each setting matches.
    """
    named = resolve_name()
    notes.keep("net.name", named.name)
    notes.keep("net.name.addresses", list(named.addresses) or None, named.reason)
    if named.addresses:
        notes.keep("net.name.usable", named.usable)
        notes.keep("net.name.loopback", named.loopback)
    try:
        interfaces = read_interfaces(notes.root, nics)
    except OSError as error:
        notes.unknown["net.interfaces"] = f"interfaces cannot be listed: {error.strerror}"
        return
    conf = nccl_settings(notes.root, environ)
    settings = {**conf, **environ}
    gloo, nccl = choose_gloo(environ, interfaces, named), choose_nccl(settings, interfaces)
    notes.facts = replace(
        notes.facts,
        net_nccl_conf=allowed_environment(conf),
        net_interfaces=[_told(one) for one in interfaces if one.addresses],
        net_gloo_interface=",".join(gloo.interfaces),
        net_nccl_interfaces=list(nccl.interfaces),
        net_gloo_address=gloo.address,
        net_gloo_why=gloo.why,
        net_nccl_address=nccl.address,
        net_nccl_why=nccl.why,
    )
    _note_settings(notes, settings, interfaces, [(one["device"], one["port"]) for one in rdma])


def nccl_settings(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of NCCL's files that the environment does not set.

    NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf, lines `NAME=VALUE`; what was set first
    stays (user-guide/docs/env.html).
    """
    user = environ.get("NCCL_CONF_FILE") or f"{environ.get('HOME', '/nonexistent')}/.nccl.conf"
    found: dict[str, str] = {}
    own = root / user.removeprefix("/") if user.startswith("/") else Path(user)
    for path in (own, root / _CONF):
        for line in (read_text(path) or "").splitlines():
            name, equals, value = line.partition("=")
            if equals and name.startswith("NCCL_") and name not in environ:
                found.setdefault(name, value)
    return found


def _note_settings(
    notes: Notes,
    settings: Mapping[str, str],
    interfaces: Sequence[Interface],
    ports: Sequence[tuple[str, int]],
) -> None:
    """Note for each variable that chooses interfaces and is set what it matches here."""
    hca = settings.get("NCCL_IB_HCA", "")
    matchers: dict[str, Callable[[str], Matched]] = {
        **{name: lambda value: match_names(value, interfaces) for name in _LISTS},
        "NCCL_SOCKET_IFNAME": lambda value: match_nccl(settings, interfaces),
        "NCCL_IB_HCA": lambda value: match_hca(value, ports),
        "UCX_NET_DEVICES": lambda value: match_ucx(value, interfaces, ports),
        "OMPI_MCA_btl_tcp_if_include": lambda value: match_networks(value, interfaces),
    }
    least = dict.fromkeys((*_LISTS, "NCCL_SOCKET_IFNAME"), 2)  # shorter ones are not regarded
    found = {
        name: match(settings[name])
        for name, match in matchers.items()
        if len(settings.get(name, "")) >= least.get(name, 1)
    }
    notes.keep("net.hca", list(match_hca(hca, ports).chosen))
    told = [
        node_facts.InterfaceSetting(
            name=name,
            value=redact_value(settings[name]),
            chosen=list(matched.chosen),
            missing=[redact_value(entry) for entry in matched.missing],
            bare=list(matched.bare),
        )
        for name, matched in found.items()
    ]
    notes.facts = replace(notes.facts, net_settings=told)


def _told(one: Interface) -> node_facts.Interface:
    found = node_facts.Interface(
        name=one.name, kind=one.kind, wired=one.wired, networks=list(one.networks)
    )
    return found if one.speed_Gbitps is None else {**found, "speed_Gbitps": one.speed_Gbitps}
