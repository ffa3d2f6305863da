import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from wirespeed.world import gpus
from wirespeed.world.nvlink import fabric
from wirespeed.world.reading import Notes

HEALTH = "incorrect configuration (2)"


class NVMLError(Exception):
    pass


class FabricInfo(ctypes.Structure):
    """The fields of nvmlGpuFabricInfo_v2_t that are read, as the module declares them."""

    _fields_: ClassVar = [
        ("status", ctypes.c_uint),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
    ]


class FakeNvml:
    """NVML with one H100 that answers everything, one that answers little and one that is lost."""

    NVMLError = NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_CLOCK_SM = 1
    NVML_DEVICE_MIG_ENABLE = 1
    c_nvmlGpuFabricInfoV_t = FabricInfo
    open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 2:
            raise NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, gpu: int) -> str | bytes:
        return b"NVIDIA L4" if gpu else "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-{gpu}"

    def nvmlDeviceGetPciInfo(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{gpu + 0x1B:02X}:00.0")

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(total=85520809984)

    def nvmlDeviceGetEccMode(self, gpu: int) -> list[int]:
        if gpu:
            raise NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:
        assert (kind, counter) == (1, 0)
        return 2

    def nvmlDeviceGetClockInfo(self, gpu: int, kind: int) -> int:
        return 345

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: int) -> int:
        return 0x1 | 0x8 | 0x40

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetPowerManagementLimit(self, gpu: int) -> int:
        return 700000

    def nvmlDeviceGetPerformanceState(self, gpu: int) -> int:
        return 0

    def nvmlDeviceGetRetiredPagesPendingStatus(self, gpu: int) -> int:
        if not gpu:
            raise NVMLError("Not Supported")
        return 1

    def nvmlDeviceGetRemappedRows(self, gpu: int) -> tuple[int, int, int, int]:
        if gpu:
            raise NVMLError("Not Supported")
        return 3, 1, 1, 0

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if gpu:
            raise NVMLError("Not Supported")
        if link == 18:
            raise NVMLError("Invalid Argument")
        return int(link != 4)

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: int, info: Any) -> int:
        if gpu:
            raise NVMLError("Not Supported")
        info._obj.state, info._obj.status = 3, 0
        info._obj.healthMask = 0b0010_01_10_10_01
        return 0

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: int) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: int) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: int) -> int:
        return 16


def test_gpus(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    nvml = FakeNvml()
    notes = Notes(tmp_path)
    first, second = gpus.gather_gpus(notes, nvml)
    assert first == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-0",
        "pci": "0000:1b:00.0",
        "memory_bytes": 85520809984,
        "pcie_gen_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "performance_state": 0,
        "ecc": True,
        "ecc_uncorrected": 2,
        "clock_sm_MHz": 345,
        "clock_sm_max_MHz": 1980,
        "slowed_by": ["hardware slowdown", "thermal, by hardware"],
        "mig": False,
        "power_limit_W": 700.0,
        "remapped_rows": {"corrected": 3, "uncorrected": 1, "pending": 1, "failure": 0},
        "nvlinks": [link != 4 for link in range(18)],
        "fabric": {
            "state": "completed",
            "status": 0,
            "unhealthy": ["degraded bandwidth", "access timeout recovery", HEALTH],
        },
        "numa_node": 1,
    }
    assert second["pages_pending"] is True
    assert not {"remapped_rows", "nvlinks", "fabric"} & set(second)
    assert second["name"] == "NVIDIA L4"
    assert "numa_node" not in second
    assert notes.facts == {"gpu.count": 3, "gpu.driver": "570.86.15", "gpu.cuda": "12.8"}
    assert notes.unknown["gpu.1.ecc"] == "NVML: Not Supported"
    assert notes.unknown["gpu.2"] == "NVML: GPU is lost"
    assert "too old" in notes.unknown["gpu.0.pcie_gen"]
    assert nvml.open == 0


def test_every_name_that_is_asked_for_exists_in_nvml() -> None:
    nvml: Any = pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    source = Path(gpus.__file__).read_text()
    names = {word for word in source.replace("(", " ").replace(",", " ").split() if "nvml." in word}
    asked = {name.partition("nvml.")[2].rstrip(").") for name in names}
    asked |= {"nvmlInit", "nvmlShutdown", "NVMLError"}
    assert len(asked) > 20
    assert [name for name in sorted(asked) if not hasattr(nvml, name)] == []


def test_no_driver_is_unknown_with_its_reason() -> None:
    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:
            raise NVMLError("NVML Shared Library Not Found")

    notes = Notes()
    assert gpus.gather_gpus(notes, NoDriver()) == ()
    assert notes.unknown == {"gpus": "NVML: NVML Shared Library Not Found"}


def test_no_library_is_unknown_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    notes = Notes()
    assert gpus.gather_gpus(notes) == ()
    assert "wirespeed[gpu]" in notes.unknown["gpus"]


def test_a_module_without_the_newer_fabric_call_is_asked_with_the_older_one() -> None:
    class Older:
        c_nvmlGpuFabricInfo_t = FabricInfo

        def nvmlDeviceGetGpuFabricInfo(self, gpu: int, info: Any) -> int:
            info._obj.state = 1
            return 0

    assert fabric(Older(), 0) == {"state": "not started", "status": 0, "unhealthy": []}


def test_nvml_has_what_the_links_are_asked_with() -> None:
    nvml: Any = pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    info = nvml.c_nvmlGpuFabricInfoV_t()
    assert {"state", "status", "healthMask"} <= {name for name, *_ in info._fields_}
    assert nvml.NVML_GPU_FABRIC_STATE_COMPLETED == 3
    assert nvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY == 4
    assert callable(nvml.nvmlDeviceGetNvLinkState)
