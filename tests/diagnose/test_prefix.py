"""Prefixes of launchers and loggers, alone and nested."""

import pytest

from wirespeed.diagnose.prefix import rank_in_name, strip

TEXT = "NCCL WARN something happened"


@pytest.mark.parametrize(
    ("line", "rank", "host", "gpu"),
    [
        (f"[1,3]<stderr>:{TEXT}", 3, None, None),
        (f"[1,12]<stdout>: {TEXT}", 12, None, None),
        (f"[prterun-node-0-1234@1,5]<stdout>: {TEXT}", 5, None, None),
        (f"[rank7]:{TEXT}", 7, None, None),
        (f"[rank7]: {TEXT}", 7, None, None),
        (f"[default2]:{TEXT}", None, None, 2),
        (f"[default2]:[rank10]: {TEXT}", 10, None, 2),
        (f"[pod/train-worker-3/pytorch] {TEXT}", None, "train-worker-3", None),
        (f"node-1:5190:5435 [3] {TEXT}", None, "node-1", 3),
        (f"[1,4]<stdout>:gpu-07:77:91 [6] {TEXT}", 4, "gpu-07", 6),
        (f"[2024-05-01 10:00:00] gpu-07:77:91 [6] {TEXT}", None, "gpu-07", 6),
        (f"worker-1: {TEXT}", None, "worker-1", None),
        (f"trainer-2  | {TEXT}", None, "trainer-2", None),
        (f"[node-1] {TEXT}", None, "node-1", None),
        (f"(RayTrainWorker pid=123, ip=10.0.0.5) {TEXT}", None, "10.0.0.5", None),
        (f"3: {TEXT}", 3, None, None),
        (f"[rank0]: wirespeed: this rank is ended: rank 1 on n-1 {TEXT}", 1, "n-1", None),
        (f"\x1b[33m[rank1]:\x1b[0m {TEXT}\r\n", 1, None, None),
    ],
)
def test_who_wrote_it(line: str, rank: int | None, host: str | None, gpu: int | None) -> None:
    found = strip(line)
    assert (found.rank, found.host, found.gpu) == (rank, host, gpu)
    assert found.text == TEXT


def test_a_source_file_is_no_host() -> None:
    found = strip("node-1:1:2 [0] init.cc:780 NCCL WARN something")
    assert (found.host, found.text) == ("node-1", "init.cc:780 NCCL WARN something")
    assert strip("init.cc:780 NCCL WARN something").host is None


@pytest.mark.parametrize(
    ("line", "clock", "apart"),
    [
        ("2024-05-01T10:00:01.5Z {}", "date", 1.5),
        ("2024-05-01T12:00:01.500000000+02:00 {}", "date", 1.5),
        ("[2024-05-01 10:00:01,500] [INFO] [launch.py:315:main] {}", "date", 1.5),
        ("2024/05/01 10:00:01 {}", "date", 1.0),
        ("[rank1]:[W501 10:00:00 x.cpp:1] {}", "", None),
        ("[rank1]:[W0501 10:00:01.500 TCPStore.cpp:138] {}", "yearless", None),
        ("May  1 10:00:01 node-3 kernel: [  12.500000] {}", "yearless", None),
        ("[  12.500000] {}", "uptime", None),
    ],
)
def test_when_it_was_written(line: str, clock: str, apart: float | None) -> None:
    found = strip(line.format(TEXT))
    assert found.clock == clock
    if clock:
        assert found.text.endswith(TEXT)
    if apart is not None:
        start = strip(f"2024-05-01T10:00:00Z {TEXT}").time
        assert found.time is not None and start is not None
        assert found.time - start == pytest.approx(apart)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Address already in use",
        "srun: error: node-3: task 7: Killed",
        "ssh: connect to host node-1 port 22: Connection refused",
        "mpirun noticed that process rank 3 with PID 0 on node node-1 exited on signal 9 (Killed).",
        "Out of memory: Killed process 1234 (python)",
        "",
        "[",
        "99",
    ],
)
def test_what_is_no_prefix_stays(line: str) -> None:
    assert strip(line).text == line


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("logs/rank-3.log", 3),
        ("rank_12.txt", 12),
        ("run/none_abc/attempt_0/5/stderr.log", 5),
        ("slurm-1234_7.out", 7),
        ("node-3.log", None),
        ("train.log", None),
    ],
)
def test_the_rank_in_a_logs_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank
