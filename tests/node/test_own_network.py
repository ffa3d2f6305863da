"""What is noted on this machine, against what torch's gloo really does here."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from wirespeed.model.codec import to_json
from wirespeed.node.interface_choice import nccl_settings, note_network
from wirespeed.node.interfaces import ask_driver, kind_of_driver, read_interfaces
from wirespeed.node.reading import Notes

_LISTEN = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import psutil, torch.distributed as dist

def tell(setting):
    if setting:
        os.environ["GLOO_SOCKET_IFNAME"] = setting
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    else:
        ends = psutil.Process().net_connections("inet")
        print(json.dumps({"addresses": sorted({end.laddr.ip for end in ends})}), flush=True)
    os._exit(0)

for setting in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        tell(setting)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{setting}: it ended otherwise")
"""
Listening = dict[str, dict[str, object]]
WRONG = ("ib77", "^lo", "lo, lo", "lo,,lo")


def noted(**environ: str) -> Notes:
    notes = Notes()
    note_network(notes, environ, [], [])
    return notes


@pytest.fixture(scope="module")
def listening() -> Listening:
    """Where gloo of the installed torch listens, by setting; each in a process of its own.

    They are forks of one that has imported torch.
    """
    settings = ["", an_interface(), "x", *WRONG]
    done = subprocess.run(
        [sys.executable, "-c", _LISTEN, json.dumps(settings)],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(zip(settings, map(json.loads, done.stdout.splitlines()), strict=True))


def an_interface() -> str:
    """One that is up and has an IPv4 address, not the loopback where there is another."""
    chosen = noted().facts.net_nccl_interfaces
    return str(chosen[0])


@pytest.mark.slow
def test_gloo_listens_where_the_host_name_leads(listening: Listening) -> None:
    assert listening[""]["addresses"] == [noted().facts.net_gloo_address]


def test_gloo_listens_on_the_interface_that_is_set(listening: Listening) -> None:
    setting = {"GLOO_SOCKET_IFNAME": an_interface()}
    facts = noted(**setting).facts
    assert facts.net_gloo_interface == setting["GLOO_SOCKET_IFNAME"]
    assert listening[an_interface()]["addresses"] == [facts.net_gloo_address]


@pytest.mark.parametrize("setting", WRONG)
def test_gloo_fails_where_we_say_that_it_does(listening: Listening, setting: str) -> None:
    facts = noted(GLOO_SOCKET_IFNAME=setting).facts
    assert facts.net_gloo_interface == ""
    (told,) = facts.net_settings or []
    assert told["missing"]
    assert "error" in listening[setting]


def test_gloo_ignores_one_letter_as_we_say(listening: Listening) -> None:
    facts = noted(GLOO_SOCKET_IFNAME="x").facts
    assert facts.net_settings == []
    assert listening["x"]["addresses"] == [facts.net_gloo_address]


def test_all_facts_are_json_and_none_is_nameless() -> None:
    notes = noted(NCCL_SOCKET_IFNAME="^lo", NCCL_IB_HCA="=mlx5_0", UCX_NET_DEVICES="all")
    assert json.loads(json.dumps(to_json(notes.facts))) == to_json(notes.facts)
    assert all(name.startswith("net.") for name in (*to_json(notes.facts), *notes.unknown))
    assert [one["name"] for one in notes.facts.net_settings] == [
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_HCA",
        "UCX_NET_DEVICES",
    ]


def test_every_interface_with_an_address_is_noted() -> None:
    expected = {
        name
        for name, found in psutil.net_if_addrs().items()
        if any(one.family.name in ("AF_INET", "AF_INET6") for one in found)
    }
    told = {one["name"]: one for one in noted().facts.net_interfaces}
    assert set(told) == expected
    assert told["lo"]["kind"] == "loopback"


def test_the_speed_of_the_nics_is_taken_over() -> None:
    notes, name = Notes(), an_interface()
    note_network(notes, {}, [{"name": name, "speed_Gbitps": 25.0}], [])
    (one,) = [found for found in notes.facts.net_interfaces if found["name"] == name]
    assert one["speed_Gbitps"] == 25.0


def test_rdma_ports_are_matched() -> None:
    notes = Notes()
    ports = [{"device": "mlx5_0", "port": 1}, {"device": "mlx5_1", "port": 1}]
    note_network(notes, {"NCCL_IB_HCA": "=mlx5_1,mlx5_7"}, [], ports)
    assert notes.facts.net_hca == ["mlx5_1:1"]
    assert notes.facts.net_settings[0]["missing"] == ["mlx5_7"]


def test_nccl_s_files_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1\nPATH=/x\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.nccl.conf").write_text("# NCCL_PROTO=LL\nNCCL_SOCKET_IFNAME=eth1\nbroken\n")
    environ = {"HOME": "/home", "NCCL_DEBUG": "INFO"}
    assert nccl_settings(tmp_path, environ) == {"NCCL_SOCKET_IFNAME": "eth1"}
    (tmp_path / "own.conf").write_text("NCCL_ALGO=Ring\n")
    found = nccl_settings(tmp_path, {**environ, "NCCL_CONF_FILE": "/own.conf"})
    assert found == {"NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "=ens1"}


def test_a_secret_in_nccl_s_file_is_not_noted(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_NET_AUTH=abc\nNCCL_DEBUG=WARN\n")
    notes = Notes(tmp_path)
    note_network(notes, {}, [], [])
    assert notes.facts.net_nccl_conf == {"NCCL_DEBUG": "WARN"}


# Kinds.


@pytest.mark.parametrize(
    ("driver", "bus", "kind"),
    [
        ("veth", "", "veth"),
        ("bridge", "N/A", "bridge"),
        ("bonding", "", "bond"),
        ("tun", "tap", "tunnel"),
        ("802.1Q VLAN Support", "", "vlan"),
        ("mlx5_core", "0000:3b:00.0", "physical"),
        ("virtio_net", "virtio0", "physical"),
        ("nobody", "", ""),
        ("", "", ""),
    ],
)
def test_a_driver_tells_the_kind(driver: str, bus: str, kind: str) -> None:
    assert kind_of_driver(driver, bus) == kind


def test_no_interface_has_no_driver() -> None:
    assert ask_driver("nosuchif0") == ("", "")
    assert ask_driver("a-name-that-is-longer-than-any-interface-has") == ("", "")


def _false_sys(root: Path, name: str, hardware: str) -> Path:
    folder = root / "sys/class/net" / name
    folder.mkdir(parents=True)
    (folder / "address").write_text(hardware)
    (folder / "bridge").mkdir()
    return folder


def test_a_bridge_with_a_wire_is_told_from_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, "br0", "02:00:00:00:00:01")
    folder = _false_sys(tmp_path, "br0", "02:00:00:00:00:01")
    assert [(one.kind, one.wired) for one in read_interfaces(tmp_path, [])] == [("bridge", False)]
    device = tmp_path / "sys/devices/pci0/net/eno1"
    (device / "brport").mkdir(parents=True)
    (device / "device").mkdir()
    (folder / "brif").mkdir()
    (folder / "brif/eno1").symlink_to(device / "brport")
    assert [(one.kind, one.wired) for one in read_interfaces(tmp_path, [])] == [("bridge", True)]


def test_another_namespace_s_sys_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, "br0", "02:00:00:00:00:01")
    _false_sys(tmp_path, "br0", "02:00:00:00:00:99")
    (one,) = read_interfaces(tmp_path, [])
    assert one.kind == "unknown"


def _pretend(monkeypatch: pytest.MonkeyPatch, name: str, hardware: str) -> None:
    """Let psutil tell of one interface that no driver here knows."""
    found = [
        SimpleNamespace(family=socket.AF_INET, address="10.0.0.1", netmask="255.255.255.0"),
        SimpleNamespace(family=socket.AF_PACKET, address=hardware, netmask=None),
    ]
    state = SimpleNamespace(flags="up,broadcast,running")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {name: found})
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {name: state})
