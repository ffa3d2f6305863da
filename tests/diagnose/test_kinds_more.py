"""JAX, Ray, parallel sizes, ZeRO-3, device plugins and transfer engines: each kind, and near misses."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding

FRAME = '  File "/opt/lib/python3.12/site-packages/vllm/distributed/utils.py", line 63, in divide'
NO_PEERMEM = (
    "ibgda.cpp:nvshmemt_init:3626: neither nv_peer_mem, or nvidia_peermem detected. "
    "Skipping transport."
)
NO_TRANSPORT = "transport.cpp:287: Unable to initialize any transports. returning error."
BARRIER = (
    "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: sync_3::0. This usually happens "
    "because a task triggered the barrier too early or too slowly."
)
SLICE = (
    "E0325 worker_pool.cpp:294] Worker: Process failed for slice (opcode: 1, local_nic: mlx5_9, "
    "peer_nic: 10.1.2.7:15867@mlx5_9, dest_rkey: 24, retry_cnt: 0): "
)
WAITING = (
    "INFO 04-01 02:46:{:02} ray_utils.py:214] Waiting for creating a placement group of specs for "
    "{} seconds. specs=[{{'node:10.7.1.1': 0.001, 'GPU': 1.0}}, {{'GPU': 1.0}}]."
)
REJECTED = (
    "Warning  UnexpectedAdmissionError  kubelet  Allocate failed due to no healthy devices present; "
    "cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected"
)
NO_METADATA = "FileNotFoundError: [Errno 2] No such file or directory: '/c/step-9/.metadata'"

NAMED = (
    (
        "JAX-001",
        [
            "NCCL operation failed: Unable to load NCCL library. Multi-GPU collectives will not work."
        ],
    ),
    ("RAY-012", ["ValueError: Total available GPUs 8.0 is less than total desired GPUs 16"]),
    ("RAY-013", ["TimeoutError: Placement group creation timed out. Make sure your cluster"]),
    (
        "PAR-001",
        [
            "AssertionError: First dimension of the tensor should be divisible by tensor parallel size"
        ],
    ),
    (
        "PAR-002",
        [FRAME, "    ensure_divisibility(a, b)", "AssertionError: 12 is not divisible by 8"],
    ),
    (
        "PAR-003",
        [
            "AssertionError: num_layers=30 should be divisible by config.pipeline_model_parallel_size=4"
        ],
    ),
    ("PAR-004", ["AssertionError: n_physical_experts=256 must be divisible by ep_size=3."]),
    (
        "PAR-005",
        [
            "AssertionError: global batch size (512) is not divisible by micro batch size (3) "
            "times data parallel size (8)"
        ],
    ),
    (
        "PAR-006",
        [
            "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: MPI size 1 != TP size 2 * PP size 1"
        ],
    ),
    (
        "PAR-007",
        [
            "ValueError: num_attention_heads (28) must be a multiple of tensor_model_parallel_size (8)."
        ],
    ),
    (
        "PAR-008",
        [
            "RuntimeError: world_size (8) is not equal to tensor_model_parallel_size (1) x "
            "pipeline_model_parallel_size (1)."
        ],
    ),
    (
        "PAR-009",
        ["AssertionError: only support equal chunk. Got size of DataProto 512 and chunk 6."],
    ),
    (
        "DS-017",
        ["RuntimeError: disagreement between rank0 and rank3: rank0: [0, 1, 2], rank3: [0, 1]"],
    ),
    ("K8S-030", [REJECTED]),
    ("K8S-032", ["error creating nvml.Device 3: nvml: GPU is lost, which is unexpected"]),
    ("MOON-001", [SLICE + "transport retry counter exceeded"]),
    (
        "MOON-003",
        ["DMA BUF supported required for GPU RDMA without nvidia-peermem on GPU device 0"],
    ),
    ("NVSH-001", [NO_PEERMEM, NO_TRANSPORT]),
    ("NCCL-136", ["NCCL WARN Cuda failure 711 'peer mapping resources exhausted'"]),
    ("CKPT-019", [NO_METADATA]),
    ("GRAPH-007", ["RuntimeError: Capture must end on the same stream it began on."]),
    (
        "CONT-141",
        [
            "nvidia-container-cli: initialization error: change root failed: no such file or directory"
        ],
    ),
)

SUGGESTED = (
    (
        "JAX-002",
        ["Stopping coordination service as cluster registration failed. This may be due to"],
    ),
    ("JAX-003", [BARRIER]),
    ("JAX-004", [BARRIER, "/job:jax_worker/replica:0/task:6"]),
    ("JAX-005", ["GetKeyValue() timed out with key: cuda:local_topology/cuda/3 and duration: 2m"]),
    (
        "JAX-008",
        [
            "/job:jax_worker/replica:0/task:1 unexpectedly tried to connect with a different "
            "incarnation."
        ],
    ),
    (
        "JAX-009",
        [
            "An unexpected peer shows up in the launch group with a different launch id than the current"
        ],
    ),
    (
        "RAY-010",
        [
            "Error: No available node types can fulfill resource request "
            "{'node:10.7.1.1': 0.001, 'GPU': 1.0}."
        ],
    ),
    ("RAY-011", [WAITING.format(20, 30), WAITING.format(59, 70)]),
    (
        "RAY-014",
        ["The worker group startup timed out after 30.0 seconds waiting for 8 workers. Potential"],
    ),
    ("DS-018", ["RuntimeError: tracing error at step 42: "]),
    (
        "K8S-031",
        ["unable to get device link information: error calling nvml.Init: Unknown Error, which"],
    ),
    (
        "MOON-002",
        ["rdma_context.cpp:203] Failed to register memory 0x7b375b400000: Invalid argument [22]"],
    ),
    (
        "MOON-004",
        ["Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num: Connection timed out"],
    ),
    ("NVSH-002", [NO_PEERMEM]),
    (
        "HPU-008",
        ["synNodeCreateWithId failed for node: concat with synStatus 1 [Invalid argument]. ."],
    ),
    (
        "END-007",
        [
            "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
        ],
    ),
    (
        "RCCL-001",
        ["Memory access fault by GPU gpu-7 (Agent handle: 0x56) on address 0x7f89. Reason: Page"],
    ),
)

NEAR_MISSES = (
    # NCCL is there and a call of it fails; the barrier of another library.
    ("JAX-001", ["NCCL operation ncclAllReduce failed: unhandled cuda error"]),
    ("JAX-002", [BARRIER]),
    ("JAX-003", ["RuntimeError: Barrier timed out after 300 s"]),
    ("JAX-004", ["The first task at the barrier: /job:jax_worker/replica:0/task:13."]),
    ("JAX-005", ["GetKeyValue() timed out with key: cuda:global_topology/cuda and duration: 5m"]),
    ("JAX-007", ["Task /job:jax_worker/replica:0/task:3 has connected to coordination service"]),
    ("JAX-021", ["Thread is unstuck! Warning above was a false-positive."]),
    # The placement came: the server goes on.
    ("RAY-011", [WAITING.format(0, 10)]),
    (
        "RAY-011",
        [
            WAITING.format(20, 30),
            "INFO 04-01 02:48:00 model_runner.py:11] Starting to load model m",
        ],
    ),
    ("RAY-010", ["Error: No available node types can fulfill resource request {'CPU': 1.0}."]),
    ("RAY-012", ["Total available GPUs 16.0, total desired GPUs 16"]),
    # Sizes that are no sizes of parallelism, or no library with it in the stack.
    (
        "PAR-002",
        [
            '  File "/srv/app/patches.py", line 9, in split',
            "AssertionError: 225 is not divisible by 16",
        ],
    ),
    (
        "PAR-002",
        [FRAME, *["    more of the log"] * 80, "AssertionError: 225 is not divisible by 16"],
    ),
    (
        "PAR-005",
        ["WARNING global batch size 128 is not divisible by 24, the last batch is smaller"],
    ),
    ("PAR-006", ["[TensorRT-LLM][INFO] MPI size: 1, rank: 0"]),
    (
        "PAR-008",
        ["world_size 8, tensor_model_parallel_size (1) x pipeline_model_parallel_size (1)"],
    ),
    ("PAR-009", ["AssertionError: queue size should be divisible by batch size"]),
    # A warning of DeepSpeed that costs time only.
    ("DS-017", ["Invalidate trace cache @ step 0: expected module 2, but got module 0"]),
    ("DS-018", ["Invalidate trace cache @ step 0 and module 36666: cache has only 0 modules"]),
    # The plugin registered, and the next pod started.
    ("K8S-030", [REJECTED, "Normal  Started  5s  kubelet  Started container trainer"]),
    ("K8S-031", ["Failed to initialize NVML: Driver/library version mismatch"]),
    ("MOON-001", [SLICE + "work request flushed error"]),
    ("MOON-005", [SLICE + "work request flushed error"]),
    ("MOON-002", ["Failed to register memory 0x2e1cbac200: Bad address [14]"]),
    # On one node NVSHMEM goes on over NVLink: it is suggested, and not named.
    ("NVSH-001", [NO_PEERMEM, "NVSHMEM v3.2.5, nvshmem initialized"]),
    (
        "NCCL-136",
        [
            "W gpu_device.cc:1597] Unable to enable peer access between device ordinals 0 and 9, "
            "status: CUDA_ERROR_TOO_MANY_PEERS"
        ],
    ),
    # Each rank reads metadata of its own, as torch says first.
    (
        "CKPT-019",
        ["Global metadata is not found. Falling back to rank local metadata.", NO_METADATA],
    ),
    ("GRAPH-007", ["Capture must end on the same stream it began on; falling back to eager mode"]),
    ("HPU-008", ["RuntimeError: synStatus=26 [Generic failure] Device acquire failed."]),
    ("CONT-141", ["nvidia-container-cli: initialization error: nvml error: driver not loaded"]),
)


def first(folder: Path, lines: list[str]) -> Finding:
    """Return the first finding that fails or warns."""
    return next(one for one in read(folder, *lines).findings if one.status in ("fail", "warn"))


@pytest.mark.parametrize(("id", "lines"), NAMED)
def test_what_its_lines_prove_is_named(id: str, lines: list[str], tmp_path: Path) -> None:
    found = first(tmp_path, lines)
    assert (found.id, found.status) == (id, "fail")


@pytest.mark.parametrize(("id", "lines"), SUGGESTED)
def test_what_may_have_other_reasons_is_suggested(
    id: str, lines: list[str], tmp_path: Path
) -> None:
    found = first(tmp_path, lines)
    assert (found.id, found.status) == (id, "warn")
    assert "fail" not in {one.status for one in read(tmp_path, *lines).findings}


@pytest.mark.parametrize(("id", "lines"), NEAR_MISSES)
def test_what_only_looks_like_it_is_not_said(id: str, lines: list[str], tmp_path: Path) -> None:
    assert id not in {finding.id for finding in read(tmp_path, *lines).findings}


def test_the_tasks_that_were_absent_are_named(tmp_path: Path) -> None:
    tasks = [f"/job:jax_worker/replica:0/task:{number}" for number in (11, 3, 3)]
    found = first(tmp_path, [BARRIER, "Some timed out task names:", *tasks])
    assert found.id == "JAX-004"
    assert "tasks 3, 11 " in found.title


def test_many_absent_tasks_are_counted(tmp_path: Path) -> None:
    tasks = [f"/job:jax_worker/replica:0/task:{number}" for number in range(20)]
    assert "and 12 others" in first(tmp_path, [BARRIER, *tasks]).title


def test_the_nics_that_do_not_reach_each_other_are_named(tmp_path: Path) -> None:
    title = first(tmp_path, [SLICE + "transport retry counter exceeded"]).title
    assert "mlx5_9" in title
    assert "10.1.2.7:15867@mlx5_9" in title


def test_an_assertion_of_torch_is_shown_and_explained(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/o/torch/distributed/checkpoint/state_dict_loader.py", line 250, in local_step',
        "    assert metadata is not None",
        "AssertionError",
    ]
    findings = read(tmp_path, *lines).findings
    assert {"LOG-002", "CKPT-020"} <= {one.id for one in findings if one.status == "warn"}
    assert "fail" not in {one.status for one in findings}


def test_a_division_outside_of_parallel_libraries_is_a_symptom(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/app/patches.py", line 9, in split',
        "AssertionError: 225 is not divisible by 16",
    ]
    found = first(tmp_path, lines)
    assert (found.id, found.status) == ("PAR-021", "warn")
