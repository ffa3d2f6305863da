"""What NVML tells of each GPU, line by line: the program that `wirespeed.node.gpus` starts.

No context is made and no GPU is woken; CUDA is asked last, and only which GPUs it shows. Meanings are
those of the NVML API reference (https://docs.nvidia.com/deploy/nvml-api/) with its NvLink Methods and
Fabric (nvmlGpuFabricInfoV_t), and of nvml.h.
"""

import ctypes
import json
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

WITHOUT_CUDA = "--without-cuda"
"""A word of the command line: starting CUDA takes longer than all of NVML."""
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
    return f"GPU-{uuid.UUID(bytes=bytes(found))}"


def _check(call: str, code: int) -> None:
    if code:
        raise Refused(call, code)


Counts = dict[str, dict[str, int]]
"""Errors by link and kind: `{"3": {"crc flit": 17}}`."""

_MOST_LINKS = 64
"""Hopper and Blackwell have 18, later GPUs 36; asking for a link that is not there ends the list."""
_STATES = ("not supported", "not started", "in progress", "completed")
_HEALTH = {
    "degraded bandwidth": 0,
    "route recovery in progress": 2,
    "route unhealthy": 4,
    "access timeout recovery": 6,
}
"""Lowest bit of health fields, two bits each, of which 1 means yes (0: not supported, 2: no)."""
_WRONG = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
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
    found = [name for name, shift in _HEALTH.items() if mask >> shift & 0x3 == 1]
    wrong = mask >> 8 & 0xF
    if wrong >= 2:
        found.append(f"incorrect configuration ({_WRONG.get(wrong, wrong)})")
    return found


def link_states(nvml: Any, gpu: Any) -> list[bool]:
    """Whether each NVLink is active, by number. Raises NVMLError where the GPU has none."""
    states = [bool(nvml.nvmlDeviceGetNvLinkState(gpu, 0))]
    for link in range(1, _MOST_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(gpu, link)))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_INVALID_ARGUMENT:
                break
            # A link that the board does not wire is not supported, and counts as inactive.
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                raise
            states.append(False)
    return states


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
        return _pci(nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId) or "unknown"
    except (nvml.NVMLError, AttributeError):
        return "unknown"


def error_counters(nvml: Any, gpu: Any) -> Counts:
    """Errors since the driver was loaded, of active links. Raises NVMLError where none is counted."""
    counts = {}
    for link in [number for number, active in enumerate(link_states(nvml, gpu)) if active]:
        try:
            counts[str(link)] = {
                name: int(nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, number))
                for number, name in enumerate(_COUNTERS)
            }
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                raise
            values = nvml.nvmlDeviceGetFieldValues(gpu, [(field, link) for field in _FIELDS])
            counts[str(link)] = {
                _FIELDS[one.fieldId]: int(one.value.ullVal)
                for one in values
                if one.nvmlReturn == nvml.NVML_SUCCESS
            }
    return counts


def grown(before: Counts, after: Counts) -> Counts:
    """By how much which counter grew between two readings; what did not grow is absent."""
    more = {
        link: {kind: now[kind] - was for kind, was in before[link].items() if kind in now}
        for link, now in after.items()
        if link in before
    }
    return counted(more)


def counted(counts: Counts) -> Counts:
    """Without what is zero."""
    some = {
        link: {kind: count for kind, count in kinds.items() if count > 0}
        for link, kinds in counts.items()
    }
    return {link: kinds for link, kinds in some.items() if kinds}


LONGEST_S = 240
"""After so long this process ends itself, should whoever started it be gone."""
PAUSE_S = 0.3
"""Between the two readings of NVLink's error counters."""

_NOT_HERE = frozenset({2, 3, 4, 6, 13, 21, 22, 24, 25, 26})
"""Codes that tell of no fault: no such argument, not supported (also: not of a GPU in MIG mode), no
permission, not found, no such function, no data, vGPU, frequency, version, deprecated."""
_SILENT = frozenset({10, 15})
"""Time-out and lost: further questions would cost time and give the same."""

