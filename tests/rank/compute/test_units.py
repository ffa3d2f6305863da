"""Cores and NUMA nodes as the kernel tells them, and errors of a device."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.rank.compute.devices import Cores
from wirespeed.rank.compute.sensors import Sensors, _power_mW
from wirespeed.rank.compute.units import Unit, numa_nodes, one_of_each_core


def put(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_hyper_threads_are_one_core(tmp_path: Path) -> None:
    for cpu, core in ((0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")):
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", core)
    assert one_of_each_core(range(4), tmp_path) == [0, 1]
    assert one_of_each_core([2, 3], tmp_path) == [2, 3], "those that we may use"
    assert one_of_each_core([7, 8], tmp_path) == [7, 8], "nothing is told"


def test_cores_by_numa_node(tmp_path: Path) -> None:
    assert numa_nodes(tmp_path, [0, 1]) == [(0, {0, 1})]
    put(tmp_path, "sys/devices/system/node/node0/cpulist", "0-1,4")
    put(tmp_path, "sys/devices/system/node/node1/cpulist", "2-3")
    assert numa_nodes(tmp_path, [0, 3]) == [(0, {0, 1, 4}), (1, {2, 3})]


def test_what_a_core_raises_is_raised() -> None:
    def broken(lane: int) -> int:
        if lane:
            raise RuntimeError("this core has no such product")
        return lane

    with pytest.raises(RuntimeError, match="no such product"):
        Cores((0, 0), lambda: None).each(broken)


def test_clock_temperature_and_power_of_a_machine_that_tells_them(tmp_path: Path) -> None:
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2500000")
    put(tmp_path, "sys/class/hwmon/hwmon3/name", "k10temp")
    put(tmp_path, "sys/class/hwmon/hwmon3/temp1_input", "71500")
    put(tmp_path, "sys/class/hwmon/hwmon4/name", "nvme")
    put(tmp_path, "sys/class/hwmon/hwmon4/temp1_input", "99000")
    sensors = Sensors(Unit("cpu", "NUMA node 0", "CPU", 0, (0,)), "", tmp_path)
    with sensors.watching() as felt:
        assert sensors.looked(5.0)
    told = felt.told()
    assert (told["clock_MHz"], told["temperature_C"]) == (2500.0, 71.5)
    assert "power_W" not in told


def test_without_nvml_nothing_is_told() -> None:
    sensors = Sensors(Unit("gpu", "cuda:1", "H100", 0), "")
    sensors.settle_name()
    with sensors.watching() as felt:
        pass
    assert (sensors.name, felt.told()) == ("cuda:1", {"slowed_by": ()})


class Refused(Exception):
    """As NVML's."""


@pytest.mark.parametrize(
    ("instant", "told"), [((0, 713_000), 713_000), ((3, 713_000), 254_000), (None, 254_000)]
)
def test_power_is_that_of_the_moment_where_the_driver_tells_it(
    instant: tuple[int, int] | None, told: float
) -> None:
    """254 W was the mean of a second in which a GPU was at its cap of 700 W for a part."""

    def fields(gpu: str, wanted: list[int]) -> list[Any]:
        if instant is None:
            raise Refused
        return [SimpleNamespace(nvmlReturn=instant[0], value=SimpleNamespace(uiVal=instant[1]))]

    nvml = SimpleNamespace(
        NVML_FI_DEV_POWER_INSTANT=186,
        NVML_SUCCESS=0,
        NVMLError=Refused,
        nvmlDeviceGetFieldValues=fields,
        nvmlDeviceGetPowerUsage=lambda gpu: 254_000,
    )
    assert _power_mW(nvml, "gpu") == told
    del nvml.NVML_FI_DEV_POWER_INSTANT
    assert _power_mW(nvml, "gpu") == 254_000
