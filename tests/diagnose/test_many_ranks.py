"""Hundreds of ranks' real messages, interleaved: the planted cause is first, whatever the order."""

import random
from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding

RANKS = 256


def who(rank: int) -> str:
    return f"[rank{rank}]: gpu-{rank // 8:02d}:{400 + rank}:{900 + rank} [{rank % 8}]"


def consequences(rank: int) -> list[str]:
    return [
        f"{who(rank)} misc/socket.cc:881 NCCL WARN socketProgress: Connection closed by remote peer "
        "gpu-07<42311>",
        f"{who(rank)} proxy.cc:1458 NCCL WARN [Service thread] Accept failed Resource temporarily "
        "unavailable",
        f"[rank{rank}]:[E1120 23:59:59.1 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=48211, OpType=ALLREDUCE, NumelIn=26214400, "
        "NumelOut=26214400, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
        f"[rank{rank}]:[E1120 23:59:59.2 ProcessGroupNCCL.cpp:729] [Rank {rank}] Some NCCL operations "
        "have failed or timed out.",
    ]


CAUSES = {
    "host-oom-kill": "[pod/gpu-07/agent] Out of memory: Killed process 460 (python) total-vm:9kB",
    "gpu-lost": "[pod/gpu-07/agent] NVRM: Xid (PCI:0000:3b:00): 79, pid=460, GPU has fallen off "
    "the bus.",
    "unknown": "[rank60]: ValueError: cannot reshape array of size 0 into shape (4,8)",
    "shm-too-small": f"{who(60)} include/shm.h:28 NCCL WARN Call to posix_fallocate failed : "
    "No space left on device",
}


def first(folder: Path, lines: list[str]) -> Finding:
    return read(folder, *lines).findings[0]


@pytest.mark.slow
@pytest.mark.parametrize("category", CAUSES)
@pytest.mark.parametrize("seed", range(2))
def test_the_planted_cause_is_first(tmp_path: Path, category: str, seed: int) -> None:
    rng = random.Random(seed)
    lines = [line for rank in range(RANKS) if rank != 60 for line in consequences(rank)] * 3
    rng.shuffle(lines)
    lines.insert(rng.randrange(len(lines)), CAUSES[category])
    found = first(tmp_path, lines)
    if category == "unknown":
        assert (found.id, found.status, found.subject.name) == ("LOG-002", "warn", "rank 60")
    else:
        assert (found.status, found.category) == ("fail", category)
    assert any("follows from it" in line for line in found.evidence)


def test_two_causes_on_two_hosts_are_both_told(tmp_path: Path) -> None:
    lines = [line for rank in range(RANKS) for line in consequences(rank)]
    lines[100:100] = [CAUSES["gpu-lost"]]
    lines[700:700] = [CAUSES["shm-too-small"].replace("gpu-07", "gpu-11")]
    found = read(tmp_path, *lines).findings
    assert [one.category for one in found if one.status == "fail"] == ["gpu-lost", "shm-too-small"]
