"""Errors of the system with their operation, launchers, caches, locks, checkpoints, networks and ports.

`cases` hold what each kind of trouble looks like; here is what looks much like it and is none.
"""

from pathlib import Path

import pytest

from logs import read
from wirespeed.diagnose.rule import Rule

TRAINING = (
    "{'loss': 2.31, 'learning_rate': 1e-05, 'epoch': 0.01}",
    "{'loss': 2.19, 'learning_rate': 1e-05, 'epoch': 0.02}",
    "{'train_runtime': 81.2, 'train_samples_per_second': 12.1, 'train_loss': 2.2, 'epoch': 1.0}",
)
"""The end of a training that ended well."""
SEMAPHORE_FRAME = "    sl = self._semlock = _multiprocessing.SemLock("
NO_SPACE = "OSError: [Errno 28] No space left on device"
CACHE_FRAME = '  File "/opt/lib/triton/runtime/cache.py", line 69, in get_group'
NO_JSON = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
UNREACHED = (
    "'[Errno -3] Temporary failure in name resolution' thrown while requesting HEAD "
    "https://huggingface.co/a/b/resolve/main/config.json"
)

NEAR_MISSES = (
    # A disk is full, and no limit of the kernel is reached.
    ("ERRNO-001", ["OSError: [Errno 28] No space left on device: '/data/namespace/a.pt'"]),
    ("ERRNO-002", ["mkdir: cannot create directory '/run/x': Permission denied"]),
    ("ERRNO-003", ["cp: error writing '/data/inotify.txt': No space left on device"]),
    ("ERRNO-004", ["OSError: [Errno 24] Too many open files: '/data/a'"]),
    ("ERRNO-006", [NO_SPACE, SEMAPHORE_FRAME]),
    ("ERRNO-006", [SEMAPHORE_FRAME, *["    more of the stack"] * 5, NO_SPACE]),
    ("ERRNO-007", ["semget: Permission denied"]),
    ("ERRNO-008", ["mkdir /sys/fs/cgroup/memory/docker/74ad: permission denied"]),
    ("ERRNO-010", ["PermissionError: [Errno 13] Permission denied: '/dev/infiniband/uverbs0'"]),
    ("ERRNO-011", ["libEGL warning: failed to open /dev/dri/card0: Permission denied"]),
    ("ERRNO-012", ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."]),
    ("ERRNO-014", ["failed to mount: /home/a/d at /tmp/data/user-1000/c/d: Permission denied"]),
    ("ERRNO-016", [NO_SPACE]),
    (
        "ERRNO-017",
        ["NCCL WARN Error: failed to open /dev/shm/nccl-A , error: Read-only file system"],
    ),
    ("ERRNO-018", ["OSError: [Errno 24] Too many open files"]),
    ("ERRNO-019", ["OSError: [Errno 16] Device or resource busy: '/opt/app/run'"]),
    ("ERRNO-022", ["enroot-nsenter: failed to create user namespace: No space left on device"]),
    ("ERRNO-024", ["mkdir: cannot create directory '/run/x': Permission denied"]),
    ("ERRNO-025", ["mkdir: cannot create directory '/run/x': Permission denied", *TRAINING]),
    # The toolkit works, or another tool failed.
    ("CONT-102", ["ImportError: libcudart.so.11.0: cannot open shared object file"]),
    ("CONT-103", ["Failed to initialize NVML: Driver/library version mismatch"]),
    ("CONT-104", ["NVIDIA_REQUIRE_CUDA=cuda>=12.8"]),
    ("CONT-106", ["INFO Generated CDI spec with version 0.7.0"]),
    ("CONT-108", ["nvidia-container-cli: detection error: nvml error: unknown error"]),
    ("CONT-111", ["bash: torchrun: command not found"]),
    ("CONT-113", ["FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'"]),
    ("CONT-122", ["nvidia-container-cli: mount error: mount operation failed: /x: not permitted"]),
    ("CONT-131", ['MountVolume.SetUp failed for volume "a" : timed out']),
    # Another reason of the same header.
    ("SLURM-201", ["srun: error: Task launch for 1.0 failed on node n: Invalid job credential"]),
    ("SLURM-202", ["srun: error: Task launch for 1.0 failed on node n: Job credential expired"]),
    ("SLURM-203", ["srun: error: Task launch for 1.0 failed on node n: Job prolog failed"]),
    ("SLURM-206", ["srun: error: Task launch for 1.0 failed on node n: Job prolog failed"]),
    ("SLURM-207", ["slurmstepd: error: execve(): python3: No such file or directory"]),
    (
        "SLURM-210",
        ["srun: error: Unable to create step for job 1: Error generating job credential"],
    ),
    # A missing input is no race.
    ("CACHE-001", ["FileNotFoundError: [Errno 2] No such file or directory: '/data/triton.json'"]),
    ("CACHE-004", [NO_JSON]),
    ("CACHE-004", [NO_JSON, CACHE_FRAME]),
    ("CACHE-005", ["torchinductor cache dir: /tmp/torchinductor_u"]),
    ("CACHE-006", ["Using /home/u/.cache/torch_extensions/py39_cu117 as PyTorch extensions root"]),
    ("CACHE-008", ["FileNotFoundError: [Errno 2] No such file or directory: '/data/train.arrow'"]),
    (
        "CACHE-009",
        ["FileNotFoundError: [Errno 2] No such file or directory: '/models/config.json'"],
    ),
    ("CACHE-012", ["ls: cannot access '/nfs/data': Stale file handle"]),
    # A lock that is taken, or comes later.
    ("LOCK-001", ["OSError: [Errno 35] Resource deadlock avoided"]),
    ("LOCK-002", ["FileSystem does not appear to support flock. Falling back to SoftFileLock"]),
    ("LOCK-005", ["OSError: [Errno 38] Function not implemented"]),
    ("LOCK-007", ["(unable to lock file, errno = 11, error message = 'Resource unavailable')"]),
    ("LOCK-008", ["(unable to lock file, errno = 37, error message = 'No locks available')"]),
    ("LOCK-010", ["still waiting to acquire lock on /home/u/.locks/a.lock"] * 3),
    # Another half of a checkpoint's life.
    (
        "CKPT-001",
        ["RuntimeError: PytorchStreamWriter failed writing file data/0: file write failed"],
    ),
    ("CKPT-003", ["_pickle.UnpicklingError: invalid load key, '\\x8a'."]),
    ("CKPT-006", ["Some weights of BertModel were not initialized from the model checkpoint"]),
    ("CKPT-009", ["RuntimeError: PytorchStreamReader failed reading zip archive: no directory"]),
    ("CKPT-018", ["RuntimeError: basic_ios::clear: iostream error"]),
    # The network is there, or the job goes on without it.
    ("OFFLINE-002", [UNREACHED, "Loading checkpoint shards: 100%|███| 4/4 [00:05<00:00]"]),
    ("OFFLINE-002", [UNREACHED, *TRAINING]),
    (
        "OFFLINE-002",
        [UNREACHED.replace("[Errno -3] Temporary failure in name resolution", "timed out")],
    ),
    ("OFFLINE-003", ["Cannot find the requested files in the disk cache"]),
    (
        "OFFLINE-005",
        ["HTTPConnectionPool(host='localhost', port=8000): Max retries exceeded with url: /"],
    ),
    (
        "OFFLINE-006",
        ["WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError()'"],
    ),
    ("OFFLINE-008", ["using proxy http://proxy:3128"]),
    ("OFFLINE-009", ["certificate verify failed: certificate is not yet valid"]),
    ("OFFLINE-010", ["404 Client Error: Not Found for url: https://example.org/x"]),
    ("OFFLINE-015", ["wandb: Network error (ConnectionError), entering retry loop.", *TRAINING]),
    # The address is wrong, or the port is free at last.
    ("PORT-001", ["zmq.error.ZMQError: No such device (addr='tcp://eth9:5570')"]),
    ("PORT-002", ["No address added out of total 1 resolved {children:[Permission denied]}"]),
    (
        "PORT-004",
        [
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 19000): "
            "address already in use",
            "INFO:     Uvicorn running on http://0.0.0.0:19000 (Press CTRL+C to quit)",
        ],
    ),
    ("PORT-006", ["Ray is starting at 10.0.0.7:6379"]),
    ("OFFLINE-017", ["curl: (7) Failed to connect to localhost port 8000 after 0 ms"]),
    ("OFFLINE-019", ["CondaHTTPError: HTTP 404 NOT FOUND for url <https://conda.example.org/x>"]),
    ("CONT-123", ["container name: train"]),
    ("RDZV-101", ["torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"]),
    ("RDZV-102", ["torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"]),
)


