"""Faults of a job's program and build: what decides between causes, and lines that are no such fault."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.diagnose.allocations import read_allocation
from wirespeed.diagnose.watchdog_lines import recorder_words
from wirespeed.model.records import Finding

NOT_INITIALIZED = (
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
)
ARCHITECTURE = (
    "NVIDIA GeForce GTX 1080 with CUDA capability sm_61 is not compatible with the current PyTorch "
    "installation."
)
ENDED = "[default] worker group successfully finished. Waiting 300 seconds for other agents"
OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "


def told(folder: Path, *lines: str) -> list[Finding]:
    return [one for one in read(folder, *lines).findings if one.status in ("fail", "warn")]


def timeout(rank: int, number: int, call: str, size: int) -> str:
    return (
        f"[rank{rank}]:[E816 01:45:40.18300{rank} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType={call}, "
        f"NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600026 milliseconds before "
        "timing out."
    )


def stop(rank: int, number: int, group: str, enqueued: int | None = None) -> str:
    last = number if enqueued is None else enqueued
    return (
        f"[rank{rank}]:[E816 01:45:40.18400{rank} ProcessGroupNCCL.cpp:2303] [PG ID 1 PG GUID "
        f"{group} Rank {rank}]  failure detected by watchdog at work sequence id: {number} PG status: "
        f"last enqueued work: {last}, last completed work: {number - 1}"
    )


def waits(calls: list[tuple[int, int, str, int, str]]) -> list[str]:
    """Return both lines of each (rank, number, operation, size, group)."""
    return [
        line
        for rank, number, call, size, group in calls
        for line in (timeout(rank, number, call, size), stop(rank, number, group))
    ]


# Neighbours decide what a library's failed start means.


@pytest.mark.parametrize(
    ("before", "id"),
    [
        (
            "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing",
            "GRAPH-001",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "PY-002"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "PY-003"),
        (OUT + "2.00 GiB. GPU 0 has a total capacity of 8.00 GiB", "PY-001"),
    ],
)
def test_a_library_that_cannot_start_follows_from_what_explains_it(
    tmp_path: Path, before: str, id: str
) -> None:
    found = told(tmp_path, before, NOT_INITIALIZED)
    assert [one.id for one in found] == [id]
    assert any("CUBLAS_STATUS_NOT_INITIALIZED" in line for line in found[0].evidence)


CAPTURE_BROKE = "CUDA error: operation failed due to a previous error during capture"


@pytest.mark.parametrize(
    ("before", "id"),
    [
        (NOT_INITIALIZED, "GRAPH-006"),
        ("CUDA error: operation not permitted when stream is capturing", "GRAPH-001"),
        (
            "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half",
            "SELF-002",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "PY-002"),
        (OUT + "2.00 GiB. GPU 0 has a total capacity of 8.00 GiB", "PY-001"),
    ],
)
def test_a_broken_capture_follows_from_the_call_that_failed_in_it(
    tmp_path: Path, before: str, id: str
) -> None:
    found = told(tmp_path, before, "torch.AcceleratorError: " + CAPTURE_BROKE)
    assert [one.id for one in found] == [id]


def test_a_library_that_cannot_start_is_told_by_itself_where_nothing_explains_it(
    tmp_path: Path,
) -> None:
    assert [one.id for one in told(tmp_path, NOT_INITIALIZED)] == ["LIB-001"]


# A refused allocation is read by the numbers of its own line.

OF = "GPU 0 has a total capacity of 80.00 GiB of which"
USED = "this process has {} GiB memory in use."
POOL = (
    "Of the allocated memory {} GiB is allocated by PyTorch, and {} GiB is reserved by PyTorch but "
    "unallocated."
)
OLD = "Tried to allocate {} (GPU 0; {} GiB total capacity; {} GiB already allocated; {} free; "


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        (
            "cap",
            ["1.00 GiB.", f"{OF} 60.00 GiB is free.", "8.00 GiB allowed;", POOL.format(7.5, 0)],
        ),
        (
            "free",
            ["1.00 GiB.", f"{OF} 60.00 GiB is free.", "40.00 GiB allowed;", POOL.format(7.5, 0)],
        ),
        ("larger", ["100.00 GiB.", f"{OF} 79.00 GiB is free.", POOL.format(0.5, 0)]),
        ("others", ["2.00 GiB.", f"{OF} 1.00 GiB is free.", USED.format(19), POOL.format(18, 0)]),
        ("full", ["2.00 GiB.", f"{OF} 1.00 GiB is free.", USED.format(79), POOL.format(77, 0.1)]),
        (
            "fragments",
            ["2.00 GiB.", f"{OF} 1.00 GiB is free.", USED.format(79), POOL.format(60, 18)],
        ),
        ("unknown", ["2.00 GiB.", f"{OF} 1.00 GiB is free."]),
        ("unknown", ["1.70 GiB"]),
    ],
)
def test_numbers_of_the_line_say_why_an_allocation_was_refused(
    reason: str, parts: list[str]
) -> None:
    assert read_allocation(" ".join(["Tried to allocate", *parts])).reason == reason


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (
            "full",
            OLD.format("20.00 MiB", 23.65, 22.30, "10.06 MiB") + "22.50 GiB reserved in total",
        ),
        (
            "fragments",
            OLD.format("1.65 GiB", 7.79, 3.53, "1.40 GiB") + "5.28 GiB reserved in total",
        ),
        (
            "cap",
            OLD.format("4.00 GiB", 39.59, 9.21, "29.10 GiB") + "11.88 GiB allowed; 9.30 GiB cached",
        ),
        ("others", OLD.format("36.00 MiB", 10.76, 0.97, "17.56 MiB") + "1.00 GiB cached)"),
        (
            "unknown",
            "Tried to allocate 1.00 GiB (GPU 0; 15.56 GiB total capacity; 0.96 GiB already allocated",
        ),
        (
            "full",
            "Tried to allocate 1.00 GiB (GPU 0; 15.56 GiB total capacity; 15.1 GiB already allocated",
        ),
        ("unknown", "out of memory"),
    ],
)
def test_older_messages_say_it_too(reason: str, line: str) -> None:
    assert read_allocation(line).reason == reason


def test_the_own_process_is_not_another_where_a_container_hides_its_number() -> None:
    text = (
        f"Tried to allocate 2.00 GiB. {OF} 1.00 GiB is free. Process 4121 has 70.00 GiB memory in use. "
        "Process 4122 has 9.00 GiB memory in use. Of the allocated memory 68.00 GiB is allocated by "
        "PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
    )
    found = read_allocation(text)
    assert found.processes == 1
    assert found.others == 9 * 2**30


def test_sizes_are_named_as_a_person_reads_them() -> None:
    words = read_allocation(
        "Tried to allocate 1024.00 MiB (GPU 3; 10.00 GiB total capacity)"
    ).words()
    assert words["asked"] == "1.00 GiB"
    assert words["total"] == "10.00 GiB"
    assert words["gpu"] == "3"


def test_one_line_with_its_numbers_gives_one_answer(tmp_path: Path) -> None:
    numbers = [f"2.00 GiB. {OF} 1.00 GiB is free.", USED.format(79), POOL.format(77, 0.1)]
    found = told(tmp_path, OUT + " ".join(numbers))
    assert [one.id for one in found] == ["ALLOC-004"]
    assert not any("follows from it" in line for line in found[0].evidence)


def test_an_error_without_numbers_below_a_call_that_pins_memory_is_of_the_host(
    tmp_path: Path,
) -> None:
    stack = ('  File "pin_memory.py", line 98, in pin_memory', "    return data.pin_memory(device)")
    assert told(tmp_path, *stack, "RuntimeError: CUDA error: out of memory")[0].id == "ALLOC-012"
    assert told(tmp_path, "RuntimeError: CUDA error: out of memory", *stack)[0].id == "PY-001"


# Watchdog lines are compared across ranks.


def test_other_collectives_at_one_number_of_one_group_are_a_mismatch(tmp_path: Path) -> None:
    calls = [(rank, 7, "ALLREDUCE", 4096, "0(default_pg)") for rank in range(3)]
    found = told(tmp_path, *waits([*calls, (3, 7, "BROADCAST", 8, "0(default_pg)")]))
    assert [(one.id, one.status, one.category) for one in found] == [
        ("WAIT-002", "fail", "collective-mismatch")
    ]
    assert "ranks 0-2 in ALLREDUCE" in found[0].title
    assert "rank 3 in BROADCAST" in found[0].title
    assert "number 7 of process group default_pg" in found[0].title


@pytest.mark.parametrize(
    "last",
    [
        (1, 7, "ALLREDUCE", 4096, "0(default_pg)"),  # the same call
        (1, 7, "BROADCAST", 4096, "12(data_parallel)"),  # another group
        (1, 8, "BROADCAST", 4096, "0(default_pg)"),  # another number
        (0, 7, "BROADCAST", 4096, "0(default_pg)"),  # the same rank, started again
        (1, 7, "RECV", 4096, "0(default_pg)"),  # a call of two ranks
    ],
)
def test_calls_that_need_not_be_alike_are_no_mismatch(
    tmp_path: Path, last: tuple[int, int, str, int, str]
) -> None:
    found = told(tmp_path, *waits([(0, 7, "ALLREDUCE", 4096, "0(default_pg)"), last]))
    assert not any(one.category == "collective-mismatch" for one in found)


def test_uneven_sizes_of_a_collective_that_permits_them_are_no_mismatch(tmp_path: Path) -> None:
    calls = [(rank, 7, "ALLTOALL_BASE", 4096 + rank, "0(default_pg)") for rank in range(2)]
    assert told(tmp_path, *waits(calls))[0].id == "WD-001"
    calls = [(rank, 7, "ALLREDUCE", 4096 + rank, "0(default_pg)") for rank in range(2)]
    assert told(tmp_path, *waits(calls))[0].id == "WAIT-002"


def test_without_a_named_group_a_difference_is_never_certain(tmp_path: Path) -> None:
    lines = (timeout(0, 7, "ALLREDUCE", 4096), timeout(1, 7, "BROADCAST", 8))
    found = told(tmp_path, *lines)
    assert [(one.id, one.confidence) for one in found] == [("WAIT-003", "possible")]


def test_a_rank_is_missing_only_where_the_others_agree(tmp_path: Path) -> None:
    group = "0(default_pg)"
    behind = stop(2, 6, group, enqueued=6)
    same = waits([(rank, 7, "ALLREDUCE", 4096, group) for rank in range(2)])
    other = waits([(0, 7, "ALLREDUCE", 4096, group), (1, 7, "BROADCAST", 8, group)])
    assert [one.id for one in told(tmp_path, *same, behind)] == ["WAIT-001"]
    assert [one.id for one in told(tmp_path, *other, behind)] == ["WAIT-002"]


@pytest.mark.parametrize(
    ("seen", "has", "lacks"),
    [
        ({"WD-020"}, "TORCH_FR_BUFFER_SIZE", "TRACE_BUFFER"),
        ({"WD-022"}, "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_"),
        ({"WD-021"}, "comm_lib_trace_rank_", "export"),
        ({"WD-021", "WD-022"}, "TORCH_NCCL_TRACE_BUFFER_SIZE", "ls "),
        (set(), "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE", "ls "),
    ],
)
def test_advice_names_the_recorder_of_the_version_in_the_log(
    seen: set[str], has: str, lacks: str
) -> None:
    command = recorder_words(seen)["recorder"]
    assert has in command
    assert lacks not in command


def test_a_dump_that_the_log_names_is_read_next() -> None:
    words = recorder_words({"WD-021"}, "/shared/trace_11")
    assert words["recorder"] == "wirespeed diagnose /shared/trace_*"


def test_no_dump_is_asked_for_that_was_written(tmp_path: Path) -> None:
    lines = waits([(rank, 7, "ALLREDUCE", 4096, "0(default_pg)") for rank in range(2)])
    wrote = "[rank0]: [PG ID 0 Rank 0] ProcessGroupNCCL preparing to dump debug info."
    assert "export" in told(tmp_path, *lines)[0].next
    assert told(tmp_path, *lines, wrote)[0].next.startswith("ls ")


# A warning at the start is the cause only where nothing comes after it.


def test_a_warning_of_the_architecture_alone_is_the_cause(tmp_path: Path) -> None:
    assert [(one.id, one.status) for one in told(tmp_path, ARCHITECTURE)] == [("ARCH-003", "fail")]


@pytest.mark.parametrize(
    "after",
    [
        ENDED,
        "step 100/500 loss 1.71\nstep 101/500 loss 1.70\nstep 102/500 loss 1.70",
        OUT + "2.00 GiB. GPU 0 has a total capacity of 8.00 GiB",
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nlanes.LaneError: gone',
    ],
)
def test_a_warning_of_the_architecture_is_no_cause_of_what_comes_after_it(
    tmp_path: Path, after: str
) -> None:
    assert not any(one.id.startswith("ARCH") for one in told(tmp_path, ARCHITECTURE, after))


def test_a_kernel_that_is_missing_after_the_warning_is_the_cause(tmp_path: Path) -> None:
    kernel = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    assert [one.id for one in told(tmp_path, ARCHITECTURE, kernel)] == ["ARCH-002"]
    assert [one.id for one in told(tmp_path, kernel)] == ["PY-006"]


# Lines much like a fault of the kind, in which its rules stay silent.


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("family", "line"),
        ("GRAPH", "INFO model_runner.py:1518] Graph capturing finished in 21 secs, took 0.23 GiB"),
        (
            "GRAPH",
            "WARNING cudagraphs: operation not permitted when stream is capturing, "
            "falling back to eager",
        ),
        ("LIB", "INFO cuBLAS handle created, CUBLAS_WORKSPACE_CONFIG=:4096:8"),
        ("ALLOC", "[INFO] memory: 12.00 GiB allocated, 2.00 GiB reserved, 60.00 GiB free"),
        (
            "ALLOC",
            "RuntimeError: unable to mmap 134217728 bytes from file </torch_811>: "
            "Cannot allocate memory (12)",
        ),
        (
            "GPUS",
            "WARNING ray_utils.py:341] The number of required GPUs exceeds the "
            "total number of available GPUs in the placement group.",
        ),
        ("GPUS", "INFO: GPU available: True (cuda), used: True; You requested gpu acceleration"),
        (
            "ARCH",
            "INFO selector.py: Cannot use FlashAttention-2 backend for Volta and Turing GPUs",
        ),
        (
            "BUILD",
            "nvcc warning : The 'compute_70' architecture is deprecated, and may "
            "be removed in a future release",
        ),
        ("BUILD", "ninja: no work to do."),
        (
            "BUILD",
            '    raise RuntimeError("Failed to find C compiler. Please specify via '
            'CC environment variable.")',
        ),
        (
            "ARCH",
            "WARNING: Bfloat16 is only supported on GPUs with compute capability "
            "of at least 8.0; casting",
        ),
        (
            "SELF",
            "UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime",
        ),
        (
            "SELF",
            "UserWarning: Using a target size (torch.Size([4])) that is different "
            "to the input size",
        ),
        (
            "SELF",
            "Token indices sequence length is longer than the specified maximum "
            "sequence length (1200 > 512).",
        ),
        ("SELF", "[INFO] all tensors of the checkpoint have the same dtype torch.bfloat16"),
        ("HPU", "habanalabs hl1: Successfully loaded firmware to device"),
        ("HPU", "PT_HPU_LAZY_MODE = 1, Graph compile time: 12.4 s"),
        ("XPU", "|CCL_WARN| did not find MPI-launcher specific variables, switch to ATL/OFI"),
        ("XPU", "UserWarning: XPU Device count is zero! (Triggered internally)"),
    ],
)
def test_lines_like_a_fault_that_are_none(tmp_path: Path, family: str, line: str) -> None:
    """The job that prints them ends well, and no rule of that family speaks."""
    reading = read(tmp_path, line, ENDED)
    ids = {part.rule.id for answer in reading.diagnosis.answers for part in answer.parts}
    assert not any(id.startswith(family + "-") for id in ids)


def test_a_rank_whose_group_no_line_names_is_compared_as_a_suggestion(tmp_path: Path) -> None:
    timeout = (
        "[rank{rank}]:[E ProcessGroupNCCL.cpp:563] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=37, OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, "
        "Timeout(ms)=600000) ran for 600057 milliseconds before timing out."
    )
    stop = (
        "[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 1] Timeout at NCCL work: 37, last enqueued "
        "NCCL work: 37, last completed NCCL work: 36."
    )
    lines = [timeout.format(rank=0, size=4096), timeout.format(rank=1, size=1), stop]
    first = read(tmp_path, *lines).findings[0]
    assert (first.id, first.status, first.confidence) == ("WAIT-003", "warn", "possible")
    alike = [timeout.format(rank=0, size=1), timeout.format(rank=1, size=1), stop]
    assert read(tmp_path, *alike).findings[0].id == "WD-001"
