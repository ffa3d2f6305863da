"""Addresses that no peer can have, RDMA that was wanted, connections that are tried again."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.diagnose.diagnose import Reading

SOCKET = "node-0:1:2 [0] NCCL INFO Using network Socket"
HCA = "node-0:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0"
PLUGIN = "node-0:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v8)"
DEVICE = "+ docker run --device=/dev/infiniband --gpus all image"
DISABLED = "node-0:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1."
NO_DEVICE = "node-0:1:2 [0] NCCL INFO NET/IB : No device found."
RETRY = (
    "node-0:1:2 [0] NCCL INFO socketPollConnect: connect to 10.0.0.3<33513> returned Connection "
    "timed out, retrying (1/34) after sleep for 100 msec"
)
CONNECTED = "node-0:1:2 [0] NCCL INFO Connected all rings"


def warned(reading: Reading) -> list[tuple[str, str]]:
    return [(one.id, one.status) for one in reading.findings if one.status in ("fail", "warn")]


@pytest.mark.parametrize("wanted", [HCA, PLUGIN, DEVICE])
def test_sockets_where_rdma_was_wanted_are_a_symptom_on_one_host_too(
    tmp_path: Path, wanted: str
) -> None:
    reading = read(tmp_path, wanted, SOCKET)
    assert [status for _, status in warned(reading)] == ["warn"]
    assert reading.findings[0].category == "rdma-not-used" and reading.exit_code == 3


def test_whose_cause_shows_is_a_cause(tmp_path: Path) -> None:
    assert ("NSOCK-031", "fail") in warned(read(tmp_path, HCA, NO_DEVICE, SOCKET))


def test_who_switched_rdma_off_wanted_it_so(tmp_path: Path) -> None:
    reading = read(tmp_path, PLUGIN, HCA, DISABLED, SOCKET)
    assert warned(reading) == []
    assert any("sockets by the user's own wish" in one.title for one in reading.findings)


def test_sockets_alone_are_no_trouble(tmp_path: Path) -> None:
    assert warned(read(tmp_path, NO_DEVICE, SOCKET)) == []


INTERFACES = [
    "NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
    "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
    "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0> [1]virbr0:192.168.122.1<0>",
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth1:169.254.3.1<0>",
    "NCCL INFO NET/Socket : Using [0]veth12ab:fe80::1%veth12ab<0>",
    "NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>",
]


@pytest.mark.parametrize("said", INTERFACES)
def test_an_interface_that_leads_to_the_own_host(tmp_path: Path, said: str) -> None:
    one = f"node-1:1:2 [0] {said}"
    other = "node-0:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>"
    reading = read(tmp_path, other, other, one, other)
    assert warned(reading) == [("ADDR-010", "warn")]
    assert "job.log:3" in reading.findings[0].saw
    # On one host, and where it worked, it is fine.
    assert warned(read(tmp_path, one, one)) == []
    assert warned(read(tmp_path, other, one, CONNECTED, other)) == []


@pytest.mark.parametrize(
    ("said", "nodes"),
    [
        ("  master_addr=127.0.0.1", "  group_world_size={}"),
        ("  rdzv_endpoint    : localhost:29500", "  max_nodes        : {}"),
        ("[INFO] [launch.py:1:main] master_addr=0.0.0.0", "nnodes={}, num_local_procs=8"),
    ],
)
def test_a_rendezvous_at_the_own_host(tmp_path: Path, said: str, nodes: str) -> None:
    assert warned(read(tmp_path, said, nodes.format(2))) == [("ADDR-010", "warn")]
    assert warned(read(tmp_path, said, nodes.format(1))) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("255.255.255.0", ("ADDR-001", "fail")),
        ("0.0.0.0", ("ADDR-001", "fail")),
        ("169.254.7.9", ("ADDR-004", "warn")),
    ],
)
def test_an_address_of_nobody_is_the_cause_and_a_link_local_one_may_be(
    tmp_path: Path, address: str, said: tuple[str, str]
) -> None:
    line = (
        f"[W socket.cpp:697] [c10d] The client socket has failed to connect to [{address}]:29500 "
        "(errno: 113 - No route to host)."
    )
    assert warned(read(tmp_path, line, line))[0] == said


def test_connections_that_are_tried_again_and_never_succeed(tmp_path: Path) -> None:
    assert warned(read(tmp_path, RETRY, RETRY)) == [("RETRY-001", "warn")]
    assert warned(read(tmp_path, RETRY, CONNECTED)) == []
    assert warned(read(tmp_path, RETRY, "step 10 loss 3.1")) == []
    assert warned(read(tmp_path, "step 10 loss 3.1", RETRY)) == [("RETRY-001", "warn")]
    assert warned(read(tmp_path, CONNECTED, RETRY)) == [("RETRY-001", "warn")]