_REASONS = {
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000010: "sync boost",
    0x0000000000000020: "thermal, by software",
    0x0000000000000040: "thermal, by hardware",
    0x0000000000000080: "power brake",
}
"""Bits of nvmlClocksEventReasons that lower the clocks of a busy GPU; idle and clocks that
somebody set are no fault and are left out."""
_IDLE, _SET = 0x1, 0x2

_OF_ALL: dict[str, Callable[[Any], str]] = {
    "gpu.driver": lambda nvml: _text(nvml.nvmlSystemGetDriverVersion()),
    "gpu.cuda": lambda nvml: _cuda(int(nvml.nvmlSystemGetCudaDriverVersion_v2())),
}
_Read = Callable[[Any, Any], Any]
_READS: dict[str, _Read] = {
    "name": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "uuid": lambda nvml, gpu: _text(nvml.nvmlDeviceGetUUID(gpu)),
    "pci": lambda nvml, gpu: _pci(nvml.nvmlDeviceGetPciInfo(gpu).busId),
    "mig": lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    "memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "pcie_gen": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_gen_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "pcie_width_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    "performance_state": lambda nvml, gpu: nvml.nvmlDeviceGetPerformanceState(gpu),
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "ecc_uncorrected": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
    "sram": lambda nvml, gpu: _sram(nvml, gpu),
    "clock_sm_MHz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clock_sm_max_MHz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "slowed_by": lambda nvml, gpu: slowed_by(nvml, gpu),
    "idle": lambda nvml, gpu: bool(_clock_events(nvml, gpu) & _IDLE),
    "clocks_set": lambda nvml, gpu: bool(_clock_events(nvml, gpu) & _SET),
    "temperature_C": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
        gpu, nvml.NVML_TEMPERATURE_GPU
    ),
    "slowdown_C": lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureThreshold(
        gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    ),
    "pages_pending": lambda nvml, gpu: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu)),
    "remapped_rows": lambda nvml, gpu: _rows(nvml.nvmlDeviceGetRemappedRows(gpu)),
    "fabric": fabric,
    "nvlinks": link_states,
    "nvlink_ends": link_ends,
    "nvlink_errors": error_counters,
    "power_limit_W": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1000,
}
"""What is asked of each GPU, who it is first. PCIe figures: the link as it is now and as GPU and slot
would allow; an idle GPU may lower the generation. ECC errors: uncorrected, since the driver was loaded.
`pages_pending` is of GPUs before Ampere, `remapped_rows` of later ones."""


def read_gpus(nvml: Any, pause_s: float = PAUSE_S) -> Iterator[dict[str, Any]]:
    """What there is, in this order: `start`, then `asking` and `gpu` for each GPU, then `grown`.

    `failed` in place of all, where the library cannot be started. Each line can be told before the
    next is asked for, so that whoever waits knows which GPU does not answer.
    """
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        yield {"failed": _error("nvmlInit", error)}
        return
    try:
        yield {"start": _start(nvml, count)}
        began = time.monotonic()
        handles: dict[int, Any] = {}
        errors: dict[int, dict[str, dict[str, int]]] = {}
        for index in range(count):
            yield {"asking": index}
            line = _one(nvml, index, handles)
            if "nvlink_errors" in line["gpu"]:
                errors[index] = line["gpu"]["nvlink_errors"]
                line["gpu"]["nvlink_errors"] = counted(errors[index])
            yield line
        if errors:
            time.sleep(max(0.0, began + pause_s - time.monotonic()))
        for index, before in errors.items():
            yield from _again(nvml, index, handles[index], before, began)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _start(nvml: Any, count: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"gpu.count": count}
    unknown = {}
    for name, read in _OF_ALL.items():
        try:
            facts[name] = read(nvml)
        except (nvml.NVMLError, AttributeError) as error:
            unknown[name] = f"NVML: {error}"
    return {"facts": facts, "unknown": unknown}


