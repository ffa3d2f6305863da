"""nccl-tests that mpirun started as several jobs, and tests that only look so."""

from itertools import chain, zip_longest
from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding


def copy(pid: int, devices: list[tuple[int, str]], busbw: str = "0") -> list[str]:
    """What one job prints (nccl-tests 2.13): header, devices as (rank, host), table, summary."""
    head = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 33554432 step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    listed = [
        f"#  Rank {rank:2d} Group  0 Pid {pid + rank:6d} on {host:>10} device  0 [0x07] NVIDIA H100 80GB"
        for rank, host in devices
    ]
    table = [
        "#",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time",
        "           8             2     float     sum      -1     5.12    0.00    0.00      0     0.21",
        "    33554432       8388608     float     sum      -1    45.12  743.67    0.00      0     0.21",
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {busbw}",
        "#",
    ]
    return [*head, *listed, *table]


def told(folder: Path, lines: list[str]) -> list[Finding]:
    return [one for one in read(folder, *lines).findings if one.status in ("fail", "warn")]


def interleaved(*copies: list[str]) -> list[str]:
    return [line for line in chain.from_iterable(zip_longest(*copies)) if line is not None]


@pytest.mark.parametrize("hosts", [("n0", "n1"), ("n0", "n0")])
def test_two_interleaved_copies_are_separate_jobs(tmp_path: Path, hosts: tuple[str, str]) -> None:
    lines = interleaved(*(copy(100 + 50 * at, [(0, host)]) for at, host in enumerate(hosts)))
    (found,) = told(tmp_path, lines)
    assert (found.status, found.category) == ("fail", "mpi-separate-jobs")
    assert found.title.startswith("2 separate, independent jobs of nccl-tests with one rank each")
    assert "MPI=1" in found.fix and "libmpi" in found.next


def test_copies_one_after_another_of_two_launcher_ranks(tmp_path: Path) -> None:
    """A pipe holds a copy's lines back until its end: they come in whole."""
    lines = [
        f"[1,{rank}]<stdout>:{line}"
        for rank in (0, 1)
        for line in copy(100 * rank, [(0, f"n{rank}")])
    ]
    (found,) = told(tmp_path, lines)
    assert found.category == "mpi-separate-jobs"


def test_copies_one_after_another_on_hosts_of_their_own(tmp_path: Path) -> None:
    (found,) = told(tmp_path, [*copy(100, [(0, "n0")]), *copy(200, [(0, "n1")])])
    assert found.category == "mpi-separate-jobs"
    assert told(tmp_path, [*copy(100, [(0, "n0")]), *copy(200, [(0, "n0")])]) == []


def test_eight_gpus_in_each_copy(tmp_path: Path) -> None:
    copies = [copy(100 * at, [(rank, f"n{at}") for rank in range(8)], "400") for at in range(2)]
    (found,) = told(tmp_path, interleaved(*copies))
    assert "jobs of nccl-tests with 8 ranks each" in found.title and "n0, n1" in found.title


def test_one_job_of_two_nodes(tmp_path: Path) -> None:
    assert told(tmp_path, copy(100, [(0, "n0"), (1, "n1")], "97.1")) == []


def test_tests_one_after_another_are_no_copies(tmp_path: Path) -> None:
    one, two = copy(100, [(0, "n0"), (1, "n1")], "97.1"), copy(300, [(0, "n0"), (1, "n1")], "88.3")
    assert told(tmp_path, [*one, *two]) == []
    marked = [f"[1,0]<stdout>:{line}" for line in (*one, *two)]
    assert told(tmp_path, marked) == []
