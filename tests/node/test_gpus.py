import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from wirespeed.model.codec import to_json
from wirespeed.node import gpu_reader, gpus
from wirespeed.node.gpu_reader import (
    error_counters,
    fabric,
    grown,
    link_ends,
    link_states,
    read_cuda,
    read_gpus,
)
from wirespeed.node.gpus import mark_visible
from wirespeed.node.reading import Notes

UNSUPPORTED, DENIED, LOST, TIMEOUT = 3, 4, 15, 10
TEXTS = {
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    10: "Timeout",
    12: "NVML Shared Library Not Found",
    15: "GPU is lost",
    16: "GPU requires reset",
    18: "Driver/library version mismatch",
    999: "Unknown Error",
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(TEXTS[value])
        self.value = value


class FabricInfo(ctypes.Structure):
    """The fields of nvmlGpuFabricInfo_v2_t that are read, as the module declares them."""

    _fields_: ClassVar = [
        ("status", ctypes.c_uint),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
    ]


class SramStatus(ctypes.Structure):
    """The same of nvmlEccSramErrorStatus_v1_t."""

    _fields_: ClassVar = [
        ("volatileUncParity", ctypes.c_ulonglong),
        ("volatileUncSecDed", ctypes.c_ulonglong),
        ("bThresholdExceeded", ctypes.c_uint),
    ]


class FakeNvml:
    """NVML with one H100 that answers everything, one that answers little and one that is lost."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = UNSUPPORTED
    NVML_ERROR_NO_PERMISSION = DENIED
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_DEVICE_MIG_ENABLE = 1
    c_nvmlGpuFabricInfoV_t = FabricInfo
    c_nvmlEccSramErrorStatus_v1_t = SramStatus
    open = 0
    links = 18
    growing = 0

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        """Codes by the end of a call's name: what the first GPU answers to it."""

    def _may(self, gpu: int, call: str) -> None:
        if gpu == 0 and call in self.refused:
            raise NVMLError(self.refused[call])

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
        self._may(index, "HandleByIndex")
        if index == 2:
            raise NVMLError(LOST)
        return index

    def nvmlDeviceGetName(self, gpu: int) -> str | bytes:
        return b"NVIDIA L4" if gpu else "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-{gpu}"

    def nvmlDeviceGetPciInfo(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{gpu + 0x1B:02X}:00.0")

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:
        self._may(gpu, "MemoryInfo")
        return SimpleNamespace(total=85520809984)

    def nvmlDeviceGetEccMode(self, gpu: int) -> list[int]:
        if gpu:
            raise NVMLError(UNSUPPORTED)
        return [1, 1]

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:
        assert (kind, counter) == (1, 0)
        self._may(gpu, "TotalEccErrors")
        return 2

    def nvmlDeviceGetSramEccErrorStatus(self, gpu: int, status: Any) -> None:
        if gpu:
            raise NVMLError(UNSUPPORTED)
        found = status._obj
        found.volatileUncParity, found.volatileUncSecDed, found.bThresholdExceeded = 1, 2, 1

    def nvmlDeviceGetClockInfo(self, gpu: int, kind: int) -> int:
        self._may(gpu, "ClockInfo")
        return 345

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: int) -> int:
        return 0x1 | 0x8 | 0x40

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return 34

    def nvmlDeviceGetTemperatureThreshold(self, gpu: int, which: int) -> int:
        return 87

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetPowerManagementLimit(self, gpu: int) -> int:
        return 700000

    def nvmlDeviceGetPerformanceState(self, gpu: int) -> int:
        return 0

    def nvmlDeviceGetRetiredPagesPendingStatus(self, gpu: int) -> int:
        if not gpu:
            raise NVMLError(UNSUPPORTED)
        return 1

    def nvmlDeviceGetRemappedRows(self, gpu: int) -> tuple[int, int, int, int]:
        if gpu:
            raise NVMLError(UNSUPPORTED)
        return 3, 1, 1, 0

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if gpu:
            raise NVMLError(UNSUPPORTED)
        if link >= self.links:
            raise NVMLError(2)
        return int(link != 4)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: int, link: int) -> int:
        return 2 if link < 16 else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> SimpleNamespace:
        if link > 16:
            raise NVMLError(UNSUPPORTED)
        return SimpleNamespace(busId=b"00000000:1C:00.0")

    def nvmlDeviceGetNvLinkErrorCounter(self, gpu: int, link: int, counter: int) -> int:
        self._may(gpu, "NvLinkErrorCounter")
        if (link, counter) == (3, 2):
            self.growing += 5
            return 100 + self.growing
        return 7 if (link, counter) == (2, 0) else 0

    def nvmlDeviceGetFieldValues(self, gpu: int, fields: list[tuple[int, int]]) -> list[Any]:
        return [
            SimpleNamespace(
                fieldId=field,
                nvmlReturn=0 if field in (208, 219) else UNSUPPORTED,
                value=SimpleNamespace(ullVal=link + field),
            )
            for field, link in fields
        ]

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: int, info: Any) -> int:
        if gpu:
            raise NVMLError(UNSUPPORTED)
        info._obj.state, info._obj.status = 3, 0
        info._obj.healthMask = 0b0100_01_10_10_01
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
    first, second, third = gpus.gather_gpus(notes, nvml)
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
        "sram": {"uncorrected": 3, "exceeded": 1},
        "clock_sm_MHz": 345,
        "clock_sm_max_MHz": 1980,
        "slowed_by": ["hardware slowdown", "thermal, by hardware"],
        "idle": True,
        "clocks_set": False,
        "temperature_C": 34,
        "slowdown_C": 87,
        "mig": False,
        "power_limit_W": 700.0,
        "remapped_rows": {"corrected": 3, "uncorrected": 1, "pending": 1, "failure": 0},
        "nvlinks": [link != 4 for link in range(18)],
        "nvlink_ends": {"0000:1c:00.0": 1, "NVSwitch": 15, "unknown": 1},
        "nvlink_errors": {"2": {"replay": 7}, "3": {"crc flit": 105}},
        "nvlink_growth": {"links": {"3": {"crc flit": 5}}, "seconds": pytest.approx(0, abs=60)},
        "fabric": {
            "state": "completed",
            "status": 0,
            "unhealthy": [
                "degraded bandwidth",
                "access timeout recovery",
                "incorrect configuration (no partition)",
            ],
        },
        "numa_node": 1,
    }
    assert second["pages_pending"] is True
    assert not {"remapped_rows", "nvlinks", "fabric", "nvlink_errors", "errors"} & set(second)
    assert second["name"] == "NVIDIA L4"
    assert "numa_node" not in second
    assert third == {
        "index": 2,
        "errors": [{"call": "handle", "code": LOST, "text": "GPU is lost"}],
    }
    assert to_json(notes.facts) == {"gpu.count": 3, "gpu.driver": "570.86.15", "gpu.cuda": "12.8"}
    assert notes.unknown["gpu.1.ecc"] == "NVML: Not Supported"
    assert "too old" in notes.unknown["gpu.0.pcie_gen"]
    assert nvml.open == 0


