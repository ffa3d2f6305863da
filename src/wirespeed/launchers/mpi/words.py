"""What all makes of mpirun have in common: what is asked of them, and words that pass unchanged."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host

__all__ = ["Flavour", "Launch", "check_hosts", "passes", "per_node"]

_HOST = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_](?:[\w.-]*\w)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAPPING = re.compile(r"slot|node|ppr:[1-9]\d{0,5}:node")
_PLAIN = re.compile(r"[\w./=,@%+-][\w./=,@%+:-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is asked of an mpirun, in nobody's syntax."""

    size: int
    """World size."""
    hosts: tuple[Host, ...] = ()
    """Each with slots; empty: mpirun's own allocation, or this machine."""
    hostfile: str = ""
    """Path of the file that will hold `Flavour.hostfile`."""
    names: tuple[str, ...] = ()
    """Variables of our environment that the ranks shall have."""
    map_by: str = ""
    """`slot`, `node` or `ppr:N:node`; empty: mpirun's choice (slot)."""
    bind_to: str = "none"
    oversubscribe: bool = False
    allow_root: bool = False
    interface: str = ""
    ssh: tuple[str, ...] = ()
    """Words for every ssh that mpirun starts; none holds white space."""

    def __post_init__(self) -> None:
        check_hosts(self.hosts)
        for name in self.names:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"{name!r} is no name of a variable", expected="-x NAME")
        if self.map_by and not _MAPPING.fullmatch(self.map_by):
            raise UsageError(
                f"--with map-by={self.map_by}", expected="map-by=slot, node or ppr:N:node"
            )
        _refuse_strange("bind-to", self.bind_to)
        _refuse_strange("interface", self.interface)
        for word in self.ssh:
            if len(word.split()) != 1:
                raise UsageError(
                    f"mpirun cannot hand {word!r} to ssh: it cuts at white space",
                    expected="a path without white space",
                )


class Flavour(Protocol):
    """One make of mpirun."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def minds_root(self) -> bool:
        """Whether it refuses to run as root unless it is told to."""
        ...

    @property
    def minds_dashes(self) -> bool:
        """Whether it looks for options of its own even behind the program."""
        ...

    def recognises(self, version: str) -> bool:
        """Whether `mpirun --version` printed this."""
        ...

    def hostfile(self, launch: Launch) -> str: ...

    def words(self, launch: Launch) -> list[str]:
        """Everything between `mpirun` and the program."""
        ...

    def environment(self, launch: Launch) -> dict[str, str]:
        """Settings that it takes from the environment only."""
        ...


def check_hosts(hosts: Sequence[Host]) -> None:
    """UsageError for a name that a hostfile could take for anything else (IPv6 has colons)."""
    for host in hosts:
        if not _HOST.fullmatch(host.name):
            raise UsageError(
                f"mpirun cannot be told the host {host.name!r}",
                expected="a host name or an IPv4 address; for an IPv6 address a name in /etc/hosts",
            )


def per_node(map_by: str) -> int | None:
    """N of `ppr:N:node`, 1 of `node`; None of `slot`."""
    if map_by == "node":
        return 1
    return int(map_by.split(":")[1]) if map_by.startswith("ppr:") else None


def passes(words: Sequence[str], flavour: Flavour) -> bool:
    """Whether a program's words reach it unchanged: a bare `:` begins another program for all."""
    dashed = flavour.minds_dashes and any(word.startswith("-") for word in words)
    return ":" not in words and not dashed


def _refuse_strange(what: str, value: str) -> None:
    if value and (not _PLAIN.fullmatch(value) or value.startswith("-")):
        raise UsageError(f"{what} {value!r} is none", expected="a plain name")
