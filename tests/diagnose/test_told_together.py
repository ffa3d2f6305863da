"""Rules that need several lines: what one of them alone says is no trouble."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding

BARRIER = (
    "store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1"
)
GID = (
    "vm-14:106:196 [0] transport/net_ib.cc:73 NCCL WARN NET/IB : Got async event : GID table change"
)
FAILED = "vm-14:108:593 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 3"
RAS = """#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation {behind}
  Rank 3 -- GPU 3 managed by process 483072 on node 172.16.64.210
"""


def answered(folder: Path, log: str) -> Finding | None:
    found = read(folder, log).findings
    return next((one for one in found if one.status in ("fail", "warn")), None)


def test_ranks_that_are_behind_are_named_with_their_operation(tmp_path: Path) -> None:
    found = answered(tmp_path, RAS.format(behind=6648))
    assert found is not None
    assert (found.status, found.category) == ("fail", "collective-mismatch")
    assert "6 at operation 6648, 26 at operation 6650" in found.title
    assert "rank(s) 3 " in found.title


def test_one_operation_behind_is_no_fault_of_a_job_that_runs(tmp_path: Path) -> None:
    found = answered(tmp_path, RAS.format(behind=6649))
    assert found is not None
    assert (found.status, found.confidence) == ("warn", "cannot tell")
    assert "6 at operation 6649, 26 at operation 6650" in found.title
    assert "again after 10 s" in found.fix


@pytest.mark.parametrize(
    "silent",
    [
        "  The missing rank: 21",
        "  Encountered 2 communication timeouts while gathering",
        "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6650, "
        "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600068 milliseconds "
        "before timing out.",
    ],
)
def test_one_operation_behind_is_a_fault_where_ranks_do_not_answer(
    tmp_path: Path, silent: str
) -> None:
    found = answered(tmp_path, RAS.format(behind=6649) + silent + "\n")
    assert found is not None
    assert (found.status, found.category) == ("fail", "collective-mismatch")


def test_reports_of_different_moments_are_not_compared(tmp_path: Path) -> None:
    """The job made 2,000 operations between the two."""
    later = RAS.format(behind=6649).replace("66", "86")
    found = answered(tmp_path, f"{RAS.format(behind=6649)}\n{later}")
    assert found is not None and found.status == "warn"


def test_ranks_at_one_operation_are_no_mismatch(tmp_path: Path) -> None:
    assert answered(tmp_path, RAS.format(behind=6650)) is None


@pytest.mark.parametrize(
    ("joined", "category"), [(4, "world-mismatch"), (1, "missing-ranks"), (2, None)]
)
def test_who_joined_is_compared_with_the_world(
    tmp_path: Path, joined: int, category: str | None
) -> None:
    count = f"(world_size=2, worker_count={joined}, timeout=0:30:00)"
    late = f"Timed out initializing process group in store based barrier on rank: 0 {count}"
    end = "" if joined == 2 else f"RuntimeError: {late}\n"
    found = answered(tmp_path, f"INFO:root:Waiting in {BARRIER} {count}\n{end}")
    assert (found and found.category) == category


def test_fewer_have_joined_while_a_healthy_job_starts(tmp_path: Path) -> None:
    log = f"Waiting in {BARRIER} (world_size=8, worker_count=3, timeout=0:30:00)\n"
    assert answered(tmp_path, log) is None


def test_fewer_clients_than_the_world_are_missing_ranks(tmp_path: Path) -> None:
    """More cannot be printed: the store's wait ends as soon as the world size has joined."""
    line = "DistStoreError: Timed out after 601 seconds waiting for clients."
    found = answered(tmp_path, f"{line} 7/8 clients joined.\n")
    assert found is not None and found.category == "missing-ranks"


def test_a_changed_gid_table_harms_only_where_transfers_fail_then(tmp_path: Path) -> None:
    assert answered(tmp_path, f"{GID}\n") is None
    found = answered(tmp_path, f"{GID}\n{FAILED}\n")
    assert found is not None and found.category == "ib-gid-change"
    alone = answered(tmp_path, f"{FAILED}\n")
    assert alone is not None and alone.category == "roce-gid-index"


def test_the_gpu_that_fell_off_the_bus_is_named_from_the_line_before(tmp_path: Path) -> None:
    log = "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: fallen off the bus and is not responding\n"
    found = answered(tmp_path, log)
    assert found is not None and "0000:b3:00.0" in found.title


def test_a_bus_error_is_of_shared_memory_where_nccl_is_in_the_stack(tmp_path: Path) -> None:
    signal = "[c0ffee:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)\n"
    alone = answered(tmp_path, signal)
    assert alone is not None and alone.status == "warn"
    found = answered(tmp_path, signal + " 2 0x000000000007587d ncclGroupEnd()  ???:0\n")
    assert found is not None and (found.status, found.category) == ("fail", "shm-too-small")