# What an error means.


@pytest.mark.parametrize("code", [UNSUPPORTED, DENIED])
def test_what_may_not_be_asked_is_unknown_and_no_fault(code: int) -> None:
    """As a GPU in MIG mode answers for the whole of itself."""
    notes = Notes()
    gpu = gpus.gather_gpus(notes, FakeNvml(TotalEccErrors=code))[0]
    assert "errors" not in gpu
    assert notes.unknown["gpu.0.ecc_uncorrected"] == f"NVML: {TEXTS[code]}"
    assert gpu["power_limit_W"] == 700.0


@pytest.mark.parametrize("code", [16, 999])
def test_an_error_is_the_gpus_and_the_rest_is_asked(code: int) -> None:
    gpu = gpus.gather_gpus(Notes(), FakeNvml(TotalEccErrors=code))[0]
    assert gpu["errors"] == [{"call": "ecc_uncorrected", "code": code, "text": TEXTS[code]}]
    assert gpu["power_limit_W"] == 700.0


@pytest.mark.parametrize("code", [LOST, TIMEOUT])
def test_a_gpu_that_is_silent_is_asked_no_more(code: int) -> None:
    notes = Notes()
    gpu = gpus.gather_gpus(notes, FakeNvml(MemoryInfo=code))[0]
    assert gpu["errors"] == [{"call": "memory_bytes", "code": code, "text": TEXTS[code]}]
    assert (gpu["uuid"], gpu["pci"]) == ("GPU-0", "0000:1b:00.0")
    assert "nvlinks" not in gpu
    assert notes.unknown["gpu.0.power_limit_W"] == f"NVML: {TEXTS[code]}"


