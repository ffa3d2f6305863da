"""Payload trees follow the kernel's documented formats: Documentation/ABI/stable/
sysfs-class-infiniband, ABI/testing/sysfs-devices-system-cpu."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from wirespeed.model.codec import to_json
from wirespeed.node import facts, limits, nics
from wirespeed.node.reading import Notes, pci_address

UNSET_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


# The whole.


def test_this_node() -> None:
    node = facts.gather_node([4, 5])
    assert node.host == socket.gethostname()
    assert node.ranks == (4, 5)
    assert node.facts.kernel == os.uname().release
    assert node.facts.cpu_logical == os.cpu_count()
    assert node.facts.cpu_allowed == len(os.sched_getaffinity(0))
    assert node.facts.memory_total_bytes == psutil.virtual_memory().total
    assert 0 < node.facts.memory_available_bytes <= node.facts.memory_total_bytes
    assert [nic["loopback"] for nic in node.nics if nic["name"] == "lo"] == [True]
    assert all(node.unknown.values())
    assert not set(node.unknown) & set(to_json(node.facts))
    json.dumps(to_json(node), allow_nan=False)


def test_the_environment_is_the_allowed_part() -> None:
    environ = {"NCCL_DEBUG": "INFO", "NCCL_TOKEN": "x", "HOME": "/root"}
    assert facts.gather_node([0], environ=environ).environment == {"NCCL_DEBUG": "INFO"}


def test_nothing_to_read_is_unknown_and_raises_nothing(tmp_path: Path) -> None:
    node = facts.gather_node([0], root=tmp_path)
    assert {"cpu.model", "numa.nodes", "memory.total_bytes", "shm.size_bytes"} <= set(node.unknown)
    assert node.rdma == ()
    assert limits.memory_available_bytes(tmp_path) == 0
    assert limits.llc_bytes(tmp_path) is None


@pytest.mark.slow
def test_torch_is_asked_only_where_it_is_imported() -> None:
    code = """
import sys
from wirespeed.node.facts import gather_node
node = gather_node([0])
assert "torch" not in sys.modules
assert "not imported" in node.unknown["torch"]
sys.modules["torch"] = __import__("types").SimpleNamespace(
    __version__="2.9.1+cu128",
    version=__import__("types").SimpleNamespace(cuda="12.8"),
    distributed=__import__("types").SimpleNamespace(
        is_available=lambda: True, is_nccl_available=lambda: True
    ),
    cuda=__import__("types").SimpleNamespace(
        nccl=__import__("types").SimpleNamespace(version=lambda: (2, 27, 5))
    ),
)
found = gather_node([0]).facts
assert (found.torch, found.cuda, found.nccl) == ("2.9.1+cu128", "12.8", "2.27.5"), found
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_torch_without_cuda_says_so() -> None:
    pytest.importorskip("torch", reason="Requires: torch")
    import torch

    node = facts.gather_node([0])
    assert node.facts.torch == torch.__version__
    if torch.version.cuda is None:
        assert "without CUDA" in node.unknown["cuda"]
        assert "without NCCL" in node.unknown["nccl"]


# CPUs.


def test_cpus_of_two_sockets_with_hyper_threads(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon 8480\n\nprocessor\t: 1\nmodel name\t: Y",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpufreq/x": "not a CPU",
        "sys/devices/system/node/node0/cpulist": "0,2",
        "sys/devices/system/node/node1/cpulist": "1,3",
        "sys/devices/system/node/possible": "0-1",
    }
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{folder}/topology/core_cpus_list"] = siblings
        for index, level, size in ((0, 1, "48K"), (1, 1, "32K"), (2, 2, "2048K"), (3, 3, "96M")):
            files[f"{folder}/cache/index{index}/level"] = str(level)
            files[f"{folder}/cache/index{index}/size"] = size
        files[f"{folder}/cache/index3/size"] = "98304K" if cpu else "32768K"
    notes = Notes(tree(tmp_path, files))
    limits.gather_cpus(notes)
    assert notes.facts.cpu_model == "Xeon 8480"
    assert notes.facts.cpu_logical == 4
    assert notes.facts.cpu_physical == 2
    assert notes.facts.numa_nodes == 2
    assert notes.facts.cpu_governor == "powersave"
    assert notes.facts.llc_bytes == 96 << 20


def test_a_cpu_without_a_third_level(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cache"
    tree(tmp_path, {f"{folder}/index0/level": "1", f"{folder}/index0/size": "64K"})
    tree(tmp_path, {f"{folder}/index2/level": "2", f"{folder}/index2/size": "1024K"})
    assert limits.llc_bytes(tmp_path) == 1 << 20


def test_an_arm_cpu_has_no_name(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/cpuinfo": "CPU implementer\t: 0x41\nCPU part\t: 0xd4f"})
    notes = Notes(tmp_path)
    limits.gather_cpus(notes)
    assert notes.facts.cpu_model.endswith(" 0x41:0xd4f")


# Network interfaces.


def interface(family: int, address: str) -> SimpleNamespace:
    return SimpleNamespace(family=family, address=address)


def test_nics_with_what_sysfs_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(isup=True, mtu=9000, speed=400000, flags="up,broadcast,running")
    states = {
        "ens1": state,
        "eth9": SimpleNamespace(**{**vars(state), "speed": 0}),
        "down0": SimpleNamespace(**{**vars(state), "isup": False}),
    }
    addresses = {
        "ens1": [
            interface(socket.AF_INET, "10.0.0.1"),
            interface(socket.AF_PACKET, "AA:00:00:00:00:01"),
        ],
        "eth9": [interface(socket.AF_PACKET, "aa:00:00:00:00:02")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)
    device = tmp_path / "sys/devices/pci0000:00/0000:1b:00.0"
    tree(device, {"numa_node": "1"})
    (tmp_path / "sys/bus/pci/drivers/mlx5_core").mkdir(parents=True)
    (device / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/mlx5_core")
    tree(tmp_path / "sys/class/net", {"ens1/address": "aa:00:00:00:00:01"})
    tree(tmp_path / "sys/class/net", {"eth9/address": "aa:00:00:00:00:99"})
    (tmp_path / "sys/class/net/ens1/device").symlink_to(device)
    notes = Notes(tmp_path)
    found = nics.gather_nics(notes)
    assert found == (
        {
            "name": "ens1",
            "loopback": False,
            "virtual": False,
            "mtu": 9000,
            "families": ["ipv4"],
            "speed_Gbitps": 400.0,
            "driver": "mlx5_core",
            "numa_node": 1,
            "pci": "0000:1b:00.0",
        },
        {"name": "eth9", "loopback": False, "mtu": 9000, "families": []},
    )
    assert "another network namespace" in notes.unknown["nic.eth9.driver"]


def test_interfaces_that_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(psutil, "net_if_addrs", refuse)
    notes = Notes()
    assert nics.gather_nics(notes) == ()
    assert "Permission denied" in notes.unknown["nics"]


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="Requires: root")
def test_in_another_network_namespace_sysfs_is_not_believed() -> None:
    """`unshare --net` keeps /sys as it is, which then shows the first namespace's interfaces."""
    code = "from wirespeed.node.facts import gather_node; print(len(gather_node([0]).nics))"
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "0"  # only a loopback that is down


def test_the_address_of_a_device_on_a_pci_device(tmp_path: Path) -> None:
    virtio = tmp_path / "devices/pci0000:00/0000:00:03.0/virtio2"
    virtio.mkdir(parents=True)
    assert pci_address(virtio) == "0000:00:03.0"
    assert pci_address(tmp_path) is None


# RDMA.


def test_rdma_ports(tmp_path: Path) -> None:
    folder = "sys/class/infiniband"
    tree(
        tmp_path,
        {
            f"{folder}/mlx5_0/fw_ver": "28.39.1002",
            f"{folder}/mlx5_0/ports/1/state": "4: ACTIVE",
            f"{folder}/mlx5_0/ports/1/phys_state": "5: LinkUp",
            f"{folder}/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
            f"{folder}/mlx5_0/ports/1/link_layer": "InfiniBand",
            f"{folder}/mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001",
            f"{folder}/mlx5_0/ports/1/gids/1": UNSET_GID,
            f"{folder}/mlx5_1/ports/1/state": "1: DOWN",
            f"{folder}/mlx5_1/ports/1/rate": "2.5 Gb/sec (1X SDR)",
            f"{folder}/mlx5_1/device/numa_node": "1",
            f"{folder}/mlx5_2/node_type": "1: CA",
        },
    )
    notes = Notes(tmp_path)
    assert nics.gather_rdma(notes) == (
        {
            "device": "mlx5_0",
            "port": 1,
            "state": "ACTIVE",
            "phys_state": "LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "rate_Gbitps": 400.0,
            "width": 4,
            "link_layer": "InfiniBand",
            "gids": 1,
            "firmware": "28.39.1002",
        },
        {
            "device": "mlx5_1",
            "port": 1,
            "state": "DOWN",
            "rate": "2.5 Gb/sec (1X SDR)",
            "rate_Gbitps": 2.5,
            "width": 1,
            "gids": 0,
            "numa_node": 1,
        },
    )
    assert list(notes.unknown) == ["rdma.mlx5_2"]
