"""examples/deepspeed/train.py as its README starts it, on two CPU ranks."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="Requires: deepspeed"),
]

SCRIPT = Path(__file__).parents[2] / "examples" / "deepspeed" / "train.py"
BOUND_S = 90.0
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TINY = ["--width", "16", "--layers", "1", "--heads", "2", "--micro", "2"]


def run(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; the launcher and its ranks are ended together."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("RANK", "LOCAL_"))
    }
    env |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    out, err = folder / "stdout", folder / "stderr"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen(
            words, stdout=to_out, stderr=to_err, env=env, start_new_session=True
        )
        try:
            code = process.wait(timeout=BOUND_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code, out.read_text(), err.read_text()


def said(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def steps(out: str, err: str) -> list[dict[str, Any]]:
    """The lines of the steps. What matters is that the work was done: gloo's threads now and then
    abort a process that has finished and left its group."""
    lines = [line for line in said(out) if "loss" in line]
    assert lines, err[-3000:]
    return lines


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    words = [*TORCHRUN, str(SCRIPT), *TINY, "--stage", "3", "--accumulation", "2", "--steps", "4"]
    words += ["--checkpoints", str(folder), "--save-every", "2"]
    whole = steps(*run(words, tmp_path)[1:])
    assert [line["step"] for line in whole] == [1, 2, 3, 4]
    assert (folder / "latest").read_text() == "step4"
    (folder / "latest").write_text("step2")  # as if it had been stopped before the last
    _, out, err = run(words, tmp_path)
    assert said(out)[0]["step"] == 2 and "resumed" in said(out)[0]
    then = steps(out, err)
    assert [line["step"] for line in then] == [3, 4]
    for one, other in zip(whole[2:], then, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert len({line["loss"] for line in whole}) == 4


def test_it_learns_under_the_deepspeed_launcher(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    launcher = str(Path(sys.executable).with_name("deepspeed"))
    words = [launcher, "--num_gpus", "2", "--master_port", port, str(SCRIPT), *TINY]
    done = run([*words, "--steps", "12", "--lr", "0.01", "--train-batch", "8"], tmp_path)
    losses = [line["loss"] for line in steps(*done[1:])]
    assert len(losses) == 12
    assert losses[-1] < losses[0] - 0.1


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does(tmp_path: Path) -> None:
    code, out, err = run([*TORCHRUN, str(SCRIPT), *TINY, "--train-batch", "7"], tmp_path)
    assert code != 0
    assert said(out) == []
    assert "micro × accumulation × world is 2 × 1 × 2 = 4, not the train batch 7" in err
    assert "2 × 2 × 2 = 8" in err
    assert f'File "{SCRIPT}"' not in err, "the refusal is a sentence, not a traceback of the script"


def test_started_alone_it_says_how_to_start_it(tmp_path: Path) -> None:
    code, out, err = run([sys.executable, str(SCRIPT)], tmp_path)
    assert (code, said(out)) == (2, [])
    assert "start it with torchrun or deepspeed" in err
