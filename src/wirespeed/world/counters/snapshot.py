"""All counters of this node at one time, and what has grown between two times.

Reading takes milliseconds, with GPUs what NVML takes to start; it is bounded, since a driver that waits
for a dead device does not answer.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wirespeed.world.counters.found import Found, Values
from wirespeed.world.counters.infiniband import LARGEST, read_ports
from wirespeed.world.counters.interfaces import own_addresses, read_interfaces
from wirespeed.world.counters.nvml import KINDS, read_gpus
from wirespeed.world.counters.tcp import read_tcp

__all__ = ["BOUND_S", "Snapshot", "added", "growth", "take"]

BOUND_S = 15.0
"""Starting NVML without nvidia-persistenced takes some seconds on nodes of 8 GPUs."""
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Snapshot:
    at: float
    """Seconds of the monotonic clock."""
    values: Values
    unread: dict[str, str]
    """What could not be read, and why."""


def take(
    root: Path = _ROOT,
    *,
    nvml: Any = None,
    own: Callable[[], Mapping[str, str]] = own_addresses,
    bound_s: float = BOUND_S,
) -> Snapshot:
    """Read every source, for `bound_s` seconds at most; nothing raises.

    root: where /sys and /proc are; `nvml` and `own` stand in for pynvml and for the interfaces of this
    network namespace, in tests.
    """
    found = Found()
    sources: dict[tuple[str, ...], Callable[[], None]] = {
        ("TCP",): partial(read_tcp, found, root),
        ("RDMA",): partial(read_ports, found, root),
        ("interface",): lambda: read_interfaces(found, root, own()),
        KINDS: partial(read_gpus, found, nvml),
    }
    left = list(sources)
    # Not joined after its time: a thread that waits for a device cannot be ended.
    reader = threading.Thread(target=_read, args=(found, sources, left), daemon=True)
    reader.start()
    reader.join(bound_s)
    values, unread = found.copy()
    for kinds in list(left):
        unread |= dict.fromkeys(kinds, f"reading took longer than {bound_s:g} s")
    return Snapshot(time.monotonic(), values, unread)


def _read(
    found: Found, sources: dict[tuple[str, ...], Callable[[], None]], left: list[tuple[str, ...]]
) -> None:
    """One after the other; `left` loses those that are done."""
    for kinds, read in sources.items():
        try:
            read()
        except Exception as error:  # facts may be missing, the run goes on: this is only beside it
            for kind in kinds:
                found.miss(kind, f"{type(error).__name__}: {error}")
        left.remove(kinds)


def growth(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What a node tells (`NodeFacts.counters`), of what has happened in between.

    Keys: `seconds`; `watched`, how many counters of a device were read both times; `grown`, by device
    and counter; `reset`, those that are less than before; `full`, those that cannot count on;
    `came` and `gone`, devices; `unread`, with the reason.
    """
    told: dict[str, Any] = {"seconds": after.at - before.at, "unread": after.unread}
    told["came"] = sorted(set(after.values) - set(before.values))
    told["gone"] = sorted(set(before.values) - set(after.values))
    watched, grown, reset, full = {}, {}, [], []
    for device in sorted(set(before.values) & set(after.values)):
        old, new = before.values[device], after.values[device]
        both = {name: new[name] - old[name] for name in new if name in old}
        if both:
            watched[device] = len(both)
        if more := {name: count for name, count in both.items() if count > 0}:
            grown[device] = more
        reset += [f"{device}: {name}" for name, count in both.items() if count < 0]
        full += [
            f"{device}: {name}" for name in both if LARGEST.get(name) == old[name] == new[name]
        ]
    return told | {"watched": watched, "grown": grown, "reset": reset, "full": full}


def added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """What two stretches of time that follow each other come to, as `growth` gives them."""
    grown = {device: dict(counts) for device, counts in first["grown"].items()}
    for device, counts in second["grown"].items():
        known = grown.setdefault(device, {})
        for name, count in counts.items():
            known[name] = known.get(name, 0) + count
    lists = {
        name: sorted({*first[name], *second[name]}) for name in ("reset", "full", "came", "gone")
    }
    return {
        **lists,
        "seconds": first["seconds"] + second["seconds"],
        "watched": {**first["watched"], **second["watched"]},
        "unread": {**first["unread"], **second["unread"]},
        "grown": grown,
    }