@pytest.mark.parametrize(("id", "lines"), NEAR_MISSES)
def test_what_only_looks_like_it_is_not_said(id: str, lines: list[str], tmp_path: Path) -> None:
    assert id not in {finding.id for finding in read(tmp_path, *lines).findings}


def test_each_kind_of_trouble_has_a_near_miss() -> None:
    families = {id.partition("-")[0] for id, _ in NEAR_MISSES}
    assert families == {
        "CACHE",
        "CKPT",
        "CONT",
        "ERRNO",
        "LOCK",
        "OFFLINE",
        "PORT",
        "RDZV",
        "SLURM",
    }


@pytest.mark.parametrize(
    ("inner", "category"),
    [
        (
            "enroot-nsenter: failed to create user namespace: No space left on device",
            "namespace-limit",
        ),
        ("enroot-nsenter: failed to create user namespace: Permission denied", "namespace-denied"),
        ("mkdir: cannot create directory '/run/enroot': Permission denied", "permission-denied"),
        (
            "enroot-mount: failed to mount: /data/a at /tmp/c/a: No such file or directory",
            "container-mount-source",
        ),
        (
            "enroot-switchroot: failed to execute: /bin/bash: No such file or directory",
            "container-command",
        ),
        (
            "nvidia-container-cli: initialization error: nvml error: driver not loaded",
            "driver-not-loaded",
        ),
    ],
)
def test_the_inner_line_of_a_launcher_is_the_cause(
    inner: str, category: str, tmp_path: Path
) -> None:
    reading = read(
        tmp_path,
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        "slurmstepd: error: pyxis: printing enroot log file:",
        f"slurmstepd: error: pyxis:     {inner}",
        "slurmstepd: error: pyxis: couldn't start container",
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1",
        "srun: error: gpu-a: task 0: Exited with exit code 1",
    )
    first = next(one for one in reading.findings if one.status in ("fail", "warn"))
    assert first.category == category


