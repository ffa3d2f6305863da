"""Errors of NVLinks and of GPU memory, through NVML (meanings: the NVML API reference)."""

from typing import Any

from wirespeed.world.counters.found import Found

__all__ = ["read_gpus"]

_MOST_LINKS = 64
"""Asking for a link that is not there ends the list."""
_NOT_HERE = (2, 3)
"""NVML_ERROR_INVALID_ARGUMENT (no such link), NVML_ERROR_NOT_SUPPORTED."""
_LINK_ERRORS = {0: "replay", 1: "recovery", 2: "CRC of flits", 3: "CRC of data", 4: "ECC"}
"""nvmlNvLinkErrorCounter_t."""


def read_gpus(found: Found, nvml: Any = None) -> None:
    """Every GPU of the node by the library's index. `nvml`: the pynvml module unless given."""
    nvml = nvml or _library()
    if nvml is None:
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if "not found" not in str(error).lower():  # no driver: there is no GPU to read
            found.miss("GPUs", f"NVML: {error}")
        return
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            _read_gpu(found, nvml, index)
    except nvml.NVMLError as error:
        found.miss("GPUs", f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def _read_gpu(found: Found, nvml: Any, index: int) -> None:
    name = f"GPU {index}"
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        found.miss(name, f"NVML: {error}")
        return
    if links := _links(found, nvml, gpu, f"NVLink GPU {index}"):
        found.keep(f"NVLink GPU {index}", links)
    try:
        count = nvml.nvmlDeviceGetTotalEccErrors(
            gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError as error:
        _miss(found, name, error)
    else:
        found.keep(name, {"ECC uncorrectable": int(count)})


def _links(found: Found, nvml: Any, gpu: Any, name: str) -> dict[str, int]:
    """Errors by link: `link 3 replay`. Some GPUs do not know every kind."""
    values: dict[str, int] = {}
    for link in range(_MOST_LINKS):
        before = len(values)
        for kind, text in _LINK_ERRORS.items():
            try:
                count = nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, kind)
            except nvml.NVMLError as error:
                if not link and not kind:
                    _miss(found, name, error)
                continue
            values[f"link {link} {text}"] = int(count)
        if len(values) == before:
            break
    return values


def _miss(found: Found, name: str, error: Any) -> None:
    """Note an error, unless it says that this GPU has no such thing."""
    if getattr(error, "value", None) not in _NOT_HERE:
        found.miss(name, f"NVML: {error}")
