"""NVLinks of a GPU and its place in an NVSwitch fabric, through NVML.

Meanings: the NVML API reference, NvLink Methods and Fabric (nvmlGpuFabricInfoV_t); bits of the
health mask and numbers of fields as in nvml.h. No call needs a context or wakes a GPU.
"""

import ctypes
from collections import Counter
from typing import Any

Counts = dict[str, dict[str, int]]
"""Errors by link and kind: `{"3": {"crc flit": 17}}`."""

_MOST_LINKS = 64
"""Hopper and Blackwell have 18, later GPUs 36; asking for a link that is not there ends the list."""
_STATES = ("not supported", "not started", "in progress", "completed")
_HEALTH = {
    "degraded bandwidth": (0, 0x3),
    "route recovery in progress": (2, 0x3),
    "route unhealthy": (4, 0x3),
    "access timeout recovery": (6, 0x3),
}
"""Shift and mask of health fields of which 1 means yes (0: not supported, 2: no)."""
_CONFIGURATION = (8, 0xF)
_WRONG = (
    "",
    "",
    "incorrect system GUID",
    "incorrect chassis serial number",
    "no partition",
    "insufficient NVLinks",
    "incompatible GPU firmware",
    "invalid location",
    "invalid GPU state",
)
"""Of the field that tells a wrong configuration, by number: 0 and 1 mean none."""
_SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH."""
_COUNTERS = ("replay", "recovery", "crc flit", "crc data", "ecc data")
"""nvmlNvLinkErrorCounter_t, of GPUs up to Hopper."""
_FIELDS = {
    206: "malformed packets",
    207: "buffer overruns",
    208: "receive errors",
    210: "general receive errors",
    211: "local link integrity errors",
    214: "failed recoveries",
    219: "effective errors",
}
"""NVML_FI_DEV_NVLINK_COUNT_… of Blackwell and later, which do not answer the older call. Those that
grow on a healthy link (symbols that its error correction mended) are left out."""


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
    if wrong < 2:
        return found
    return [
        *found,
        f"incorrect configuration ({_WRONG[wrong] if wrong < len(_WRONG) else wrong})",
    ]


def link_states(nvml: Any, gpu: Any) -> list[bool]:
    """Whether each NVLink is active, by number. Raises NVMLError where the GPU has none."""
    states = [bool(nvml.nvmlDeviceGetNvLinkState(gpu, 0))]
    for link in range(1, _MOST_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(gpu, link)))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_INVALID_ARGUMENT:
                break
            states.append(_of_silent(nvml, error))
    return states


def _of_silent(nvml: Any, error: Exception) -> bool:
    """A link that the board does not wire is not supported, and counts as inactive."""
    if getattr(error, "value", None) == nvml.NVML_ERROR_NOT_SUPPORTED:
        return False
    raise error


def link_ends(nvml: Any, gpu: Any) -> dict[str, int]:
    """Active links by what is at their other end: a PCI address, `NVSwitch` or `unknown`."""
    states = link_states(nvml, gpu)
    found = Counter(_end(nvml, gpu, link) for link, active in enumerate(states) if active)
    return dict(sorted(found.items()))


def _end(nvml: Any, gpu: Any, link: int) -> str:
    try:
        if int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link)) == _SWITCH:
            return "NVSwitch"
    except (nvml.NVMLError, AttributeError):
        pass  # drivers before 515 do not tell: the address does, where it is a GPU's
    try:
        told = nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId
    except (nvml.NVMLError, AttributeError):
        return "unknown"
    address = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    return address.lower()[-12:] or "unknown"


def error_counters(nvml: Any, gpu: Any) -> Counts:
    """Errors since the driver was loaded, of active links. Raises NVMLError where none is counted."""
    active = [link for link, on in enumerate(link_states(nvml, gpu)) if on]
    counts = {}
    for link in active:
        try:
            counts[str(link)] = {
                name: int(nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, number))
                for number, name in enumerate(_COUNTERS)
            }
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                raise
            counts[str(link)] = _fields(nvml, gpu, link)
    return counts


def _fields(nvml: Any, gpu: Any, link: int) -> dict[str, int]:
    """The counters that the GPU has of `_FIELDS`; `scopeId` is the link's number."""
    values = nvml.nvmlDeviceGetFieldValues(gpu, [(field, link) for field in _FIELDS])
    return {
        _FIELDS[one.fieldId]: int(one.value.ullVal)
        for one in values
        if one.nvmlReturn == nvml.NVML_SUCCESS
    }


def grown(before: Counts, after: Counts) -> Counts:
    """By how much which counter grew between two readings; what did not grow is absent."""
    both = {link: (kinds, after[link]) for link, kinds in before.items() if link in after}
    return counted(
        {
            link: {kind: now[kind] - was for kind, was in old.items() if kind in now}
            for link, (old, now) in both.items()
        }
    )


def counted(counts: Counts) -> Counts:
    """Without what is zero."""
    some = {
        link: {kind: count for kind, count in kinds.items() if count > 0}
        for link, kinds in counts.items()
    }
    return {link: kinds for link, kinds in some.items() if kinds}
