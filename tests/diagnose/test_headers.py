"""A launcher's header is no cause: the line that it passes on tells it, or nothing does."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding

WATCHDOG = (
    "[rank{rank}]: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=216, "
    "OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600045 milliseconds"
)
DUMPED = "[rank1]: Finished writing Flight Recorder debug info to /tmp/nccl_trace_rank_1"


def findings(folder: Path, *lines: str) -> list[Finding]:
    return [one for one in read(folder, *lines).findings if one.status in ("fail", "warn")]


@pytest.mark.parametrize(
    "header",
    [
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        "slurmstepd: error: pyxis: failed to import docker image: nvcr.io#nvidia/pytorch:24.05-py3",
        "slurmstepd: error: Failed to invoke spank plugin stack",
        "Warning  FailedCreatePodSandBox  kubelet  Failed to create pod sandbox: rpc error",
        "w-0   0/1   CreateContainerError   0   1m",
        "pdsh@head: node-1: ssh exited with exit code 255",
        "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/9.sh exited with return code 1",
    ],
)
def test_a_header_alone_names_no_cause(tmp_path: Path, header: str) -> None:
    found = findings(tmp_path, header)
    assert [one.status for one in found] == ["warn"]
    assert found[0].confidence == "cannot tell"


def test_the_line_below_the_header_is_the_cause(tmp_path: Path) -> None:
    found = findings(
        tmp_path,
        "slurmstepd: error: pyxis: failed to import docker image: nvcr.io#nvidia/nothing:1",
        "slurmstepd: error: pyxis: printing enroot log file:",
        "slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/x returned error code: 404 Not Found",
        "srun: error: node-3: task 0: Exited with exit code 1",
    )
    assert (found[0].id, found[0].status, found[0].category) == (
        "ENR-001",
        "fail",
        "container-image",
    )


def test_the_reason_of_a_failed_task_launch_decides(tmp_path: Path) -> None:
    launch = "srun: error: Task launch for StepId=8.0 failed on node n7: {}"
    (prolog,) = findings(tmp_path, launch.format("Job prolog failed"))
    (other,) = findings(tmp_path, launch.format("Communication connection failure"))
    assert prolog.category != other.category
    assert {prolog.id, other.id}.isdisjoint({"SLURM-010"})
    assert prolog.subject.name == other.subject.name == "n7"


def test_a_full_disk_has_a_path(tmp_path: Path) -> None:
    (known,) = findings(tmp_path, "OSError: [Errno 28] No space left on device: '/data/step.pt'")
    (bare,) = findings(tmp_path, "OSError: [Errno 28] No space left on device")
    watch = findings(tmp_path, "OSError: [Errno 28] inotify watch limit reached")
    assert [known.id, bare.id] == ["PY-023", "PY-027"]
    assert [known.confidence, bare.confidence] == ["likely", "possible"]
    assert "disk-full" not in [one.category for one in watch]


def test_no_dump_is_asked_for_that_was_written(tmp_path: Path) -> None:
    lines = [WATCHDOG.format(rank=rank) for rank in (0, 1)]
    (bare,) = findings(tmp_path, *lines)
    (dumped,) = findings(tmp_path, *lines, DUMPED)
    assert bare.id == dumped.id == "WD-001"
    assert "TORCH_FR_BUFFER_SIZE" in bare.fix + bare.next
    assert "TORCH_FR_BUFFER_SIZE" not in dumped.fix + dumped.next
    assert "trace_rank_" in dumped.next


def test_a_group_that_was_not_destroyed_shows_the_programs_end(tmp_path: Path) -> None:
    warning = (
        "[rank0]:[W1127 15:47:56.8 ProcessGroupNCCL.cpp:1487] Warning: WARNING: destroy_process_group() "
        "was not called before program exit, which can leak resources."
    )
    shown = [one.id for one in read(tmp_path, warning).findings]
    other = [one.id for one in read(tmp_path, "call destroy_process_group() at the end").findings]
    assert "DIAG-001" in shown
    assert "DIAG-001" not in other