def test_a_gpu_that_is_given_to_others_is_left_out() -> None:
    notes = Notes()
    found = gpus.gather_gpus(notes, FakeNvml(HandleByIndex=DENIED))
    assert [gpu["index"] for gpu in found] == [1, 2]
    assert notes.unknown["gpu.0"] == "NVML: Insufficient Permissions"


def test_a_gpu_that_is_lost_between_the_two_readings() -> None:
    class Dying(FakeNvml):
        def nvmlDeviceGetPowerManagementLimit(self, gpu: int) -> int:
            self.refused["NvLinkErrorCounter"] = LOST
            return 1

    gpu = gpus.gather_gpus(Notes(), Dying())[0]
    assert gpu["errors"] == [{"call": "nvlink_errors", "code": LOST, "text": "GPU is lost"}]


@pytest.mark.parametrize(("code", "failed"), [(12, False), (18, True), (999, True)])
def test_a_library_that_does_not_start(code: int, failed: bool) -> None:
    """That there is none tells of no fault; that there is one and it fails does."""

    class Refusing(FakeNvml):
        def nvmlInit(self) -> None:
            raise NVMLError(code)

    notes = Notes()
    assert gpus.gather_gpus(notes, Refusing()) == ()
    assert notes.unknown == {"gpus": f"NVML: {TEXTS[code]}"}
    error = {"call": "nvmlInit", "code": code, "text": TEXTS[code]}
    assert to_json(notes.facts) == ({"gpu.nvml_failed": error} if failed else {})


# The process that asks.

START = '{"start": {"facts": {"gpu.count": 3}, "unknown": {}}}'
GPU0 = '{"asking": 0}\\n{"gpu": {"index": 0, "uuid": "GPU-0"}, "unknown": {}}\\n{"asking": 1}'


