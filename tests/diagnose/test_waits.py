"""Which rank is behind, from what the watchdogs of several ranks print."""

from pathlib import Path

from logs import read
from wirespeed.model.records import Finding


def timeout(rank: int, seq: int, op: str = "ALLREDUCE") -> str:
    return (
        f"[rank{rank}]:[E1120 23:59:59.1 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1024, "
        "NumelOut=1024, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
    )


def status(rank: int, enqueued: int, completed: int) -> str:
    return (
        f"[rank{rank}]:[E1120 23:59:59.2 ProcessGroupNCCL.cpp:2200] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] failure detected by watchdog at work sequence id: 7 PG status: last enqueued "
        f"work: {enqueued}, last completed work: {completed}\n"
    )


def first(folder: Path, text: str) -> Finding:
    return read(folder, text).findings[0]


def test_the_rank_that_never_enqueued_it_is_named(tmp_path: Path) -> None:
    lines = [timeout(rank, 41) + status(rank, 43, 40) for rank in (0, 1, 3)]
    found = first(tmp_path, "".join(lines) + status(2, 40, 40))
    assert (found.id, found.status, found.subject.name) == ("WAIT-001", "fail", "rank 2")
    assert "ALLREDUCE (sequence number 41, size 1024)" in found.title


def test_ranks_that_are_equally_far_blame_nobody(tmp_path: Path) -> None:
    lines = [timeout(rank, 41) + status(rank, 41, 40) for rank in range(4)]
    found = first(tmp_path, "".join(lines))
    assert (found.status, found.confidence) == ("warn", "cannot tell")


def test_a_rank_that_waits_in_another_collective_is_not_blamed(tmp_path: Path) -> None:
    """Two groups in two orders: each waits for the other."""
    lines = [timeout(rank, 41) + status(rank, 43, 40) for rank in (0, 1)]
    found = first(tmp_path, "".join(lines) + timeout(2, 7, "ALLTOALL") + status(2, 7, 6))
    assert (found.status, found.confidence) == ("warn", "cannot tell")
