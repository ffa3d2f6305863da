"""The rules of gloo, NCCL, UCX and Open MPI on interfaces written by hand."""

from ipaddress import ip_interface
from typing import Any

import pytest

from wirespeed.node.interface_choice import (
    choose_gloo,
    choose_nccl,
    match_hca,
    match_names,
    match_nccl,
    match_networks,
    match_ucx,
)
from wirespeed.node.interfaces import Interface, Named, holder_of


def nic(name: str, *addresses: str, **more: Any) -> Interface:
    return Interface(name=name, addresses=tuple(map(ip_interface, addresses)), **more)


LO = nic("lo", "127.0.0.1/8", "::1/128", kind="loopback")
ETH0 = nic("eth0", "10.0.0.5/24", "fe80::1/64", kind="physical")
ETH1 = nic("eth1", "10.1.0.5/24", kind="physical")
DOCKER = nic("docker0", "172.17.0.1/16", kind="bridge")
NAKED = nic("ens9")
ALL = (LO, ETH0, ETH1, DOCKER, NAKED)
HERE = Named("node-a", ("10.0.0.5",), "10.0.0.5")
PORTS = [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1)]


# gloo.


def test_gloo_takes_what_the_host_name_resolves_to() -> None:
    choice = choose_gloo({}, ALL, HERE)
    assert (choice.interfaces, choice.address) == (("eth0",), "10.0.0.5")


def test_debian_s_second_loopback_address_is_lo() -> None:
    choice = choose_gloo({}, ALL, Named("node-a", ("127.0.1.1",), "127.0.1.1"))
    assert (choice.interfaces, choice.address) == (("lo",), "127.0.1.1")


@pytest.mark.parametrize("addresses", [(), ("203.0.113.9",)])
def test_gloo_falls_back_to_loopback(addresses: tuple[str, ...]) -> None:
    choice = choose_gloo({}, ALL, Named("node-a", addresses))
    assert (choice.interfaces, choice.address) == (("lo",), "127.0.0.1")
    assert ("203.0.113.9" in choice.why) is bool(addresses)


def test_gloo_takes_a_list_of_exact_names() -> None:
    choice = choose_gloo({"GLOO_SOCKET_IFNAME": "eth1,eth0"}, ALL, HERE)
    assert (choice.interfaces, choice.address) == (("eth1", "eth0"), "10.1.0.5")


@pytest.mark.parametrize("setting", ["", "x"])
def test_gloo_ignores_a_name_of_one_letter(setting: str) -> None:
    assert choose_gloo({"GLOO_SOCKET_IFNAME": setting}, ALL, HERE).interfaces == ("eth0",)


@pytest.mark.parametrize("setting", ["eth", "ib0", "eth0,ib0", "^lo", "ens9", "eth0, eth1"])
def test_gloo_fails_on_anything_else(setting: str) -> None:
    choice = choose_gloo({"GLOO_SOCKET_IFNAME": setting}, ALL, HERE)
    assert (choice.interfaces, choice.address) == ((), "")


def test_gloo_s_entries_are_told_apart() -> None:
    matched = match_names("eth0,ib0,ens9,", ALL)
    assert (matched.chosen, matched.missing, matched.bare) == (("eth0",), ("ib0",), ("ens9",))
    assert match_names("eth0, eth1", ALL).missing == (" eth1",)


# NCCL.


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        ("eth", ("eth0", "eth1")),
        ("=eth1", ("eth1",)),
        ("=eth", ()),
        ("=eth0,eth1", ("eth0", "eth1")),
        ("^docker,lo", ("eth0", "eth1")),
        ("^=docker0", ("lo", "eth0", "eth1")),
        ("ib,eth1", ("eth1",)),
        ("ens9", ()),
        ("e", ("eth0", "eth1")),  # one letter is ignored, and the automatic choice is these two
    ],
)
def test_nccl_s_prefixes(setting: str, chosen: tuple[str, ...]) -> None:
    assert choose_nccl({"NCCL_SOCKET_IFNAME": setting}, ALL).interfaces == chosen