def asked(text: str, then: str = "", quiet_s: float = 20.0) -> tuple[tuple[Any, ...], Notes]:
    """What a reader gives that prints `text` and runs `then`."""
    notes = Notes()
    code = f"import os, time; print('''{text}''', flush=True); {then}"
    return gpus.gather_gpus(notes, reader=(sys.executable, "-c", code), quiet_s=quiet_s), notes


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whether nvidia-ml-py is there does not matter where the reader is another program."""
    monkeypatch.setattr(gpus, "_installed", lambda: True)
    yield


@pytest.mark.usefixtures("module")
def test_a_driver_that_hangs_costs_a_bounded_time_and_names_the_gpu() -> None:
    found, notes = asked(f"{START}\\n{GPU0}", "time.sleep(600)", quiet_s=1.0)
    assert found[0] == {"index": 0, "uuid": "GPU-0"}
    assert found[1] == {
        "index": 1,
        "errors": [{"call": "nvml", "code": TIMEOUT, "text": "no answer within 1 s"}],
    }
    assert notes.unknown == {"gpu.2": "not asked, since NVML failed at GPU1"}


@pytest.mark.usefixtures("module")
def test_a_library_that_crashes_is_an_error_of_the_gpu_or_of_all() -> None:
    found, _ = asked(f"{START}\\n{GPU0}", "os.kill(os.getpid(), 11)")
    assert found[1]["errors"][0]["text"] == "the process that asked NVML ended by signal 11"
    found, notes = asked("noise of a library", "os.kill(os.getpid(), 11)")
    assert found == ()
    assert notes.facts.gpu_nvml_failed["text"].endswith("ended by signal 11")


@pytest.mark.usefixtures("module")
def test_an_error_of_the_reader_itself_is_unknown_and_no_fault() -> None:
    found, notes = asked("", "raise ImportError('no pynvml here')")
    assert (found, to_json(notes.facts)) == ((), {})
    assert notes.unknown["gpus"].endswith("ended with ImportError: no pynvml here")
    found, notes = asked(f"{START}\\n{GPU0}", "raise TypeError('no such field')")
    assert [gpu["index"] for gpu in found] == [0]
    assert notes.unknown["gpu.1"].endswith("ended with TypeError: no such field")


def test_the_real_reader_ends_where_there_is_no_library() -> None:
    pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    if Path("/dev/nvidiactl").exists() or "LD_PRELOAD" in os.environ:
        pytest.skip("Requires: no GPU")
    notes = Notes()
    assert gpus.gather_gpus(notes) == ()
    assert notes.unknown == {"gpus": "NVML: NVML Shared Library Not Found"}


def test_no_module_is_unknown_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    notes = Notes()
    assert gpus.gather_gpus(notes) == ()
    assert "wirespeed[gpu]" in notes.unknown["gpus"]


# CUDA.


class FakeCuda:
    """A driver that shows two GPUs, or answers a call with an error."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes

    def cuInit(self, flags: int) -> int:
        return self.codes.get("cuInit", 0)

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal + 5
        return 0

    def cuDeviceGetUuid(self, uuid: Any, device: Any) -> int:
        uuid[0], uuid[15] = 0x7C, device.value
        return self.codes.get("cuDeviceGetUuid", 0)


UUIDS = ["GPU-7c000000-0000-0000-0000-000000000005", "GPU-7c000000-0000-0000-0000-000000000006"]


@pytest.mark.parametrize(
    ("cuda", "told"),
    [
        (FakeCuda(), {"uuids": UUIDS}),
        (FakeCuda(cuInit=100), {"uuids": []}),
        (FakeCuda(cuInit=802), {"call": "cuInit", "code": 802}),
        (FakeCuda(cuDeviceGetUuid=999), {"call": "cuDeviceGetUuid", "code": 999}),
    ],
)
def test_what_cuda_shows(cuda: FakeCuda, told: dict[str, Any]) -> None:
    assert read_cuda(lambda name: cuda) == told


def test_no_cuda_is_unknown_with_its_reason() -> None:
    def load(name: str) -> Any:
        raise OSError("cannot open shared object file")

    assert read_cuda(load) == {"why": "CUDA: cannot open shared object file"}


@pytest.mark.usefixtures("module")
def test_cuda_is_joined_by_uuid_and_its_hanging_is_no_gpus() -> None:
    gpu1 = '{"gpu": {"index": 1, "uuid": "GPU-1"}, "unknown": {}}\\n{"asking": "cuda"}'
    found, notes = asked(f'{START}\\n{GPU0}\\n{gpu1}\\n{{"cuda": {{"uuids": ["GPU-1"]}}}}')
    assert [gpu["visible"] for gpu in found] == [False, True]
    assert notes.facts.gpu_visible == ["GPU-1"]
    found, notes = asked(f"{START}\\n{GPU0}\\n{gpu1}", "time.sleep(600)", quiet_s=1.0)
    error = {"call": "cuInit", "code": TIMEOUT, "text": "no answer within 1 s"}
    assert notes.facts.gpu_cuda_failed == error
    assert all("errors" not in gpu for gpu in found)


