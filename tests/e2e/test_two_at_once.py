"""Two commands on one folder, or on one machine, at the same time."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from wirespeed.node.neighbours import VARIABLE, Presence

TRAIN = ("train", "--ranks", "1", "--layers", "1", "--context", "16", "-q", "-o", "json")
INTERRUPTED_SOAK = """\
import time
from wirespeed.model.lasting_records import Soak
from wirespeed.runs.folder import PatientFolder
told = {"level": "soak", "ranks": 2, "only": "COL-001"}
PatientFolder.create("check", told).checkpoint(Soak(for_s=60.0, elapsed_s=58.0, window_s=1.0))
print("soaking", flush=True)
time.sleep(80)
"""


def jobs(folder: Path) -> dict[int, str]:
    """By step."""
    found = {}
    for path in folder.glob("step-*/rank-0.json"):
        found[int(path.parent.name.removeprefix("step-"))] = json.loads(path.read_text())["job"]
    return found


@pytest.mark.slow
def test_two_trainings_of_one_folder(cli: Any, finding: Any) -> None:
    """The second is refused with the owner's name; after a kill -9 it goes on, as the same job."""
    kept = cli.folder / "kept"
    words = (*TRAIN, "--checkpoint-every", "5steps", "--checkpoint-dir", str(kept))
    first = cli.start(*words, "--for", "600s")
    cli.until(lambda: jobs(kept))
    owner = cli.ranks()[0]
    refused = cli(*words, "--for", "600s", "--resume")
    assert refused.code == 3, refused.err
    told = finding(refused.json, "WORLD-002")
    assert f"{kept} is in use by pid {owner} on " in told["saw"]
    assert "wirespeed train, since" in told["saw"] and told["next"]

    first.process.kill()
    os.kill(owner, signal.SIGKILL)
    cli.until(lambda: owner not in cli.ranks().values())
    before = jobs(kept)
    done = cli(*words, "--for", "3s", "--resume")
    assert done.code == 0, done.err
    taken = [one for one in done.json["choices"] if one["value"] == "taken over"]
    assert f"its last owner is dead: pid {owner} on " in taken[0]["reason"]
    assert set(jobs(kept).values()) == set(before.values())
    assert done.json["goodput"]["first_step"] == max(before)
    assert len(jobs(kept)) <= 2 and not list(kept.glob(".wirespeed-lock*"))


@pytest.mark.slow
def test_three_resume_one_soak(cli: Any) -> None:
    """None while its owner lives; one of three when it is dead."""
    owner = cli.start_words([sys.executable, "-c", INTERRUPTED_SOAK])
    cli.until(lambda: "soaking" in owner.out())
    (folder,) = cli.folders()
    words = ("check", "--resume", folder.name.rpartition("-")[2])
    early = cli(*words)
    assert early.code == 3
    assert f"is in use by pid {owner.process.pid} on " in early.err
    assert "Traceback" not in early.err
    owner.kill()
    ended = [one.wait() for one in [cli.start(*words) for _ in range(3)]]
    assert sorted(one.code for one in ended) == [0, 3, 3], [one.err for one in ended]
    for one in ended:
        if one.code:
            assert "is in use by pid " in one.err
        else:
            assert f"its last owner is dead, pid {owner.process.pid} on " in one.err
    assert json.loads((folder / "run.json").read_text())["soak"]["resumed"] == 1
    assert not list(folder.glob(".wirespeed-lock*"))


@pytest.mark.slow
def test_speed_is_not_judged_beside_another_run(cli: Any, finding: Any) -> None:
    words = (
        "check",
        "-l",
        "quick",
        "--ranks",
        "2",
        "--only",
        "COL-001,LAT-001",
        "-q",
        "-o",
        "json",
    )
    other = Presence("train", "a" * 16, {VARIABLE: "both"})
    try:
        done = cli(*words, env={VARIABLE: "both"})
    finally:
        met = other.others()
        other.leave()
    assert (done.code, done.json["verdict"]) == (3, "UNKNOWN"), done.err
    assert finding(done.json, "COL-001")["status"] == "pass"
    assert finding(done.json, "LAT-001")["status"] == "not_checked"
    told = finding(done.json, "WORLD-003")
    assert "1 other wirespeed run measured" in told["title"]
    assert f"train of pid {os.getpid()}" in told["saw"]
    assert [one.command for one in met] == ["check"], "who was there first is told as well"
