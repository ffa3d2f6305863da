"""Which GPUs CUDA shows to this process, by UUID: CUDA's numbers are not NVML's.

The driver API is asked (https://docs.nvidia.com/cuda/cuda-driver-api/): cuInit makes no context. Its
UUID of a device is that of the GPU, also where a MIG instance of it is shown.
"""

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Refused", "cuda_uuids", "mark_visible"]

NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE: also what an empty CUDA_VISIBLE_DEVICES gives."""


class Refused(Exception):
    """CUDA's driver answered with an error: its call and code are the arguments."""


def cuda_uuids(cuda: Any) -> list[str]:
    """UUIDs of the devices in CUDA's order, as NVML spells them. `cuda` is libcuda.so.1.

    Raises Refused, AttributeError where the library is too old.
    """
    if (code := cuda.cuInit(0)) == NO_DEVICE:
        return []
    _check("cuInit", code)
    count = ctypes.c_int()
    _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    return [_uuid(cuda, ordinal) for ordinal in range(count.value)]


def _uuid(cuda: Any, ordinal: int) -> str:
    device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    _check("cuDeviceGetUuid", cuda.cuDeviceGetUuid(found, device))
    text = bytes(found).hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _check(call: str, code: int) -> None:
    if code:
        raise Refused(call, code)


def mark_visible(
    gpus: Iterable[dict[str, Any]], seen: Iterable[str] | None, environ: Mapping[str, str]
) -> None:
    """Set `visible` of each GPU whose UUID is known; left out where it cannot be told.

    seen: UUIDs that CUDA shows. Where nobody could ask it, CUDA_VISIBLE_DEVICES tells: UUIDs or their
    beginnings, or numbers, which are NVML's where all GPUs are of one model or the order is the bus's.
    """
    known = [gpu for gpu in gpus if "uuid" in gpu]
    told = set(seen) if seen is not None else _told(known, environ)
    if told is not None:
        for gpu in known:
            gpu["visible"] = gpu["uuid"] in told


def _told(gpus: list[dict[str, Any]], environ: Mapping[str, str]) -> set[str] | None:
    """UUIDs by the variable alone; like CUDA, up to the first word that means no GPU."""
    words = environ.get("CUDA_VISIBLE_DEVICES")
    alike = len({gpu.get("name") for gpu in gpus}) == 1
    by_bus = alike or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if words is None:
        return None
    found: set[str] = set()
    for word in (part.strip() for part in words.split(",")):
        if word.startswith("MIG-") or (word.isdecimal() and not by_bus):
            return None
        which = [
            gpu["uuid"]
            for gpu in gpus
            if (word.isdecimal() and gpu["index"] == int(word))
            or (word.startswith("GPU-") and gpu["uuid"].lower().startswith(word.lower()))
        ]
        if len(which) != 1:
            break
        found.add(which[0])
    return found
