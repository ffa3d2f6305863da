"""What nvidia-smi says becomes rows; anything else it says becomes a remark.

The figures are written as in NVIDIA's manual of nvidia-smi (`--query-gpu`, csv,noheader,nounits).
"""

import pytest

from wirespeed.clusters.kube import Answer
from wirespeed.clusters.operations.gpus import read_answer
from wirespeed.clusters.operations.pod_lookup import Pod

POD = Pod(name="mine-0", node="node-a", phase="Running", gpus=2, devices={"nvidia.com/gpu": 2})
GOOD = (
    "0, NVIDIA H100 80GB HBM3, GPU-6f1c, 1024, 81559, 37, 41, 120.53, 700.00, 0\n"
    "1, NVIDIA H100 80GB HBM3, GPU-92ab, 0, 81559, 0, 33, 68.00, 700.00, 3\n"
)
PROCESSES = "---processes---\nGPU-6f1c, 4711\nGPU-6f1c, 4712\n"


def _answer(out: str, code: int | None = 0, err: str = "") -> Answer:
    return Answer(("kubectl", "exec"), code, out, err)


def test_figures_have_their_units() -> None:
    told = read_answer(POD, _answer(GOOD + PROCESSES))
    first, second = told.gpus
    assert (told.pod, told.node, told.problem) == ("mine-0", "node-a", "")
    assert (first.index, first.name) == (0, "NVIDIA H100 80GB HBM3")
    assert (first.memory_used_bytes, first.memory_total_bytes) == (1 << 30, 81559 << 20)
    assert (first.utilization_percent, first.temperature_C) == (37, 41)
    assert (first.power_W, first.power_limit_W) == (120.53, 700)
    assert [(one.ecc_uncorrected, one.processes) for one in told.gpus] == [(0, 2), (3, 0)]
    assert second.remarks == ()


def test_what_a_gpu_does_not_tell_is_none_and_what_is_odd_is_a_remark() -> None:
    row = "0, GPU A, GPU-1, [N/A], 81559, [Not Supported], ERR!, [Unknown Error], nan, 1e9\n"
    (gpu,) = read_answer(POD, _answer(row + PROCESSES)).gpus
    assert (gpu.memory_used_bytes, gpu.utilization_percent, gpu.power_W) == (None, None, None)
    assert gpu.remarks == (
        "temperature.gpu: ERR!",
        "power.draw: [Unknown Error]",
        "power.limit: nan",
        "ecc.errors.uncorrected.volatile.total: 1e9",
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_answer("", None), "no answer within"),
        (_answer("---processes---\n", 124), "nvidia-smi hangs"),
        (_answer("", 127, "command terminated with exit code 127"), "there is no nvidia-smi"),
        (_answer(GOOD.splitlines()[0] + "\n" + PROCESSES), "1 of 2 GPUs"),
        (
            _answer(
                "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.\n", 15,
                "command terminated with exit code 15",
            ),
            "ended with 15: Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.",
        ),
        (_answer("No devices were found\n---processes---\n"), "said: No devices were found"),
        (_answer("", 1, 'Error from server (NotFound): pods "mine-0" not found'), "NotFound"),
    ],
)  # fmt: skip
def test_a_pod_that_cannot_be_asked_says_so(answer: Answer, words: str) -> None:
    assert words in read_answer(POD, answer).problem


def test_gpus_that_answer_are_shown_beside_one_that_is_lost() -> None:
    lost = GOOD.splitlines()[0] + "\nUnable to determine the device handle: GPU is lost\n"
    told = read_answer(POD, _answer(lost, 15))
    assert len(told.gpus) == 1 and told.gpus[0].processes is None
    assert "GPU is lost" in told.problem
