"""Trees as sysfs and procfs show them; ACS registers as in the PCI Express specification."""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wirespeed.model.codec import to_json
from wirespeed.node import limits
from wirespeed.node.machine import (
    acs_control,
    find_gpus,
    hides_devices,
    is_virtual,
    note_driver_errors,
    note_hardware,
    pcie_link,
)
from wirespeed.node.reading import Notes

ROOT_PORT = "sys/devices/pci0000:00/0000:00:01.0"
BRIDGE = f"{ROOT_PORT}/0000:1a:00.0"
H100 = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"


def put(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() + b"\n" if isinstance(content, str) else content)
    return root


def device(root: Path, folder: str, files: dict[str, str | bytes], driver: str = "") -> None:
    put(root, {f"{folder}/{name}": content for name, content in files.items()})
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / Path(folder).name).symlink_to(root / folder)
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (root / folder / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)


def config(control: int | None = None, size: int = 4096) -> bytes:
    """Configuration space with AER first, and ACS behind it where `control` is given."""
    space = bytearray(size)
    space[:4] = b"\xde\x10\x30\x23"
    if size > 256:
        after = 0x148 if control is not None else 0
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | after << 20)
        if control is not None:
            struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x005F, control)
    return bytes(space)


def gpu_node(root: Path) -> Path:
    """One GPU and one RDMA device below one PCIe switch whose port has ACS on."""
    put(
        root, {"proc/cpuinfo": "flags\t\t: fpu vme sse", "proc/cmdline": "quiet intel_iommu=on x=1"}
    )
    put(root, {f"{ROOT_PORT}/config": config(0), f"{BRIDGE}/config": config(0x1D)})
    device(root, f"{BRIDGE}/0000:1b:00.0", {"modalias": H100, "config": config()}, "nvidia")
    device(root, f"{BRIDGE}/0000:1c:00.0", {"modalias": "pci:v000015B3d00001021"}, "mlx5_core")
    for address, group, kind in (("0000:1b:00.0", 7, "DMA-FQ"), ("0000:1c:00.0", 8, "identity")):
        put(root, {f"sys/kernel/iommu_groups/{group}/type": kind})
        (root / BRIDGE / address / "iommu_group").symlink_to(
            root / f"sys/kernel/iommu_groups/{group}"
        )
    (root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    (root / "sys/class/infiniband/mlx5_0/device").symlink_to(root / BRIDGE / "0000:1c:00.0")
    (root / "sys/module/nvidia_peermem").mkdir(parents=True)
    return put(root, {"proc/driver/nvidia/version": OPEN})


# The whole.


def test_this_machine_raises_nothing_and_tells_why() -> None:
    notes = Notes()
    began = time.monotonic()
    note_hardware(notes)
    note_driver_errors(notes)
    assert time.monotonic() - began < 20
    assert isinstance(notes.facts.gpu_on_bus, list)
    assert all(notes.unknown.values())
    assert not set(notes.unknown) & set(to_json(notes.facts))
    json.dumps(to_json(notes.facts), allow_nan=False)


def test_nothing_to_read_is_unknown(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    note_hardware(notes)
    machine = {"machine.virtual", "machine.id", "machine.boot"}
    assert set(notes.unknown) == {*machine, "gpu.on_bus"}


def test_a_node_with_a_gpu_and_an_rdma_device(tmp_path: Path) -> None:
    notes = Notes(gpu_node(tmp_path))
    note_hardware(notes)
    assert notes.facts.gpu_on_bus == ["0000:1b:00.0"]
    assert notes.facts.gpu_mute == notes.facts.gpu_driverless == []
    assert notes.facts.machine_virtual is False
    assert notes.facts.machine_hides_devices == ""
    assert notes.facts.gpudirect_peer_module == "nvidia_peermem"
    assert notes.facts.gpu_open_modules is True
    assert notes.facts.iommu_groups == {"0000:1b:00.0": "DMA-FQ", "0000:1c:00.0": "identity"}
    assert notes.facts.iommu_kernel == ["intel_iommu=on"]
    assert notes.facts.acs_redirects == {
        "0000:1a:00.0": "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"
    }
    assert "/dev/kmsg: No such file" in notes.unknown["gpu.xids"]


def test_closed_kernel_modules(tmp_path: Path) -> None:
    notes = Notes(put(gpu_node(tmp_path), {"proc/driver/nvidia/version": CLOSED}))
    note_hardware(notes)
    assert notes.facts.gpu_open_modules is False


# PCI.


def test_gpus_that_are_gone_driverless_or_not_ours(tmp_path: Path) -> None:
    top = "sys/devices/pci0000:00"
    device(tmp_path, f"{top}/0000:01:00.0", {"modalias": H100, "config": b"\xff" * 64}, "nvidia")
    device(tmp_path, f"{top}/0000:02:00.0", {"modalias": H100, "config": config(size=64)})
    device(tmp_path, f"{top}/0000:03:00.0", {"modalias": H100}, "vfio-pci")
    device(tmp_path, f"{top}/0000:04:00.0", {"modalias": H100, "physfn": "a virtual function"})
    audio = H100.replace("bc03sc02", "bc04sc03")
    device(tmp_path, f"{top}/0000:01:00.1", {"modalias": audio})
    device(tmp_path, f"{top}/0000:05:00.0", {"modalias": H100.replace("10DE", "1002")})
    notes = Notes(tmp_path)
    note_hardware(notes)
    assert notes.facts.gpu_on_bus == ["0000:01:00.0", "0000:02:00.0"]
    assert notes.facts.gpu_mute == ["0000:01:00.0"]
    assert notes.facts.gpu_driverless == ["0000:02:00.0"]


def test_a_machine_without_pci_has_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "sys/bus").mkdir(parents=True)
    assert find_gpus(tmp_path) == []


def test_a_link_is_held_to_the_lower_one_of_card_and_slot(tmp_path: Path) -> None:
    card = {
        "current_link_speed": "16.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "8",
        "max_link_width": "16",
    }
    device(tmp_path, f"{ROOT_PORT}/0000:1b:00.0", dict(card))
    found = pcie_link(tmp_path, "0000:1b:00.0")
    assert found == {
        "pcie_GTps": 16.0,
        "pcie_GTps_max": 32.0,
        "pcie_width": 8,
        "pcie_width_max": 16,
    }
    put(tmp_path, {f"{ROOT_PORT}/max_link_speed": "16 GT/s", f"{ROOT_PORT}/max_link_width": "8"})
    found = pcie_link(tmp_path, "0000:1b:00.0")
    assert (found["pcie_GTps_max"], found["pcie_width_max"]) == (16.0, 8)


def test_a_virtual_function_has_no_link(tmp_path: Path) -> None:
    none = {"current_link_speed": "Unknown", "current_link_width": "0", "max_link_width": "255"}
    device(tmp_path, f"{ROOT_PORT}/0000:1b:00.0", dict(none))
    assert pcie_link(tmp_path, "0000:1b:00.0") == {}
    assert pcie_link(tmp_path, None) == {}


# ACS.


@pytest.mark.parametrize(
    ("space", "control"), [(config(0x1D), 0x1D), (config(), 0), (config(size=256), 0)]
)
def test_the_acs_register(tmp_path: Path, space: bytes, control: int) -> None:
    (tmp_path / "config").write_bytes(space)
    assert acs_control(tmp_path / "config") == control


def test_a_list_of_capabilities_that_goes_round_ends(tmp_path: Path) -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    (tmp_path / "config").write_bytes(space)
    assert acs_control(tmp_path / "config") == 0


def test_without_root_acs_is_unknown(tmp_path: Path) -> None:
    root = put(gpu_node(tmp_path), {f"{BRIDGE}/config": config(size=64)})
    notes = Notes(root)
    note_hardware(notes)
    assert "needs root" in notes.unknown["acs.redirects"]
    assert notes.facts.acs_redirects is None


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="Requires: root")
def test_the_real_configuration_space_as_root_and_as_nobody() -> None:
    spaces = Path("/sys/bus/pci/devices").glob("*/config")
    wide = next((str(path) for path in spaces if path.stat().st_size == 4096), None)
    if wide is None:
        pytest.skip("Requires: a PCI Express device")
    assert 0 <= acs_control(Path(wide)) < 1 << 16
    code = (
        "import os, sys; from pathlib import Path; from wirespeed.node.machine import acs_control\n"
        "os.setuid(65534)\n"
        "try: acs_control(Path(sys.argv[1]))\n"
        "except PermissionError: sys.exit(7)"
    )
    done = subprocess.run([sys.executable, "-c", code, wide], timeout=60)
    assert done.returncode == 7