@pytest.mark.parametrize(
    ("environ", "visible"),
    [
        ({}, [None, None, None]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [False, False, False]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [True, False, True]),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, [False, True, False]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, [False, True, False]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1c"}, [None, None, None]),
    ],
)
def test_the_variable_tells_where_cuda_cannot(
    environ: dict[str, str], visible: list[bool | None]
) -> None:
    found: list[dict[str, Any]] = [
        {"index": index, "name": "H100", "uuid": f"GPU-{letter}1"}
        for index, letter in enumerate("abc")
    ]
    mark_visible(found, None, environ)
    assert [gpu.get("visible") for gpu in found] == visible


def test_numbers_of_unequal_gpus_are_cudas_own() -> None:
    """CUDA puts the fastest first unless it is told to go by the bus."""
    found: list[dict[str, Any]] = [{"index": i, "name": f"{i}", "uuid": f"GPU-{i}"} for i in (0, 1)]
    mark_visible(found, None, {"CUDA_VISIBLE_DEVICES": "0"})
    assert "visible" not in found[0]
    mark_visible(found, None, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [gpu["visible"] for gpu in found] == [True, False]


# NVLink.


def test_more_than_18_links() -> None:
    class Wide(FakeNvml):
        links = 36

    assert link_states(Wide(), 0) == [link != 4 for link in range(36)]
    assert sum(link_ends(Wide(), 0).values()) == 35


def test_a_link_that_the_board_does_not_wire_is_inactive() -> None:
    class Partly(FakeNvml):
        def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
            if link == 7:
                raise NVMLError(UNSUPPORTED)
            return super().nvmlDeviceGetNvLinkState(gpu, link)

    assert link_states(Partly(), 0)[6:9] == [True, False, True]


def test_newer_gpus_count_their_errors_in_fields() -> None:
    counts = error_counters(FakeNvml(NvLinkErrorCounter=UNSUPPORTED), 0)
    assert counts["2"] == {"receive errors": 210, "effective errors": 221}
    assert "4" not in counts, "an inactive link"


def test_growth_is_of_links_and_kinds_that_both_readings_have() -> None:
    before = {"0": {"replay": 1, "crc": 5}, "1": {"replay": 2}}
    after = {"0": {"replay": 4, "crc": 5, "new": 9}, "2": {"replay": 70}}
    assert grown(before, after) == {"0": {"replay": 3}}


def test_a_module_without_the_newer_fabric_call_is_asked_with_the_older_one() -> None:
    class Older:
        c_nvmlGpuFabricInfo_t = FabricInfo

        def nvmlDeviceGetGpuFabricInfo(self, gpu: int, info: Any) -> int:
            info._obj.state = 1
            return 0

    assert fabric(Older(), 0) == {"state": "not started", "status": 0, "unhealthy": []}


# The module.


def test_every_name_that_is_asked_for_exists_in_nvml() -> None:
    nvml: Any = pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    asked = {*re.findall(r"\bnvml\.(\w+)", Path(gpu_reader.__file__).read_text())} - {"h"}
    assert len(asked) > 35
    assert [name for name in sorted(asked) if not hasattr(nvml, name)] == []


def test_nvml_has_what_the_links_are_asked_with() -> None:
    nvml: Any = pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    info = nvml.c_nvmlGpuFabricInfoV_t()
    assert {"state", "status", "healthMask"} <= {name for name, *_ in info._fields_}
    assert nvml.NVML_GPU_FABRIC_STATE_COMPLETED == 3
    assert nvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY == 4
    assert nvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NO_PARTITION == 4
    assert nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT == 2
    assert nvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS == 219
    assert nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH == 2


def test_reading_starts_nothing_before_it_is_asked() -> None:
    nvml = FakeNvml()
    read_gpus(nvml)
    assert nvml.open == 0
