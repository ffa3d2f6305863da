"""Reading facts that may not be there: a value, or the reason why it is unknown. Nothing raises."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["Notes", "numbered", "pci_address", "read_number", "read_text"]

_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Notes:
    """What was found on a node and what could not be, by name, while it is being gathered."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        """Where /sys, /proc, /etc and /dev are looked for; tests put payloads elsewhere."""
        self.facts: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}

    def keep(self, name: str, value: Any, why_not: str = "it could not be read") -> None:
        """Note a fact; None means unknown, with `why_not` as the reason."""
        if value is None:
            self.unknown[name] = why_not
        else:
            self.facts[name] = value

    def text(self, name: str, path: str) -> None:
        """Note the text of a file below the root as a fact."""
        try:
            self.facts[name] = (self.root / path).read_text(errors="replace").strip()
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


def pci_address(device: Path) -> str | None:
    """The address of the PCI device that sysfs's `device` is, or (virtio) is on; None if neither."""
    path = device.resolve()
    names = (path.name, *(parent.name for parent in path.parents))
    return next((name for name in names if _PCI.fullmatch(name)), None)


def numbered(folder: Path, prefix: str) -> Iterable[Path]:
    """`cpu0`, `cpu1`, `cpu10` … of a folder in the order of their numbers; nothing if unreadable."""
    try:
        found = [path for path in folder.iterdir() if path.name.removeprefix(prefix).isdecimal()]
    except OSError:
        return []
    found = [path for path in found if path.name.startswith(prefix)]
    return sorted(found, key=lambda path: int(path.name.removeprefix(prefix)))
