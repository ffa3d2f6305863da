"""NVLinks of a GPU and its place in an NVSwitch fabric, through NVML.

Meanings: the NVML API reference, NvLink Methods and Fabric (nvmlGpuFabricInfoV_t); bits of the
health mask as in nvml.h. Both calls need no context and wake no GPU.
"""

import ctypes
from typing import Any

__all__ = ["fabric", "link_states"]

_MOST_LINKS = 18
"""Hopper and Blackwell have 18; asking for a link that is not there ends the list."""
_STATES = ("not supported", "not started", "in progress", "completed")
_HEALTH = {
    "degraded bandwidth": (0, 0x3),
    "route recovery in progress": (2, 0x3),
    "route unhealthy": (4, 0x3),
    "access timeout recovery": (6, 0x3),
}
"""Shift and mask of health fields of which 1 means yes (0: not supported, 2: no)."""
_CONFIGURATION = (8, 0xF)
"""Of the field that tells a wrong configuration: 0 and 1 mean none, other numbers which."""


def fabric(nvml: Any, gpu: Any) -> dict[str, Any]:
    """`state` of the registration with the fabric manager, its `status`, and `unhealthy` fields.

    Raises NVMLError where GPU or driver knows no fabric, AttributeError where the module is too old.
    """
    newer = getattr(nvml, "nvmlDeviceGetGpuFabricInfoV", None)
    info = nvml.c_nvmlGpuFabricInfoV_t() if newer else nvml.c_nvmlGpuFabricInfo_t()
    (newer or nvml.nvmlDeviceGetGpuFabricInfo)(gpu, ctypes.byref(info))
    state = int(info.state)
    return {
        "state": _STATES[state] if state < len(_STATES) else str(state),
        "status": int(info.status),
        "unhealthy": _unhealthy(int(getattr(info, "healthMask", 0))),
    }


def _unhealthy(mask: int) -> list[str]:
    found = [name for name, (shift, bits) in _HEALTH.items() if mask >> shift & bits == 1]
    shift, bits = _CONFIGURATION
    wrong = mask >> shift & bits
    return [*found, f"incorrect configuration ({wrong})"] if wrong > 1 else found


def link_states(nvml: Any, gpu: Any) -> list[bool]:
    """Whether each NVLink is active, by number. Raises NVMLError where the GPU has none."""
    states = [bool(nvml.nvmlDeviceGetNvLinkState(gpu, 0))]
    for link in range(1, _MOST_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(gpu, link)))
        except nvml.NVMLError:
            break
    return states
