"""GPUs through NVIDIA's management library (nvidia-ml-py, the `gpu` extra).

The library is asked, not CUDA: no context is made and no GPU is woken. Meanings are those of the
NVML API reference (https://docs.nvidia.com/deploy/nvml-api/).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wirespeed.world.nvlink import fabric, link_states
from wirespeed.world.reading import Notes, read_number

__all__ = ["gather_gpus"]

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

_Read = Callable[[Any, Any], Any]
_READS: dict[str, _Read] = {
    "name": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "uuid": lambda nvml, gpu: _text(nvml.nvmlDeviceGetUUID(gpu)),
    "pci": lambda nvml, gpu: _pci(_text(nvml.nvmlDeviceGetPciInfo(gpu).busId)),
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
    "clock_sm_MHz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clock_sm_max_MHz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "slowed_by": lambda nvml, gpu: _reasons(_clock_events(nvml, gpu)),
    "mig": lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    "pages_pending": lambda nvml, gpu: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu)),
    "remapped_rows": lambda nvml, gpu: _rows(nvml.nvmlDeviceGetRemappedRows(gpu)),
    "fabric": fabric,
    "nvlinks": link_states,
    "power_limit_W": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1000,
}
"""What is asked of each GPU. PCIe figures: the link as it is now and as GPU and slot would allow;
an idle GPU may lower the generation. ECC errors: uncorrected, since the driver was loaded.
`pages_pending` is of GPUs before Ampere, `remapped_rows` of later ones."""


def gather_gpus(notes: Notes, nvml: Any = None) -> tuple[dict[str, Any], ...]:
    """Every GPU of the node, whatever CUDA_VISIBLE_DEVICES says, by the library's index.

    Keys: `index`, those of `_READS` that the GPU answers, and `numa_node`. Notes `gpu.count`,
    `gpu.driver` and `gpu.cuda`. `nvml` is the pynvml module unless given.
    """
    library = nvml or _library(notes)
    if library is None:
        return ()
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        notes.unknown["gpus"] = f"NVML: {error}"
        return ()
    try:
        return tuple(_gather(notes, library))
    except library.NVMLError as error:
        notes.unknown["gpus"] = f"NVML: {error}"
        return ()
    finally:
        library.nvmlShutdown()


def _library(notes: Notes) -> Any:
    try:
        import pynvml
    except ImportError:
        notes.unknown["gpus"] = "nvidia-ml-py is not installed: pip install 'wirespeed[gpu]'"
        return None
    return pynvml


def _gather(notes: Notes, nvml: Any) -> Iterator[dict[str, Any]]:
    count = nvml.nvmlDeviceGetCount()
    notes.facts["gpu.count"] = count
    notes.keep("gpu.driver", _asked(notes, "gpu.driver", nvml, _driver))
    notes.keep("gpu.cuda", _asked(notes, "gpu.cuda", nvml, _cuda))
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:  # a GPU that is lost makes the others no less known
            notes.unknown[f"gpu.{index}"] = f"NVML: {error}"
            continue
        yield _gpu(notes, nvml, index, handle)


def _gpu(notes: Notes, nvml: Any, index: int, handle: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index}
    for name, read in _READS.items():
        value = _asked(notes, f"gpu.{index}.{name}", nvml, read, handle)
        if value is not None:
            found[name] = value
    node = read_number(notes.root / "sys/bus/pci/devices" / found.get("pci", "") / "numa_node")
    if node is not None and node >= 0:
        found["numa_node"] = node
    return found


def _asked(notes: Notes, name: str, nvml: Any, read: Callable[..., Any], *handle: Any) -> Any:
    """What `read` gives, or None with the reason noted: not supported here, or too old a library."""
    try:
        return read(nvml, *handle)
    except nvml.NVMLError as error:
        notes.unknown[name] = f"NVML: {error}"
    except AttributeError as error:
        notes.unknown[name] = f"this nvidia-ml-py is too old: {error}"
    return None


def _driver(nvml: Any) -> str:
    return _text(nvml.nvmlSystemGetDriverVersion())


def _cuda(nvml: Any) -> str:
    """The newest CUDA that the driver can run: 12080 is 12.8."""
    version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    return f"{version // 1000}.{version % 1000 // 10}"


def _clock_events(nvml: Any, gpu: Any) -> int:
    """The call was renamed; an older module or driver has the older name only."""
    new = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((new or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(gpu))


def _reasons(bits: int) -> list[str]:
    return [text for bit, text in _REASONS.items() if bits & bit]


def _rows(found: Sequence[int]) -> dict[str, int]:
    """Rows remapped after correctable and uncorrectable errors; 1 where one waits or has failed."""
    return dict(zip(("corrected", "uncorrected", "pending", "failure"), found, strict=True))


def _text(value: str | bytes) -> str:
    """Modules before 11.5 gave bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pci(bus_id: str) -> str:
    """`0000:1b:00.0`, as sysfs spells NVML's `00000000:1B:00.0`."""
    return bus_id.lower()[-12:]
