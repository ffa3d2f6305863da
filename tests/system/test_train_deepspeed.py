"""`wirespeed train` with DeepSpeed: its strategies, and as ranks of its launcher."""

import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="Requires: deepspeed"),
]

QUICK = ("--rounds", "2", "--steps", "1", "-q", "--layers", "1")
BOUND_S = 380.0
"""Four processes import deepspeed, beside other tests on the same cores."""
CPU = {"DS_ACCELERATOR": "cpu"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_each_stage_is_proven_and_timed_in_one_table(cli: Any, finding: Any) -> None:
    names = [f"deepspeed-zero{stage}" for stage in (0, 1, 2, 3)]
    words = ("train", "--ranks", "2", *QUICK, "--strategy", ",".join(names), "-o", "json")
    done = cli(*words, env=CPU, timeout=BOUND_S)
    assert done.code == 0, done.out + done.err
    rows = {row["strategy"]: row for row in done.json["training"]}
    assert list(rows) == ["none", *names]
    assert all(rows[name]["equal"] for name in names)
    assert all(rows[name]["comm_ms"] > 0 for name in names)
    assert finding(done.json, "TRAIN-001")["status"] == "pass"


def test_as_ranks_of_its_launcher(cli: Any) -> None:
    launcher = str(Path(sys.executable).parent / "deepspeed")
    words = [launcher, "--num_gpus", "2", "--master_port", str(free_port()), "--module"]
    done = cli.start_words(
        [*words, "wirespeed", "train", *QUICK, "--strategy", "deepspeed-zero1"], env=CPU
    ).wait(BOUND_S)
    assert done.code == 0, done.out + done.err
    run = cli.run()
    assert (run["verdict"], run["world"]["size"]) == ("MEASURED", 2)
    assert [row["strategy"] for row in run["training"]] == ["none", "deepspeed-zero1"]
    assert done.out.count("MEASURED") == 1
