"""Who says something else than most."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding, Subject


def logs(folder: Path, networks: list[str]) -> list[tuple[str, str, str]]:
    lines = [
        f"gpu-{node}:10:20 [0] NCCL INFO Using network {network}"
        for node, network in enumerate(networks)
    ]
    found = read(folder, *lines).findings
    return [(one.id, one.status, one.subject.name) for one in found if one.id == "DIAG-002"]


def test_the_one_on_another_network_is_named(tmp_path: Path) -> None:
    assert logs(tmp_path, ["IB", "IB", "Socket", "IB"]) == [("DIAG-002", "warn", "gpu-2")]


def test_all_alike_is_no_finding(tmp_path: Path) -> None:
    assert logs(tmp_path, ["IB"] * 4) == []
    assert logs(tmp_path, ["IB"]) == []


def test_without_a_majority_both_sides_are_told(tmp_path: Path) -> None:
    for networks in (["IB", "Socket"], ["IB", "IB", "Socket", "Socket"]):
        assert logs(tmp_path, networks) == [("DIAG-002", "warn", "job")]
    (told,) = warnings(
        tmp_path,
        "gpu-0:1:2 [0] NCCL INFO Using network IB",
        "gpu-1:1:2 [0] NCCL INFO Using network Socket",
    )
    assert "gpu-0: network IB" in told.title and "gpu-1: network Socket" in told.title


def warnings(folder: Path, *lines: str) -> list[Finding]:
    return [one for one in read(folder, *lines).findings if one.id == "DIAG-002"]


GOOD_AND_ODD = [
    ("NCCL version 2.21.5+cuda12.4", "NCCL version 2.20.3+cuda12.4"),
    ("NCCL INFO cudaDriverVersion 12040", "NCCL INFO cudaDriverVersion 12020"),
    (
        "NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v8)",
        "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
    ),
    (
        "NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
    ),
    (
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.1.0.1<0>",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.1.0.2<0>",
    ),
    (
        "NCCL INFO 16 coll channels, 0 nvls channels, 16 p2p channels, 1 p2p channels per peer",
        "NCCL INFO 2 coll channels, 0 nvls channels, 16 p2p channels, 1 p2p channels per peer",
    ),
]


@pytest.mark.parametrize(("good", "odd"), GOOD_AND_ODD)
def test_the_odd_one_is_named_in_a_fragment(tmp_path: Path, good: str, odd: str) -> None:
    lines = [f"gpu-{node}:10:20 [0] {odd if node == 2 else good}" for node in range(4)]
    (told,) = warnings(tmp_path, *lines)
    assert told.subject == Subject("node", "gpu-2")
    assert told.evidence[0].startswith("job.log:3: ")
    assert warnings(tmp_path, *(line for line in lines if "gpu-2" not in line)) == []


def test_one_rank_of_a_host_may_be_the_odd_one(tmp_path: Path) -> None:
    lines = [
        f"gpu-0:1{gpu}:20 [{gpu}] NCCL INFO Using network {'Socket' if gpu == 3 else 'IB'}"
        for gpu in range(4)
    ]
    (told,) = warnings(tmp_path, *lines)
    assert told.title.startswith("gpu-0 GPU 3: not the same network as on 3 of 4")
    assert told.subject == Subject("node", "gpu-0")


def test_ranks_of_several_communicators_are_not_compared_by_their_channels(tmp_path: Path) -> None:
    """A job with tensor and data parallel groups has another number in each."""
    said = "NCCL INFO {} coll channels, 0 nvls channels, 16 p2p channels, 1 p2p channels per peer"
    lines = [f"gpu-{node}:10:20 [0] {said.format(16)}" for node in range(3)]
    assert warnings(tmp_path, *lines, f"gpu-0:10:20 [0] {said.format(4)}") == []


def test_an_error_that_tells_its_version_without_cuda_is_no_other_version(tmp_path: Path) -> None:
    lines = ["gpu-0:1:1 [0] NCCL INFO NCCL version 2.7.8+cuda10.2"]
    assert warnings(tmp_path, *lines, "[rank1]: unhandled system error, NCCL version 2.7.8") == []


def test_the_odd_one_among_a_thousand_is_found(tmp_path: Path) -> None:
    lines = [
        f"gpu-{node}:10:20 [0] NCCL INFO Using network {'Socket' if node == 900 else 'IB'}"
        for node in range(1024)
    ]
    (told,) = warnings(tmp_path, *lines)
    assert told.subject == Subject("node", "gpu-900")