# The kernel log.

XID = (
    "4,{},{},-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus."
)


def kmsg(root: Path, *lines: str) -> Notes:
    notes = Notes(put(root, {"dev/kmsg": "\n".join(lines), "proc/uptime": "5000.50 9000.00"}))
    note_driver_errors(notes)
    return notes


def test_xids_are_counted_by_gpu_and_number(tmp_path: Path) -> None:
    notes = kmsg(
        tmp_path,
        "6,0,0,-;Linux version 6.8.0",
        " SUBSYSTEM=pci",
        XID.format(1, 2_000_000),
        XID.format(2, 3_500_000),
        "4,3,4000000,-;NVRM: Xid (0000:41:00): 13",
        "4,4,5000000,-;nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 12028, Non-fatal, Link 32 egress",
        "4,5,6000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module",
    )
    assert notes.facts.gpu_xids == [
        {
            "kind": "Xid",
            "pci": "0000:3b:00",
            "code": 79,
            "count": 2,
            "first_s": 2.0,
            "last_s": 3.5,
            "text": "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        },
        {
            "kind": "Xid",
            "pci": "0000:41:00",
            "code": 13,
            "count": 1,
            "first_s": 4.0,
            "last_s": 4.0,
            "text": "",
        },
        {
            "kind": "SXid",
            "pci": "0000:a9:00.0",
            "code": 12028,
            "count": 1,
            "first_s": 5.0,
            "last_s": 5.0,
            "text": "Non-fatal, Link 32 egress",
        },
    ]
    assert notes.facts.kernel_log_first_s == 0.0
    assert notes.facts.uptime_s == 5000.5


def test_a_log_whose_beginning_was_overwritten_says_from_when_it_is(tmp_path: Path) -> None:
    notes = kmsg(tmp_path, "6,2760,20471086423,-;eth0: entered promiscuous mode")
    assert notes.facts.kernel_log_first_s == 20471.086423
    assert notes.facts.gpu_xids == []


def test_a_log_that_stays_open_does_not_hold_us(tmp_path: Path) -> None:
    """Like /dev/kmsg, a pipe with a writer has no end: nothing more to read is EAGAIN."""
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR)
    try:
        os.write(writer, XID.format(1, 1).encode() + b"\n" + XID.format(2, 2).encode())
        notes = Notes(tmp_path)
        note_driver_errors(notes)
    finally:
        os.close(writer)
    assert notes.facts.gpu_xids[0]["count"] == 1  # the second record is not whole
    assert "uptime_s" in notes.unknown


