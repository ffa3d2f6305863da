"""Names of nodes, from `--hosts` or a hostfile in one of the usual notations."""

import re
from collections.abc import Sequence
from pathlib import Path

from wirespeed.errors import InputError, UsageError
from wirespeed.launchers.base import Host
from wirespeed.world.reading import read_whole

__all__ = ["parse_hosts", "read_hostfile"]

_NAME = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_](?:[\w.-]*\w)?|[0-9a-fA-F:]*:[0-9a-fA-F:.]+")
"""A host name, `user@name`, an alias of ssh's configuration, or an address: what no program takes
for an option or a pattern."""
_MOST_SLOTS = 4096
_MOST_BYTES = 16 << 20
_SLOT_WORD = re.compile(r"slots=(\d+)")
_IGNORED_WORD = re.compile(r"max[-_]slots=\d+")
_NOTATIONS = "`host`, `host slots=8` (DeepSpeed, Open MPI) or `host:8` (MPICH, --host)"


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`a,b:4`: hosts with or without slots. UsageError for anything else, and for a host twice."""
    words = [word.strip() for word in text.split(",")]
    hosts = tuple(_host(word, "--hosts") for word in words)
    _refuse_twice(hosts, "--hosts")
    return hosts


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts of a file, one a line; InputError names the line that is none."""
    try:
        lines = read_whole(path, _MOST_BYTES, pipes=True).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"hostfile {path} cannot be read: {getattr(error, 'strerror', None) or error}",
            expected=f"a line a node: {_NOTATIONS}",
        ) from error
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            hosts.append(_host_of_line(words, f"{path}:{number}"))
    if not hosts:
        raise InputError(f"hostfile {path} names no host", expected=f"a line a node: {_NOTATIONS}")
    _refuse_twice(hosts, str(path))
    return tuple(hosts)


def _host_of_line(words: Sequence[str], where: str) -> Host:
    host = _host(words[0], where)
    slots = host.slots
    for word in words[1:]:
        if found := _SLOT_WORD.fullmatch(word):
            slots = _slots(found[1], where)
        elif not _IGNORED_WORD.fullmatch(word):
            raise InputError(f"{where}: {word!r} is not known", expected=_NOTATIONS)
    return Host(host.name, slots)


def _host(word: str, where: str) -> Host:
    name, colon, slots = word.rpartition(":")
    if not colon or ":" in name:
        name, slots = word, ""
    if not _NAME.fullmatch(name):
        raise InputError(f"{where}: {name!r} is no host name", expected=_NOTATIONS)
    return Host(name, _slots(slots, where) if slots or (colon and name != word) else None)


def _slots(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MOST_SLOTS:
        raise InputError(f"{where}: {text[:40]!r} slots", expected=f"1 to {_MOST_SLOTS} slots")
    return int(text)


def _refuse_twice(hosts: Sequence[Host], where: str) -> None:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"{where} names {name} twice",
                expected="each node once, with all its slots",
                next=f"{name} slots={sum(h.slots or 1 for h in hosts if h.name == name)}",
            )
