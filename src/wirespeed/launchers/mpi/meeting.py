"""Where the ranks of an mpirun meet: MASTER_ADDR, MASTER_PORT, and the interface that leads there."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.mpi.find import first_of_allocation
from wirespeed.launchers.mpi.nodes import is_here
from wirespeed.launchers.node.probe import Facts
from wirespeed.world.identity import port_of

__all__ = ["Meeting", "meeting_of"]

_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """The place, with its reasons."""

    address: str
    port: int
    why: str
    why_port: str
    interface: str = ""
    """Of all nodes; empty: it differs, or is not known."""
    why_interface: str = ""


def meeting_of(job: Job, hosts: Sequence[Host], facts: Mapping[str, Facts]) -> Meeting:
    """The first host has rank 0, since mpirun fills its hosts in order."""
    address, why = _address(job, hosts, facts)
    port, why_port = _port(job.token, address, facts.get(hosts[0].name) if hosts else None)
    found = {one.interface_to(address) for one in facts.values()} if "." in address else set()
    names = {name for name, _ in found}
    interface = job.interface or (names.pop() if len(names) == 1 else "")
    return Meeting(
        address=address,
        port=port,
        why=why,
        why_port=why_port,
        interface=interface,
        why_interface="as asked" if job.interface else "on every node it leads to the first",
    )


def _address(job: Job, hosts: Sequence[Host], facts: Mapping[str, Facts]) -> tuple[str, str]:
    if not hosts:
        first = first_of_allocation(os.environ)
        told = "the allocation's first node has rank 0"
        return (first, told) if first else ("127.0.0.1", "all ranks are on this machine")
    if all(is_here(host.name) for host in hosts):
        return "127.0.0.1", "all ranks are on this machine"
    why = f"the first host, {hosts[0].name}, has rank 0"
    known = _known_address(job, hosts, facts)
    name = hosts[0].name.rpartition("@")[2]
    local = name == "localhost" or name.startswith("127.")
    return known or (os.uname().nodename if local else name), why


def _known_address(job: Job, hosts: Sequence[Host], facts: Mapping[str, Facts]) -> str:
    """One by which the other nodes reach the first; empty: none is known.

    This machine may have many (bridges of containers): the one in the network of another node.
    """
    first = facts.get(hosts[0].name)
    if first is None or (job.interface and first.at(job.interface)):
        return first.at(job.interface) if first else ""
    if first.reached:
        return first.address
    others = [facts[host.name].address for host in hosts[1:] if host.name in facts]
    ways = [first.interface_to(address)[0] for address in others if address]
    return next((first.at(name) for name in ways if name), "")


def _port(token: str, address: str, first: Facts | None) -> tuple[int, str]:
    if first is not None and first.port:
        return first.port, "free there at this moment"
    if address != "127.0.0.1" and not is_here(address):
        return port_of(token), "derived from this launch's name"
    ports = [port_of(f"{token}{index or ''}") for index in range(_TRIES)]
    return next(filter(_is_free, ports), ports[0]), "free at this moment"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
