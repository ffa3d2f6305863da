"""`wirespeed train` where the allocator refuses: in the first step, in a later one, on one rank alone.

The refusals are real: `ulimit -v` on every process, or a tensor of a petabyte.
"""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="Requires: torch")

pytestmark = pytest.mark.slow

SHORT = ("train", "--ranks", "2", "--steps", "1", "-q", "-o", "json", "--strategy", "naive,ddp")
LIMIT = 1_500_000 * 1024
"""Address space of each process: torch takes most of a GB."""
MODEL = """
import os, torch

BAD = os.environ.get("BAD_RANKS", "").split(",")

class Late(torch.nn.Module):
    "In the fifth step of a trainer the ranks of BAD_RANKS ask for a petabyte."
    def __init__(self):
        super().__init__()
        self.first, self.last, self.calls = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), 0
    def forward(self, x):
        self.calls += 1
        x = self.first(x)
        if self.calls > 4 and os.environ["RANK"] in BAD:
            x.register_hook(lambda gradient: torch.empty(1 << 50, dtype=torch.uint8))
        return self.last(x)

class Wide(torch.nn.Module):
    "128 KB a sample and layer. What it does depends on data, so that no dry run can foretell it."
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16384), torch.nn.Linear(16384, 8)
    def forward(self, x):
        return self.down(self.up(x).relu()) if float(x[0, 0]) < 1e9 else x

def batch(seed, samples):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 8, generator=made), torch.randn(samples, 8, generator=made)

def late():
    return Late(), batch, torch.nn.functional.mse_loss

def wide():
    return Wide(), batch, torch.nn.functional.mse_loss
"""


@pytest.fixture
def model(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "refused.py").write_text(MODEL)
    return {"PYTHONPATH": str(tmp_path)}


def ended(done: Any, code: int) -> dict[str, Any]:
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.out + done.err
    run: dict[str, Any] = json.loads(done.out)
    assert run["exit_code"] == code
    return run


def all_of(run: dict[str, Any], id: str) -> list[dict[str, Any]]:
    return [found for found in run["findings"] if found["id"] == id]


def test_a_batch_that_the_allocator_refuses_is_left_out(cli: Any, model: dict[str, str]) -> None:
    words = ("--model", "refused:wide", "--batch", "65536", "--rounds", "2", "--no-prove")
    words += ("--strategy", "none,ddp", "--max-time", "60")
    done = cli(*SHORT, *words, env=model, limits={resource.RLIMIT_AS: LIMIT})
    run = ended(done, 3)
    refused = all_of(run, "TRAIN-003")
    assert [found["title"].split(" on ")[0] for found in refused] == ["none", "ddp 25 MB"]
    for found in refused:
        assert "32768 samples a rank" in found["title"]
        assert "ranks 0, 1: DefaultCPUAllocator: can't allocate memory" in found["saw"]
    fitting = [found["title"].split(": ")[1].split()[0] for found in all_of(run, "TRAIN-005")]
    assert len(fitting) == 2
    assert all(0 < int(samples) < 32768 for samples in fitting)
    assert "training" not in run
    cli.nothing_runs()


def test_what_was_timed_before_memory_ran_out_stays(cli: Any, model: dict[str, str]) -> None:
    words = ("--model", "refused:late", "--rounds", "3", "--no-prove")
    done = cli(*SHORT, *words, env={**model, "BAD_RANKS": "0,1"})
    run = ended(done, 0)
    refused = all_of(run, "TRAIN-003")
    assert {found["title"].split(" on ")[0] for found in refused} == {"none", "naive", "ddp 25 MB"}
    assert all("1125899906842624 bytes" in found["saw"] for found in refused)
    # One step in the rehearsal and two a round: the fifth is in the second round.
    assert [(row["strategy"], row["rounds"]) for row in run["training"]] == [
        ("none", 1),
        ("naive", 1),
        ("ddp", 1),
    ]
    assert all(row["comm_ms"] is None for row in run["training"])
    cli.nothing_runs()


def test_a_rank_refused_alone_is_named_in_time(
    cli: Any, model: dict[str, str], finding: Any
) -> None:
    """The other waits for it in DDP's all_reduce."""
    words = ("train", "--ranks", "2", "--steps", "1", "-q", "-o", "json", "--strategy", "ddp")
    words += ("--model", "refused:late", "--rounds", "3", "--no-prove", "--timeout", "6")
    done = cli(*words, env={**model, "BAD_RANKS": "1"}, timeout=60.0)
    run = ended(done, 3)
    found = finding(run, "TRAIN-003")
    assert found["subject"] == {"kind": "rank", "name": "rank 1"}
    assert "4 samples a rank" in found["title"]
    assert "rank 1: DefaultCPUAllocator" in found["saw"]
    assert "--fit" in found["next"]
    assert not all_of(run, "RAISED-001") + all_of(run, "HANG-001") + all_of(run, "DIED-001")
    assert {row["strategy"] for row in run["training"]} <= {"none", "ddp"}
    cli.nothing_runs()
