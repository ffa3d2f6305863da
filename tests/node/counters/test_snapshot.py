"""Counters of a node: read in bounded time, compared, and what could not be read is said."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from wirespeed.node.counters import Found, Snapshot, added, growth, read_interfaces, take
from wirespeed.node.nics import statistics

PORT = "RDMA mlx5_0 port 1"
ADDRESS = "0c:42:a1:00:00:01"
Tree = Any
"""`conftest.Tree`."""


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class NoNvml:
    """The library is there, and no driver."""

    NVMLError = NvmlError

    def nvmlInit(self) -> None:
        raise NvmlError(13)


class Nvml:
    """Two GPUs: one with two NVLinks; one with none, whose ECC answers that it is lost."""

    NVMLError = NvmlError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED = 2, 3

    def __init__(self) -> None:
        self.errors = {(1, 2): 0}
        self.uncorrectable = 0

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if gpu or link > 1:
            raise NvmlError(3 if gpu else 2)
        return 1

    def nvmlDeviceGetNvLinkErrorCounter(self, gpu: int, link: int, kind: int) -> int:
        return self.errors.get((link, kind), 0)

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:
        if gpu:
            raise NvmlError(15)
        return self.uncorrectable


def read(tree: Tree, **more: Any) -> Snapshot:
    return take(tree.root, **{"nvml": NoNvml(), "own": interfaces, **more})


def interfaces() -> dict[str, str]:
    return {"eth0": ADDRESS, "eth9": "0c:42:a1:00:00:09"}


def test_only_what_grew_is_told(tree: Tree) -> None:
    before = read(tree)
    tree.rdma("symbol_error", 7)
    tree.rdma("out_of_sequence", 40, device="mlx5_1")
    tree.eth("rx_crc_errors", 2)
    tree.tcp(1500, 1600, 9)
    told = growth(before, read(tree))
    assert told["grown"] == {
        PORT: {"symbol_error": 7},
        "RDMA mlx5_1 port 1": {"out_of_sequence": 40},
        "TCP": {"InSegs": 500, "OutSegs": 600, "RetransSegs": 9},
        "interface eth0": {"rx_crc_errors": 2},
    }
    assert (told["reset"], told["full"], told["came"], told["gone"]) == ([], [], [], [])
    assert told["unread"] == {}
    assert told["watched"][PORT] == 22


def test_a_counter_that_is_less_than_before_was_reset(tree: Tree) -> None:
    tree.rdma("symbol_error", 900)
    before = read(tree)
    tree.rdma("symbol_error", 3)
    told = growth(before, read(tree))
    assert told["reset"] == [f"{PORT}: symbol_error"]
    assert told["grown"] == {}


def test_a_counter_of_eight_bits_stays_at_its_end(tree: Tree) -> None:
    tree.rdma("link_downed", 255)
    assert growth(read(tree), read(tree))["full"] == [f"{PORT}: link_downed"]


def test_devices_come_and_go(tree: Tree) -> None:
    before = read(tree)
    (tree.root / "sys/class/infiniband/mlx5_1").rename(tree.root / "sys/class/infiniband/mlx5_2")
    told = growth(before, read(tree))
    assert (told["came"], told["gone"]) == (["RDMA mlx5_2 port 1"], ["RDMA mlx5_1 port 1"])


def test_einval_means_that_there_is_no_such_counter(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.read_text
    codes = {"symbol_error": errno.EINVAL, "link_downed": errno.EIO}

    def answer(path: Path, *args: Any, **more: Any) -> str:
        if path.name in codes and "mlx5_0" in path.parts:
            raise OSError(codes[path.name], os.strerror(codes[path.name]))
        return plain(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", answer)
    tree.rdma("port_rcv_errors", "N/A (no PMA)")
    found = read(tree)
    assert found.unread == {f"{PORT} counters": "Input/output error: link_downed"}
    assert {"symbol_error", "link_downed", "port_rcv_errors"} & set(found.values[PORT]) == set()


def test_a_port_that_gives_no_number_is_not_read(tree: Tree) -> None:
    for file in (tree.root / "sys/class/infiniband/mlx5_0/ports/1/counters").iterdir():
        file.write_text("N/A (no PMA)\n")
    assert read(tree).unread == {f"{PORT} counters": "no file there holds a number"}


def test_an_interface_of_another_namespace_is_not_ours(tree: Tree) -> None:
    found = read(tree, own=lambda: {"eth0": "0c:42:a1:00:00:77"})
    assert "interface eth0" not in found.values


def test_of_the_drivers_thousand_statistics_those_of_the_port_are_kept(tree: Tree) -> None:
    told = {
        "rx_prio3_pause": 5,
        "rx_prio3_pause_duration": 70,
        "tx_pause_storm_error_events": 1,
        "rx_symbol_err_phy": 2,
        "rx_discards_phy": 4,
        "rx7_packets": 9,
        "rx_prio3_buf_discard": 2,
        "rx_corrected_bits_phy": 9,
        "ch_poll": 9,
    }
    found = Found()
    read_interfaces(found, tree.root, {"eth0": ADDRESS}, lambda name: told)
    values, _ = found.copy()
    kept = values["interface eth0"]
    assert {name: kept.get(name) for name in told} == told | dict.fromkeys(
        ("rx7_packets", "rx_corrected_bits_phy", "ch_poll")
    )


@pytest.mark.parametrize("code, told", [(errno.EOPNOTSUPP, {}), (errno.EPERM, True)])
def test_a_driver_that_refuses_is_noted_unless_it_has_none(
    tree: Tree, code: int, told: object
) -> None:
    def refuse(name: str) -> dict[str, int]:
        raise OSError(code, os.strerror(code))

    found = Found()
    read_interfaces(found, tree.root, {"eth0": ADDRESS}, refuse)
    _, unread = found.copy()
    assert bool(unread) == bool(told)


def test_gpus_tell_links_and_memory(tree: Tree) -> None:
    nvml = Nvml()
    before = read(tree, nvml=nvml)
    nvml.errors[1, 2] = 5
    nvml.uncorrectable = 1
    told = growth(before, read(tree, nvml=nvml))
    assert told["grown"] == {
        "GPU 0": {"ECC uncorrectable": 1},
        "NVLink GPU 0": {"link 1 crc flit": 5},
    }
    assert told["unread"] == {"GPU 1": "NVML: error 15"}
    assert told["watched"]["NVLink GPU 0"] == 10


def test_a_device_that_does_not_answer_is_not_waited_for(tree: Tree) -> None:
    stuck = threading.Event()

    class Stuck(NoNvml):
        def nvmlInit(self) -> None:
            stuck.wait(20)

    found = read(tree, nvml=Stuck(), bound_s=0.5)
    stuck.set()
    told = "reading took longer than 0.5 s"
    assert found.unread == {"GPU": told, "NVLink": told}
    assert PORT in found.values


def test_a_source_that_fails_takes_no_other_with_it(tree: Tree) -> None:
    def own() -> dict[str, str]:
        raise RuntimeError("odd")

    found = read(tree, own=own)
    assert found.unread == {"interface": "RuntimeError: odd"}
    assert PORT in found.values


def test_this_machine_tells_its_own_tcp() -> None:
    told = growth(take(nvml=NoNvml()), take(nvml=NoNvml()))
    assert told["watched"].get("TCP", 0) > 3 or "TCP snmp" in told["unread"]
    assert told["seconds"] > 0


def test_windows_of_a_soak_add_up(tree: Tree) -> None:
    first = read(tree)
    tree.rdma("symbol_error", 2)
    second = read(tree)
    tree.rdma("symbol_error", 5)
    third = read(tree)
    told = added(growth(first, second), growth(second, third))
    whole = growth(first, third)
    assert told["grown"] == whole["grown"]
    assert told["seconds"] == pytest.approx(whole["seconds"])


def test_drivers_of_this_machine_answer_or_refuse() -> None:
    for name in psutil.net_if_stats():
        try:
            told = statistics(name)
        except OSError:
            continue
        assert all(value >= 0 for value in told.values())
