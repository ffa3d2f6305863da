"""Reading what may not be there: of facts a value, or the reason why it is unknown; nothing raises.

Files that somebody else may have put there (`opened`, `read_whole`): regular ones, within bounds.
"""

import errno
import os
import re
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.model.node_facts import FACT_NAMES, Facts
from wirespeed.model.units import format_size

PIPE_S = 10.0
"""Seconds that whoever writes to a pipe has for all of it."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}

_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Notes:
    """What was found on a node and what could not be, by name, while it is being gathered."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        """Where /sys, /proc, /etc and /dev are looked for; tests put payloads elsewhere."""
        self.facts = Facts()
        self.unknown: dict[str, str] = {}

    def keep(self, name: str, value: Any, why_not: str = "it could not be read") -> None:
        """Note a fact by its name in JSON; None means unknown, with `why_not` as the reason."""
        if value is None:
            self.unknown[name] = why_not
        else:
            self.facts = replace(self.facts, **{FACT_NAMES[name]: value})

    def text(self, name: str, path: str) -> None:
        """Note the text of a file below the root as a fact."""
        try:
            self.keep(name, (self.root / path).read_text(errors="replace").strip())
        except OSError as error:
            self.unknown[name] = f"/{path}: {error.strerror}"


def read_text(path: Path) -> str | None:
    """The stripped text of a small file, or None."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The whole number in a file, or None: not there, not readable, or a word such as `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def read_fields(path: Path, separator: str = ":") -> dict[str, str]:
    """Names and values of lines such as `name: value`, the first of each; none if unreadable."""
    found: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(separator)
        found.setdefault(name.strip(), value.strip())
    return found


def numa_node(device: Path) -> int | None:
    """Of a device in sysfs; None where it is on none."""
    node = read_number(device / "numa_node")
    return node if node is not None and node >= 0 else None


def pci_address(device: Path) -> str | None:
    """The address of the PCI device that sysfs's `device` is, or (virtio) is on; None if neither."""
    path = device.resolve()
    names = (path.name, *(parent.name for parent in path.parents))
    return next((name for name in names if _PCI.fullmatch(name)), None)


def numbered(folder: Path, prefix: str) -> list[Path]:
    """`cpu0`, `cpu1`, `cpu10` … of a folder in the order of their numbers; nothing if unreadable."""
    try:
        found = [path for path in folder.iterdir() if path.name.removeprefix(prefix).isdecimal()]
    except OSError:
        return []
    found = [path for path in found if path.name.startswith(prefix)]
    return sorted(found, key=lambda path: int(path.name.removeprefix(prefix)))


@contextmanager
def opened(path: Path, *, pipes: bool = False, links: bool = True) -> Iterator[int]:
    """A descriptor of a regular file, which never blocks; OSError for anything else.

    pipes: as `<(command)` of a shell makes one. links: whether `path` itself may be a symbolic link.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags | (0 if links else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno != errno.ELOOP or links:
            raise
        raise OSError(errno.ELOOP, "it is a link to another place", str(path)) from None
    try:
        kind = stat.S_IFMT(os.fstat(handle).st_mode)
        if kind != stat.S_IFREG and not (pipes and kind == stat.S_IFIFO):
            raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'no file')}", str(path))
        yield handle
    finally:
        os.close(handle)


def read_whole(path: Path, most: int, *, pipes: bool = False, links: bool = True) -> bytes:
    """All bytes of a file as `opened` takes it; OSError where there are more than `most` of them."""
    parts: list[bytes] = []
    size, end = 0, time.monotonic() + PIPE_S
    with opened(path, pipes=pipes, links=links) as handle:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        while size <= most:
            if not waiting.poll(max(end - time.monotonic(), 0) * 1000):
                raise OSError(errno.ETIMEDOUT, f"its writer took more than {PIPE_S:g} s", str(path))
            part = os.read(handle, min(most + 1 - size, 1 << 20))
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
    raise OSError(errno.EFBIG, f"it is larger than {format_size(most)}", str(path))
