"""Errors of NVLinks and of GPU memory, through NVML (meanings: the NVML API reference).

The library is asked in a process of its own, as for the facts (`wirespeed.world.gpus`): one that hangs
in the driver cannot even be killed, and must not keep a rank from ending.
"""

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from wirespeed.world.counters.found import Found
from wirespeed.world.nvlink import error_counters

__all__ = ["KINDS", "read_gpus"]

KINDS = ("GPU", "NVLink")
"""First words of the devices."""
_READER = (sys.executable, "-P", "-m", "wirespeed.world.counters.nvml")
_LONGEST_S = 60
_NOT_HERE = frozenset({2, 3, 4, 6, 9, 12, 13, 22, 25})
"""Codes that tell of no fault: no such argument, not supported, no permission, not found, no driver,
no library, no such function, vGPU, version."""


def read_gpus(found: Found, nvml: Any = None) -> None:
    """Every GPU of the node by the library's index. `nvml`: asked in this process (tests)."""
    if nvml is not None:
        _ask(found, nvml)
    elif _is_here():
        _ask_apart(found)


def _is_here() -> bool:
    """Loading the library asks no driver; without it, and without pynvml, there is nothing to start."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return find_spec("pynvml") is not None


def _ask_apart(found: Found) -> None:
    try:
        done = subprocess.run(
            _READER, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=False
        )
        told = json.loads(done.stdout or b"{}")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        told = {"unread": dict.fromkeys(KINDS, f"asking NVML: {type(error).__name__}")}
    if not told:
        told = {"unread": dict.fromkeys(KINDS, "the process that asked NVML ended early")}
    for device, values in told.get("values", {}).items():
        found.keep(device, values)
    for what, why in told.get("unread", {}).items():
        found.miss(what, why)


def _ask(found: Found, nvml: Any) -> None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        _miss(found, KINDS, error)
        return
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            _read_gpu(found, nvml, index)
    except nvml.NVMLError as error:
        _miss(found, KINDS, error)
    finally:
        nvml.nvmlShutdown()


def _read_gpu(found: Found, nvml: Any, index: int) -> None:
    memory, links = f"GPU {index}", f"NVLink GPU {index}"
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        _miss(found, (memory, links), error)
        return
    try:
        counts = _flat(error_counters(nvml, gpu))
    except nvml.NVMLError as error:
        _miss(found, (links,), error)
    else:
        if counts:
            found.keep(links, counts)
    try:
        count = nvml.nvmlDeviceGetTotalEccErrors(
            gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError as error:
        _miss(found, (memory,), error)
    else:
        found.keep(memory, {"ECC uncorrectable": int(count)})


def _flat(links: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """`link 3 replay` …"""
    return {
        f"link {link} {kind}": count
        for link, kinds in links.items()
        for kind, count in kinds.items()
    }


def _miss(found: Found, devices: tuple[str, ...], error: Any) -> None:
    """Note an error, unless it says that there is no such thing here."""
    if getattr(error, "value", None) not in _NOT_HERE:
        for device in devices:
            found.miss(device, f"NVML: {error}")


def _main() -> None:
    import pynvml

    found = Found()
    _ask(found, pynvml)
    values, unread = found.copy()
    sys.stdout.write(json.dumps({"values": values, "unread": unread}))


if __name__ == "__main__":
    _main()