def test_a_log_that_may_not_be_read_says_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    notes = Notes(tmp_path)
    note_driver_errors(notes)
    assert notes.unknown["gpu.xids"].endswith("not permitted (it needs root or CAP_SYSLOG)")


# The machine.


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        ({"proc/cpuinfo": "flags\t: fpu hypervisor sse"}, True),
        ({"proc/cpuinfo": "flags\t: fpu sse"}, False),
        ({"proc/cpuinfo": "CPU part\t: 0xd4f"}, None),
        ({"sys/class/dmi/id/sys_vendor": "QEMU"}, True),
        ({"sys/class/dmi/id/sys_vendor": "NVIDIA"}, False),
        ({"sys/hypervisor/type": "xen"}, True),
    ],
)
def test_virtual_machines(tmp_path: Path, files: dict[str, str], virtual: bool | None) -> None:
    assert is_virtual(put(tmp_path, dict(files))) is virtual


def test_clouds_with_machines_of_both_kinds(tmp_path: Path) -> None:
    dmi = "sys/class/dmi/id"
    put(tmp_path, {f"{dmi}/sys_vendor": "Amazon EC2", f"{dmi}/product_name": "g5g.metal"})
    assert is_virtual(tmp_path) is False
    put(tmp_path, {f"{dmi}/product_name": "g5g.xlarge"})
    assert is_virtual(tmp_path) is True


@pytest.mark.parametrize(
    ("files", "who"),
    [
        ({"proc/self/cgroup": "0::/"}, ""),
        ({".dockerenv": ""}, "a container"),
        ({"proc/self/cgroup": "0::/kubepods.slice/pod1"}, "a container"),
        ({"proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7"}, "Slurm"),
        ({"proc/self/mountinfo": "36 35 0:98 / / rw,relatime - overlay overlay rw"}, "a container"),
        ({"proc/self/mountinfo": "36 35 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"}, ""),
        (
            {"proc/self/mountinfo": "9 3 0:9 / /proc/driver/nvidia rw - tmpfs tmpfs rw"},
            "a container",
        ),
    ],
)
def test_who_may_withhold_gpus(tmp_path: Path, files: dict[str, str], who: str) -> None:
    assert hides_devices(put(tmp_path, dict(files))) == who


# CPUs.


def test_cpus_of_the_launcher_count_and_not_our_binding(tmp_path: Path) -> None:
    everything = os.sched_getaffinity(0)
    if len(everything) < 2:
        pytest.skip("Requires: [CPUs>=2]")
    try:
        os.sched_setaffinity(0, {min(everything)})
        notes = Notes(tmp_path)
        limits.gather_cpus(notes)
    finally:
        os.sched_setaffinity(0, everything)
    assert notes.facts.cpu_allowed == 1
    assert notes.facts.cpu_shared >= len(os.sched_getaffinity(os.getppid()))


def test_without_a_visible_launcher_the_cpuset_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)
    notes = Notes(put(tmp_path, {"sys/fs/cgroup/cpuset.cpus.effective": "0-3,8,10-11"}))
    limits.gather_cpus(notes)
    assert notes.facts.cpu_shared == 7
    notes = Notes(tmp_path / "nothing")
    limits.gather_cpus(notes)
    assert "cpuset" in notes.unknown["cpu.shared"]


def test_the_driver_of_the_governor(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    notes = Notes(put(tmp_path, {f"{folder}/scaling_driver": "intel_pstate"}))
    limits.gather_cpus(notes)
    assert notes.facts.cpu_scaling_driver == "intel_pstate"