def _one(nvml: Any, index: int, handles: dict[int, Any]) -> dict[str, Any]:
    """All of a GPU: `gpu` with its `errors`, and why the rest of it is `unknown`."""
    try:
        handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_NO_PERMISSION:  # it is given to others
            return {"gpu": {}, "unknown": {f"gpu.{index}": f"NVML: {error}"}}
        return {"gpu": {"index": index, "errors": [_error("handle", error)]}, "unknown": {}}
    gpu: dict[str, Any] = {"index": index}
    unknown, errors, silent = {}, [], ""
    for name, read in _READS.items():
        key = f"gpu.{index}.{name}"
        if silent:
            unknown[key] = silent
            continue
        try:
            gpu[name] = read(nvml, handles[index])
        except nvml.NVMLError as error:
            unknown[key] = f"NVML: {error}"
            if error.value not in _NOT_HERE:
                errors.append(_error(name, error))
                silent = unknown[key] if error.value in _SILENT else ""
        except (AttributeError, TypeError, ValueError) as error:
            unknown[key] = f"this nvidia-ml-py is too old: {error}"
    if errors:
        gpu["errors"] = errors
    return {"gpu": gpu, "unknown": unknown}


def _again(
    nvml: Any, index: int, handle: Any, before: dict[str, dict[str, int]], began: float
) -> Iterator[dict[str, Any]]:
    """The counters of one GPU once more: how they grew, or how it was lost meanwhile."""
    try:
        more = grown(before, error_counters(nvml, handle))
    except nvml.NVMLError as error:
        if error.value not in _NOT_HERE:
            yield {"grown": index, "error": _error("nvlink_errors", error)}
        return
    if more:
        yield {"grown": index, "links": more, "seconds": round(time.monotonic() - began, 3)}


def _error(call: str, error: Any) -> dict[str, Any]:
    return {"call": call, "code": int(error.value), "text": str(error)}


def _cuda(version: int) -> str:
    """The newest CUDA that the driver can run: 12080 is 12.8."""
    return f"{version // 1000}.{version % 1000 // 10}"


def slowed_by(nvml: Any, gpu: Any) -> list[str]:
    """Why its clocks are lower than they may be. Raises NVMLError where it does not tell."""
    events = _clock_events(nvml, gpu)
    return [text for bit, text in _REASONS.items() if events & bit]


def _clock_events(nvml: Any, gpu: Any) -> int:
    """The call was renamed; an older module or driver has the older name only."""
    new = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((new or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(gpu))


def _rows(found: Sequence[int]) -> dict[str, int]:
    """Rows remapped after correctable and uncorrectable errors; 1 where one waits or has failed."""
    return dict(zip(("corrected", "uncorrected", "pending", "failure"), found, strict=True))


def _sram(nvml: Any, gpu: Any) -> dict[str, int]:
    """Uncorrected errors of on-chip memory since the driver was loaded; 1: above the threshold."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
    return {
        "uncorrected": int(status.volatileUncParity + status.volatileUncSecDed),
        "exceeded": int(status.bThresholdExceeded),
    }


def _text(value: str | bytes) -> str:
    """Modules before 11.5 gave bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pci(bus_id: str | bytes) -> str:
    """`0000:1b:00.0`, as sysfs spells NVML's `00000000:1B:00.0`."""
    return _text(bus_id).lower()[-12:]


def read_cuda(load: Callable[[str], Any] = ctypes.CDLL) -> dict[str, Any]:
    """The UUIDs of the devices that CUDA shows, its `code` where it fails, or `why` it tells nothing."""
    try:
        return {"uuids": cuda_uuids(load("libcuda.so.1"))}
    except Refused as error:
        call, code = error.args
        return {"call": call, "code": code}
    except (OSError, AttributeError) as error:
        return {"why": f"CUDA: {error}"}


def _main() -> None:
    signal.alarm(LONGEST_S)
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # as NVML would say it, without what importing its module takes
        _say({"failed": {"call": "nvmlInit", "code": 12, "text": "NVML Shared Library Not Found"}})
        return
    import pynvml

    counted = False
    for line in read_gpus(pynvml):
        _say(line)
        counted = counted or "gpu" in line
    if counted and WITHOUT_CUDA not in sys.argv:
        _say({"asking": "cuda"})
        _say({"cuda": read_cuda()})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