@pytest.mark.parametrize(
    "header",
    [
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        "docker: Error response from daemon: failed to create shim task: OCI runtime create failed",
        "[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1",
    ],
)
def test_the_header_of_a_launcher_alone_names_nothing(header: str, tmp_path: Path) -> None:
    findings = read(tmp_path, header).findings
    assert "fail" not in {one.status for one in findings}
    assert any(one.status == "warn" for one in findings)


def test_a_file_of_a_cache_is_no_missing_input(tmp_path: Path) -> None:
    line = (
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/.triton/cache/5F/k.json'"
    )
    first = read(tmp_path, line).findings[0]
    assert (first.status, first.category) == ("fail", "cache-race")


def test_store_errors_follow_from_the_port_that_was_taken(tmp_path: Path) -> None:
    reading = read(
        tmp_path,
        "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5570')",
        "[rank2]:[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=1): "
        "Failed to recv, got 0 bytes. Connection was likely closed.",
    )
    failing = [one for one in reading.findings if one.status in ("fail", "warn")]
    assert [one.category for one in failing] == ["port-in-use"]
    assert any(line.startswith("follows from it") for line in failing[0].evidence)


def test_alternatives_of_a_pattern_fill_one_name() -> None:
    rule = Rule(
        id="T-001",
        category="door",
        role="fact",
        anchors=("door",),
        pattern=r"door (?P<number>\d+) is shut|shut: door (?P<number__2>\d+)",
        sentence="door {number} is shut",
        positive=("door 7 is shut",),
    )
    assert rule.match("door 7 is shut") == {"number": "7"}
    assert rule.match("shut: door 8") == {"number": "8"}
