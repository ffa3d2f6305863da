"""PCI trees as sysfs shows them; distances as the legend of `nvidia-smi topo -m` defines them."""

from pathlib import Path
from typing import Any

import pytest

from wirespeed.model.codec import to_json
from wirespeed.node.facts import Spot, distance, note_topology
from wirespeed.node.reading import Notes

HOST = "pci0000:16"
PORT = f"{HOST}/0000:16:01.0"
SWITCH = f"{PORT}/0000:17:00.0"
"""A switch: its upstream port; downstream ports below lead to devices or to a second switch."""
SECOND = f"{SWITCH}/0000:18:02.0/0000:1c:00.0"


def spot(path: str, numa: int | None = 0) -> Spot:
    return Spot(tuple(path.split("/")), numa)


GPU = spot(f"{SWITCH}/0000:18:00.0/0000:1b:00.0")


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (f"{SWITCH}/0000:18:01.0/0000:1a:00.0", "PIX"),
        (f"{SWITCH}/0000:18:00.0/0000:1b:00.1", "PIX"),
        (f"{SECOND}/0000:1d:00.0/0000:1e:00.0", "PXB"),
        (f"{HOST}/0000:16:05.0/0000:29:00.0", "PHB"),
        ("pci0000:38/0000:38:01.0/0000:3a:00.0", "NODE"),
    ],
)
def test_how_near(other: str, word: str) -> None:
    assert distance(GPU, spot(other)) == distance(spot(other), GPU) == word


def test_another_numa_node_is_the_farthest() -> None:
    assert distance(GPU, spot("pci0000:97/0000:97:01.0/0000:98:00.0", 1)) == "SYS"


def test_host_bridges_without_numa_nodes_are_told_apart_only_where_there_is_one_node() -> None:
    elsewhere = spot("pci0001:00/0001:00:00.0", None)
    assert distance(GPU, elsewhere) == ""
    assert distance(GPU, elsewhere, single_numa=True) == "NODE"


def test_a_device_that_sysfs_does_not_show_is_near_nothing() -> None:
    assert distance(GPU, spot("0000:1b:00.0")) == ""


def test_a_device_behind_a_bridge_of_its_own_domain_is_placed_by_the_first_host_bridge() -> None:
    behind = spot("pci0000:16/0000:16:00.5/pci10000:00/10000:00:02.0/10000:01:00.0")
    assert distance(GPU, behind) == "PHB"


# A node.


def place(root: Path, path: str, numa: int) -> str:
    """A PCI device at that path of the tree; its address."""
    folder = root / "sys/devices" / path
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{numa}\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / folder.name).symlink_to(folder)
    return folder.name


def numa_nodes(root: Path, *lists: str) -> None:
    for number, cpus in enumerate(lists):
        folder = root / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")


def gpus() -> list[dict[str, Any]]:
    """Two GPUs with two links to each other, two to a switch and one to a stranger."""
    return [
        {
            "index": n,
            "pci": f"0000:{0x1B + n:02x}:00.0",
            "nvlink_ends": {f"0000:{0x1C - n:02x}:00.0": 2, "NVSwitch": 2, "unknown": 1},
        }
        for n in range(2)
    ]


def test_a_node_with_gpus(tmp_path: Path) -> None:
    place(tmp_path, f"{SWITCH}/0000:18:00.0/0000:1b:00.0", 0)
    place(tmp_path, "pci0000:97/0000:97:01.0/0000:1c:00.0", 1)
    card = place(tmp_path, f"{SWITCH}/0000:18:01.0/0000:1a:00.0", 0)
    plain = place(tmp_path, f"{HOST}/0000:16:05.0/0000:29:00.0", 0)
    numa_nodes(tmp_path, "0-3", "4-7")
    rdma = [{"device": "mlx5_0", "port": 1, "pci": card}]
    nics = [{"name": "ens1", "pci": card}, {"name": "eth0", "pci": plain}, {"name": "veth1"}]
    notes = Notes(tmp_path)
    note_topology(notes, gpus(), nics, rdma)
    assert to_json(notes.facts) == {
        "topo.distances": {
            "GPU0": {"GPU1": "SYS", "mlx5_0": "PIX", "ens1": "PIX", "eth0": "PHB"},
            "GPU1": {"GPU0": "SYS", "mlx5_0": "SYS", "ens1": "SYS", "eth0": "SYS"},
        },
        "topo.nvlinks": {
            "GPU0": {"GPU1": 2, "NVSwitch": 2, "unknown": 1},
            "GPU1": {"GPU0": 2, "NVSwitch": 2, "unknown": 1},
        },
        "topo.numa": {"0": "0-3", "1": "4-7"},
    }
    assert notes.unknown == {}


def test_without_gpus_rdma_devices_are_told_but_not_against_their_own_interface(
    tmp_path: Path,
) -> None:
    card = place(tmp_path, f"{SWITCH}/0000:18:01.0/0000:1a:00.0", 0)
    plain = place(tmp_path, f"{HOST}/0000:16:05.0/0000:29:00.0", 0)
    rdma = [{"device": "mlx5_0", "port": 1, "pci": card}]
    notes = Notes(tmp_path)
    note_topology(notes, [], [{"name": "ens1", "pci": card}, {"name": "eth0", "pci": plain}], rdma)
    assert to_json(notes.facts) == {"topo.distances": {"mlx5_0": {"eth0": "PHB"}}}


def test_a_machine_without_devices_notes_nothing(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    note_topology(notes, [], [{"name": "eth0", "pci": "0000:00:03.0"}], [])
    assert (to_json(notes.facts), notes.unknown) == ({}, {})
