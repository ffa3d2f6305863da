"""The session listens where it was told to, and nowhere else."""

import socket

import psutil
import pytest

from wirespeed.launchers.base import Job
from wirespeed.launchers.request import INTERFACE, made_ready
from wirespeed.node.identity import Identity
from wirespeed.session.record_stream import VARIABLE
from wirespeed.session.rendezvous import ANY, listening_address, reached_at

WORLD = Identity(
    rank=0,
    world_size=2,
    local_rank=0,
    local_world_size=1,
    launcher="env",
    reason="",
    master_addr="node-0",
)


@pytest.fixture
def interface() -> tuple[str, str]:
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return name, one.address
    pytest.skip("Requires: an interface besides loopback with an IPv4 address")


def test_the_chosen_interface_s_address(interface: tuple[str, str]) -> None:
    name, address = interface
    assert listening_address(WORLD, {INTERFACE: name}) == address
    assert listening_address(WORLD, {VARIABLE: "x", "GLOO_SOCKET_IFNAME": name}) == address
    assert reached_at(address) == address


def test_a_variable_set_by_hand_does_not_bind_it(interface: tuple[str, str]) -> None:
    """It may be the mistake that the run shall find."""
    assert listening_address(WORLD, {"GLOO_SOCKET_IFNAME": interface[0]}) == ANY
    assert reached_at(ANY) == "127.0.0.1"


@pytest.mark.parametrize("name", ["", "lo", "no-such-interface"])
def test_what_leads_nowhere_binds_nothing(name: str) -> None:
    assert listening_address(WORLD, {INTERFACE: name}) == ANY


def test_a_world_on_loopback_is_not_shown_to_others() -> None:
    from dataclasses import replace

    assert listening_address(replace(WORLD, master_addr="127.0.0.1"), {}) == "127.0.0.1"


def test_ranks_are_told_the_interface_unless_the_user_has_said_another() -> None:
    job = made_ready(Job(command=(), interface="eth7", environment={"NCCL_SOCKET_IFNAME": "ib0"}))
    told = {name: job.environment[name] for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    assert told == {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "ib0"}
    assert job.environment[INTERFACE] == "eth7"
    assert INTERFACE not in made_ready(Job(command=())).environment
