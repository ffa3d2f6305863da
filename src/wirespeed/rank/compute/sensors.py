"""Clock, temperature and power of a device while it works, as far as this machine tells them.

GPUs: NVML (nvidia-ml-py), by UUID. CPUs: cpufreq, hwmon and RAPL of Linux's sysfs; virtual machines have
none of them, and energy counters are for root. All of it is read in a thread of its own: a driver that
hangs holds up nobody.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Any

from wirespeed.node.reading import read_number, read_text
from wirespeed.rank.compute.units import Unit

_EVERY_S = 0.1
_END_S, _NAME_S = 0.5, 10.0
_ROOT = Path("/")
_MOST_CPUS = 8
"""Whose clocks are read."""
_CHIPS = ("coretemp", "k10temp", "zenpower")


@dataclass(slots=True)
class Felt:
    """What was read meanwhile; lists are empty where nothing tells."""

    name: str = ""
    """Of a GPU as NVML numbers it: `GPU5`."""
    clock_MHz: list[float] = field(default_factory=list)
    temperature_C: list[float] = field(default_factory=list)
    power_W: list[float] = field(default_factory=list)
    slowed_by: set[str] = field(default_factory=set)

    def told(self) -> dict[str, Any]:
        """As a `ComputeRate` has it."""
        found: dict[str, Any] = {"slowed_by": tuple(sorted(self.slowed_by))}
        for name, of, values in (
            ("clock_MHz", median, self.clock_MHz),
            ("temperature_C", max, self.temperature_C),
            ("power_W", fmean, self.power_W),
        ):
            if values:
                found[name] = round(float(of(list(values))), 1)
        return found


Read = Callable[[Felt], None]


class Sensors:
    """Of one device; `watching` fills what comes out of its `with`."""

    def __init__(self, unit: Unit, uuid: str, root: Path = _ROOT) -> None:
        self._unit, self._uuid, self._root = unit, uuid, root
        self._reader: Read | None = None
        self._stuck = False
        self._looked = threading.Event()
        self.name = unit.name

    def settle_name(self) -> None:
        """Of a GPU NVML's, if it answers in time: CUDA's number is another one."""
        if self._unit.kind == "gpu":
            with self.watching():
                self.looked(_NAME_S)

    def looked(self, within_s: float) -> bool:
        """Whether the sensors were read, or could not be, by then."""
        return self._looked.wait(within_s)

    @contextmanager
    def watching(self) -> Iterator[Felt]:
        felt, over = Felt(), threading.Event()
        thread = threading.Thread(target=self._watch, args=(felt, over), daemon=True)
        if not self._stuck:
            thread.start()
        try:
            yield felt
        finally:
            over.set()
            if not self._stuck:
                thread.join(_END_S)
                self._stuck = thread.is_alive()
            self.name = felt.name or self.name

    def _watch(self, felt: Felt, over: threading.Event) -> None:
        with suppress(Exception):  # of NVML whatever it likes: then there are no figures
            self._reader = self._reader or self._opened()
            while True:
                self._reader(felt)
                self._looked.set()
                if over.wait(_EVERY_S):
                    return
        self._looked.set()

    def _opened(self) -> Read:
        if self._unit.kind == "cpu":
            return _CpuFiles(self._unit.cpus, self._root).read
        return _nvml_reader(self._uuid)


class _CpuFiles:
    def __init__(self, cpus: tuple[int, ...], root: Path) -> None:
        folder = root / "sys/devices/system/cpu"
        self._clocks = [folder / f"cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus[:_MOST_CPUS]]
        chips = [
            chip for chip in root.glob("sys/class/hwmon/*") if read_text(chip / "name") in _CHIPS
        ]
        self._heat = [file for chip in chips for file in chip.glob("temp*_input")]
        self._energy = sorted(root.glob("sys/class/powercap/intel-rapl:[0-9]/energy_uj"))
        self._last: tuple[float, int] | None = None

    def read(self, felt: Felt) -> None:
        if clocks := _numbers(self._clocks):
            felt.clock_MHz.append(fmean(clocks) / 1e3)
        if heat := _numbers(self._heat):
            felt.temperature_C.append(max(heat) / 1e3)
        if energy := _numbers(self._energy):
            now, before = (time.monotonic(), sum(energy)), self._last
            self._last = now
            if before is not None and now[1] > before[1] and now[0] - before[0] < 10 * _EVERY_S:
                felt.power_W.append((now[1] - before[1]) / 1e6 / (now[0] - before[0]))


def _numbers(files: list[Path]) -> list[int]:
    return [number for file in files if (number := read_number(file)) is not None]


def _power_mW(nvml: Any, gpu: Any) -> float:
    """Of this moment where the driver tells it: what it usually tells is the mean of a second."""
    field = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", None)
    with suppress(nvml.NVMLError):
        told = nvml.nvmlDeviceGetFieldValues(gpu, [field])[0] if field is not None else None
        if told is not None and told.nvmlReturn == nvml.NVML_SUCCESS and told.value.uiVal > 0:
            return float(told.value.uiVal)
    return float(nvml.nvmlDeviceGetPowerUsage(gpu))


def _nvml_reader(uuid: str) -> Read:
    """Raises whatever NVML does where it is not there or does not know that GPU."""
    if not uuid or find_spec("pynvml") is None:
        raise LookupError("no NVML")
    import pynvml as nvml

    from wirespeed.node.gpu_reader import slowed_by

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
    index = nvml.nvmlDeviceGetIndex(gpu)

    def read(felt: Felt) -> None:
        felt.name = f"GPU{index}"
        with suppress(nvml.NVMLError):
            felt.clock_MHz.append(float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)))
        with suppress(nvml.NVMLError):
            heat = nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
            felt.temperature_C.append(float(heat))
        with suppress(nvml.NVMLError):
            felt.power_W.append(_power_mW(nvml, gpu) / 1e3)
        with suppress(nvml.NVMLError):
            felt.slowed_by.update(slowed_by(nvml, gpu))

    return read