def test_nccl_by_itself_leaves_docker_and_lo() -> None:
    assert choose_nccl({}, ALL).interfaces == ("eth0", "eth1")
    assert choose_nccl({}, (LO, DOCKER)).interfaces == ("docker0",)
    assert choose_nccl({}, (LO,)).interfaces == ("lo",)
    assert choose_nccl({}, ()).interfaces == ()


def test_nccl_prefers_ib_then_the_subnet_of_the_id() -> None:
    ib = nic("ib0", "10.9.0.5/24")
    assert choose_nccl({}, (*ALL, ib)).interfaces == ("ib0",)
    assert choose_nccl({"NCCL_COMM_ID": "10.1.0.9:4000"}, ALL).interfaces == ("eth1",)
    assert choose_nccl({"NCCL_COMM_ID": "[fe80::9]:4000"}, ALL).interfaces == ("eth0",)
    assert choose_nccl({"NCCL_COMM_ID": "node-b:4000"}, ALL).interfaces == ("eth0", "eth1")


def test_nccl_leaves_what_does_not_run_or_has_no_address_of_the_family() -> None:
    down = nic("eth0", "10.0.0.5/24", running=False)
    assert choose_nccl({}, (down, ETH1)).interfaces == ("eth1",)
    six = {"NCCL_SOCKET_FAMILY": "AF_INET6"}
    choice = choose_nccl(six, ALL)
    assert (choice.interfaces, choice.address) == (("eth0",), "fe80::1")


def test_interfaces_with_ipv4_come_first() -> None:
    six = nic("eth9", "fd00::5/64")
    assert choose_nccl({}, (six, ETH0)).interfaces == ("eth0", "eth9")


def test_nccl_s_entries_are_told_apart() -> None:
    matched = match_nccl({"NCCL_SOCKET_IFNAME": "eth,ib,ens9"}, ALL)
    assert matched.chosen == ("eth0", "eth1")
    assert (matched.missing, matched.bare) == (("ib",), ("ens9",))
    assert match_nccl({"NCCL_SOCKET_IFNAME": "^nothing"}, ALL).missing == ()


@pytest.mark.parametrize(
    ("setting", "chosen", "missing"),
    [
        ("", ("mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"), ()),
        ("mlx5_1", ("mlx5_1:1", "mlx5_1:2", "mlx5_10:1"), ()),
        ("=mlx5_1", ("mlx5_1:1", "mlx5_1:2"), ()),
        ("=mlx5_1:2", ("mlx5_1:2",), ()),
        ("=mlx5_1::0:0", ("mlx5_1:1", "mlx5_1:2"), ()),
        ("=mlx5_0:1:0:1,mlx5_9", ("mlx5_0:1",), ("mlx5_9",)),
        ("^=mlx5_1,mlx5_10", ("mlx5_0:1",), ()),
        ("^mlx5", (), ()),
        ("bnxt", (), ("bnxt",)),
        ("=mlx5_0:2", (), ("mlx5_0:2",)),
    ],
)
def test_hca_lists(setting: str, chosen: tuple[str, ...], missing: tuple[str, ...]) -> None:
    matched = match_hca(setting, PORTS)
    assert (matched.chosen, matched.missing) == (chosen, missing)


# UCX and Open MPI.


def test_ucx_takes_interfaces_and_ports() -> None:
    assert match_ucx("mlx5_0:1,eth0", ALL, PORTS).chosen == ("mlx5_0:1", "eth0")
    assert match_ucx("mlx5_9:1,eth0", ALL, PORTS).missing == ("mlx5_9:1",)
    assert match_ucx("all", ALL, PORTS).missing == ()


def test_open_mpi_takes_names_and_networks() -> None:
    assert match_networks("10.0.0.0/8", ALL).chosen == ("eth0", "eth1")
    assert match_networks("eth1,192.168.0.0/16", ALL).missing == ("192.168.0.0/16",)
    assert match_networks("not/a/network", ALL).missing == ("not/a/network",)


def test_who_holds_an_address() -> None:
    assert holder_of("10.1.0.5", ALL) is ETH1
    assert holder_of("fe80::1%eth0", ALL) is ETH0
    assert holder_of("10.1.0.6", ALL) is None
    assert holder_of("127.0.1.1", (ETH0,)) is None


def test_networks_are_those_that_lead_somewhere() -> None:
    assert ETH0.networks == ("10.0.0.0/24",)
