"""`wirespeed train --for` with real ranks, one of which is killed: it goes on, to the same bits."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]

FOR_S = 40
"""Time for two starts of the world, beside other tests on the same cores."""
BOUND_S = 200.0
TINY = ("train", "--ranks", "2", "--model", "mine:make", "-q", "-o", "json")
MINE = """
import os, time, torch
PAUSE_S = float(os.environ.get("PAUSE_S", 0.2))
class Mine(torch.nn.Sequential):
    def forward(self, batch):
        time.sleep(PAUSE_S)
        return super().forward(batch)
def make():
    layers = torch.nn.Linear(64, 1024), torch.nn.Dropout(0.2), torch.nn.Linear(1024, 64)
    return Mine(*layers), (torch.randn(8, 64), torch.randn(8, 64)), torch.nn.functional.mse_loss
"""
"""It draws random numbers, and leaves the cores to the tests beside it."""


@pytest.fixture(autouse=True)
def _mine(cli: Any) -> None:
    """Where Python finds it: the working folder of commands."""
    (cli.folder / "mine.py").write_text(MINE)


def markers(folder: Path) -> dict[int, dict]:
    """Of whole checkpoints, by step."""
    found = {}
    for path in folder.glob("step-*/rank-0.json"):
        found[int(path.parent.name.removeprefix("step-"))] = json.loads(path.read_text())
    return found


def newest(folder: Path) -> int:
    return max(markers(folder), default=0)


def state(folder: Path, step: int) -> Any:
    import torch

    return torch.load(folder / f"step-{step}" / "rank-0.pt", weights_only=True)


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two states differ, in any bit."""
    import torch

    if isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield place
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name], f"{place}/{name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}/{index}")
    elif one != other:
        yield f"{place}: {one!r} {other!r}"


def test_a_killed_rank_resumes_from_its_checkpoint_to_the_bit(cli, finding):
    kept = cli.folder / "kept"
    words = (*TINY, "--for", f"{FOR_S}s", "--checkpoint-every", "2s")
    running = cli.start(*words, "--checkpoint-dir", str(kept), env=cli.no_pickles())
    cli.until(lambda: newest(kept) and len(cli.ranks()) == 2)
    victim = cli.ranks()[1]
    os.kill(victim, signal.SIGKILL)
    cli.until(lambda: victim not in cli.ranks().values())
    saved = newest(kept)
    done = running.wait(BOUND_S)
    run = done.json
    goodput = run["goodput"]

    assert done.code == run["exit_code"] == 1
    assert run["verdict"] == "FAILED"
    assert (goodput["restarts"], goodput["failures"]) == (1, 1)
    died = finding(run, "DIED-001")
    assert died["subject"]["name"] == "rank 1" and "SIGKILL" in died["title"]
    assert f"training went on from step {saved:,}" in died["costs"]
    (incident,) = goodput["incidents"]
    assert incident["subject"] == "rank 1" and "SIGKILL" in incident["title"]
    assert goodput["last_step"] > saved
    assert sum(goodput["parts_s"].values()) == pytest.approx(goodput["wall_s"])
    assert 0 < goodput["parts_s"]["useful"] < goodput["wall_s"]
    assert len(markers(kept)) <= 2 and newest(kept) == goodput["last_step"]

    # The same steps in a piece end with the same bytes: parameters, optimizer, random numbers.
    whole = cli.folder / "whole"
    step = goodput["last_step"]
    words = (*TINY, "--for", "1h", "--checkpoint-every", f"{step}steps")
    straight = cli.start(*words, "--checkpoint-dir", str(whole), env={"PAUSE_S": "0"})
    cli.until(lambda: newest(whole) == step, BOUND_S)
    straight.signal(signal.SIGINT)
    assert straight.wait().code == 130
    assert list(differences(state(whole, step), state(kept, step))) == []

    # The folder is not taken by accident, and is gone on with by --resume; a torn one is passed over.
    again = (*TINY, "--for", "10s", "--checkpoint-dir", str(kept))
    refused = cli(*again)
    assert refused.code == 2 and "--resume" in refused.out
    data = kept / f"step-{step}" / "rank-0.pt"
    data.write_bytes(data.read_bytes()[:-1])
    older = sorted(markers(kept))[0]
    resumed = cli(*again, "--resume")
    assert resumed.code == 0, resumed.out
    assert resumed.json["goodput"]["first_step"] == older < step
    assert "is torn" in finding(resumed.json, "TRAIN-007")["title"]


def test_a_full_disk_does_not_end_it(cli, finding, small_disk):
    kept = small_disk("900k")
    words = (*TINY, "--for", "25s", "--checkpoint-every", "1s", "--checkpoint-dir", str(kept))
    done = cli(*words, timeout=BOUND_S)
    warned = finding(done.json, "TRAIN-007")
    assert done.code == 0 and "No space left on device" in warned["saw"]
    assert done.json["goodput"]["checkpoints_failed"] > 0
    assert done.json["goodput"]["last_step"] > 0


def test_a_run_folder_without_room_does_not_end_it(cli, finding, small_disk):
    """Full for a while: training goes on, what waited is written, and the run is stored."""
    home = small_disk("1m")
    env = {"WIRESPEED_HOME": str(home)}
    words = (*TINY, "--for", "50s", "--checkpoint-every", "1s")
    running = cli.start(*words, "--checkpoint-dir", str(cli.folder / "kept"), env=env)
    cli.until(lambda: '"goodput"' in records(home), BOUND_S)
    ballast = home / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    # What is left of the last page would still take a record or two.
    (stored,) = home.glob("runs/*/records.jsonl")
    with stored.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\n")
    saved = newest(cli.folder / "kept")
    cli.until(lambda: newest(cli.folder / "kept") > saved, BOUND_S)
    time.sleep(12)  # longer than a record of goodput waits for the next
    ballast.unlink()
    assert running.process.poll() is None, "it trains on"
    done = running.wait(BOUND_S)
    assert done.code == 0, done.err
    warned = finding(done.json, "TRAIN-010")
    assert "No space left on device" in warned["saw"] and "wait in memory" in warned["title"]
    assert done.json["goodput"]["restarts"] == 0
    assert done.json["goodput"]["last_step"] > saved
    assert "could not be stored" not in done.err
    shown = cli("runs", "show", "last", "-o", "json", env=env)
    assert shown.json["goodput"] == done.json["goodput"]


def records(home: Path) -> str:
    return "".join(path.read_text() for path in home.glob("runs/*/records.jsonl"))
