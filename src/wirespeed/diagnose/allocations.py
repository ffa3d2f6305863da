"""What an allocator of GPU memory says when it refuses, read from the numbers of its own line.

The messages of torch's caching allocators since 1.4, for CUDA, HIP, XPU and those made after them:

    Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity; 20.10 GiB already allocated;
    1.20 GiB free; 21.00 GiB reserved in total by PyTorch)
    Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free.
    Process 4121 has 70.00 GiB memory in use. Including non-PyTorch memory, this process has 8.00 GiB
    memory in use. 40.00 GiB allowed; Of the allocated memory 7.00 GiB is allocated by PyTorch, and
    512.00 MiB is reserved by PyTorch but unallocated.
"""

import re
from dataclasses import dataclass
from typing import Literal

Reason = Literal["cap", "larger", "others", "fragments", "free", "full", "unknown"]

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = r"([\d.]+ (?:bytes|[KMGT]?i?B))"
_FIELDS = {
    "asked": re.compile(rf"tried to allocate {_SIZE}", re.IGNORECASE),
    "total": re.compile(rf"total capac\w+ of {_SIZE}|{_SIZE} total capacity"),
    "free": re.compile(rf"of which {_SIZE} is free|[;(] ?{_SIZE} free"),
    "allowed": re.compile(rf"{_SIZE} allowed"),
    "own": re.compile(rf"this process has {_SIZE} memory in use"),
    "allocated": re.compile(rf"{_SIZE} (?:is|already) allocated"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved": re.compile(rf"{_SIZE} (?:reserved in total|cached)"),
}
_PROCESS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_GPU = re.compile(r"\b(?:GPU|XPU|NPU) (\d+)\b")
_SETTING = re.compile(r"\bPYTORCH_\w*ALLOC_CONF\b")

_CONTEXT = 2**29
"""Bytes that a CUDA context takes beside torch's pool, where the line does not say."""
_NOTABLE_SHARE = 0.05
"""Share of the GPU below which unallocated memory is the ordinary rest of a full pool."""
_OTHERS_SHARE = 0.25
"""Share of the GPU from which other processes, and not this one, are what fills it."""
_OWN_SHARE = 0.5
"""Share of the GPU that this process must hold to be what fills it."""
_FULL_SHARE = 0.9
"""Share of the GPU that this process must reach where the line does not say how much is free."""
_ROUNDING = 1.1
"""The allocator asks the driver for somewhat more than the program asked for."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One refused allocation: sizes in bytes, None where the line does not say."""

    gpu: str
    asked: int | None
    total: int | None
    free: int | None
    allowed: int | None
    allocated: int | None
    unallocated: int | None
    others: int | None
    """Bytes of this GPU that other processes hold, as far as the line tells."""
    processes: int
    """How many other processes the line lists."""
    setting: str

    @property
    def reason(self) -> Reason:
        """Return why it was refused."""
        if self.asked is None or self.total is None:
            return "unknown"
        if self.asked > self.total:
            return "larger"
        if self.free is not None and self.free >= self.asked * _ROUNDING:
            return "cap" if self._is_over_cap else "free"
        if self.allocated is None:
            return "unknown"
        if self.others is not None and self.others >= self.total * _OTHERS_SHARE:
            return "others"
        notable = self.total * _NOTABLE_SHARE
        unused = self.unallocated or 0
        if unused >= notable and unused + (self.free or 0) >= self.asked:
            return "fragments"
        return "full" if self._fills_gpu else "unknown"

    @property
    def _fills_gpu(self) -> bool:
        total = self.total or 0
        if self.free is not None and self.others is not None:
            return total - self.free - self.others >= total * _OWN_SHARE
        return self._pool + (self.asked or 0) > total * _FULL_SHARE

    @property
    def _pool(self) -> int:
        return (self.allocated or 0) + (self.unallocated or 0)

    @property
    def _is_over_cap(self) -> bool:
        needed = self._pool + (self.asked or 0) * _ROUNDING
        return self.allowed is not None and needed > self.allowed

    def words(self) -> dict[str, str]:
        """Return the sizes as text, by name, for the sentences of a rule."""
        sizes = {
            "asked": self.asked,
            "total": self.total,
            "free": self.free,
            "allowed": self.allowed,
            "allocated": self.allocated,
            "unallocated": self.unallocated,
            "others": self.others,
        }
        known = {name: format_size(size) for name, size in sizes.items() if size is not None}
        device = {"gpu": self.gpu} if self.gpu else {}
        listed = {"processes": str(self.processes)} if self.processes else {}
        return {**known, **device, **listed, "setting": self.setting}


def read_allocation(text: str) -> Allocation:
    """Return what the line of a refused allocation says."""
    sizes = {name: _size(pattern, text) for name, pattern in _FIELDS.items()}
    unallocated = sizes["unallocated"]
    if unallocated is None and sizes["reserved"] is not None and sizes["allocated"] is not None:
        unallocated = max(0, sizes["reserved"] - sizes["allocated"])
    pool = (sizes["allocated"] or 0) + (unallocated or 0)
    listed = [_bytes(found[1]) for found in _PROCESS.finditer(text)]
    # The driver does not count what a process holds in containers of some kinds: 0 bytes.
    own = max(sizes["own"], pool) if sizes["own"] is not None else None
    if own is None:
        # In a container the driver's process ids are the host's, so the own one is listed as another.
        own = min((size for size in listed if size >= pool > 0), default=None)
        if own is not None:
            listed.remove(own)
    others = None
    if sizes["total"] is not None and sizes["free"] is not None:
        held = sizes["total"] - sizes["free"]
        others = max(0, held - (own if own is not None else pool + _CONTEXT))
    gpu = _GPU.search(text)
    setting = _SETTING.search(text)
    return Allocation(
        gpu=gpu[1] if gpu else "",
        asked=sizes["asked"],
        total=sizes["total"],
        free=sizes["free"],
        allowed=sizes["allowed"],
        allocated=sizes["allocated"],
        unallocated=unallocated,
        others=others,
        processes=len(listed),
        setting=setting[0] if setting else "PYTORCH_CUDA_ALLOC_CONF",
    )


def format_size(size: int) -> str:
    """Return bytes as a person reads them: 1.50 GiB, 512 MiB."""
    if size >= 2**30:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.0f} MiB"


def _size(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    value = next((group for group in found.groups() if group), None) if found else None
    return _bytes(value) if value else None


def _bytes(size: str) -> int:
    number, unit = size.split()
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        return 0
