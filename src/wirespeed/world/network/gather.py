"""Which interfaces the libraries will choose on this node, noted as flat facts. Nothing raises."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirespeed.world.network.interfaces import Interface, read_interfaces
from wirespeed.world.network.names import Named, resolve_name
from wirespeed.world.network.selection import (
    Matched,
    choose_gloo,
    choose_nccl,
    match_hca,
    match_names,
    match_nccl,
    match_networks,
    match_ucx,
)
from wirespeed.world.reading import Notes, read_text
from wirespeed.world.redact import allowed_environment, redact_value

__all__ = ["nccl_settings", "note_network"]

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
    _note_name(notes, named)
    try:
        interfaces = read_interfaces(notes.root, nics)
    except OSError as error:
        notes.unknown["net.interfaces"] = f"interfaces cannot be listed: {error.strerror}"
        return
    conf = nccl_settings(notes.root, environ)
    notes.facts["net.nccl.conf"] = allowed_environment(conf)
    settings = {**conf, **environ}
    notes.facts["net.interfaces"] = [_json(one) for one in interfaces if one.addresses]
    gloo, nccl = choose_gloo(environ, interfaces, named), choose_nccl(settings, interfaces)
    notes.facts["net.gloo.interface"] = ",".join(gloo.interfaces)
    notes.facts["net.nccl.interfaces"] = list(nccl.interfaces)
    for name, choice in (("gloo", gloo), ("nccl", nccl)):
        notes.facts[f"net.{name}.address"] = choice.address
        notes.facts[f"net.{name}.why"] = choice.why
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


def _note_name(notes: Notes, named: Named) -> None:
    notes.facts["net.name"] = named.name
    notes.keep("net.name.addresses", list(named.addresses) or None, named.reason)
    if named.addresses:
        notes.facts["net.name.usable"] = named.usable
        notes.facts["net.name.loopback"] = named.loopback


def _note_settings(
    notes: Notes,
    settings: Mapping[str, str],
    interfaces: Sequence[Interface],
    ports: Sequence[tuple[str, int]],
) -> None:
    """Note for each variable that chooses interfaces and is set what it matches here."""
    found: dict[str, Matched] = {}
    for name in _LISTS:
        if len(settings.get(name, "")) > 1:
            found[name] = match_names(settings[name], interfaces)
    if len(settings.get("NCCL_SOCKET_IFNAME", "")) > 1:
        found["NCCL_SOCKET_IFNAME"] = match_nccl(settings, interfaces)
    if hca := settings.get("NCCL_IB_HCA"):
        found["NCCL_IB_HCA"] = match_hca(hca, ports)
    if ucx := settings.get("UCX_NET_DEVICES"):
        found["UCX_NET_DEVICES"] = match_ucx(ucx, interfaces, ports)
    if mpi := settings.get("OMPI_MCA_btl_tcp_if_include"):
        found["OMPI_MCA_btl_tcp_if_include"] = match_networks(mpi, interfaces)
    notes.facts["net.hca"] = list(match_hca(settings.get("NCCL_IB_HCA", ""), ports).chosen)
    notes.facts["net.settings"] = [
        {
            "name": name,
            "value": redact_value(settings[name]),
            "chosen": list(matched.chosen),
            "missing": [redact_value(entry) for entry in matched.missing],
            "bare": list(matched.bare),
        }
        for name, matched in found.items()
    ]


def _json(one: Interface) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name,
        "kind": one.kind,
        "wired": one.wired,
        "networks": list(one.networks),
    }
    return found if one.speed_Gbitps is None else {**found, "speed_Gbitps": one.speed_Gbitps}
