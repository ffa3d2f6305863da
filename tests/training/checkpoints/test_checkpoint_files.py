"""One rank's checkpoint files: whole or refused by name, never another job's."""

import errno
import json
import os

import pytest

from wirespeed.training.checkpoint_files import CheckpointFiles, Refused

ABOUT = {"model": "tiny", "world_size": 2}


@pytest.fixture
def files(tmp_path):
    return CheckpointFiles(tmp_path / "kept", 0, ABOUT)


def test_what_was_written_comes_back(files, tmp_path):
    assert files.steps() == []
    files.write(9, b"nine")
    files.write(10, b"ten")
    assert files.steps() == [9, 10]
    assert (files.read(9), files.read(10)) == (b"nine", b"ten")
    left = {path.name for path in (tmp_path / "kept" / "step-9").iterdir()}
    assert left == {"rank-0.pt", "rank-0.json"}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda place: (place / "rank-0.pt").write_bytes(b"te"), "is torn: 2 of 3 bytes"),
        (lambda place: (place / "rank-0.pt").write_bytes(b"tan"), "is damaged"),
        (lambda place: (place / "rank-0.json").unlink(), "was never completed"),
        (lambda place: (place / "rank-0.json").write_bytes(b'{"step"'), "cannot be read"),
        (lambda place: (place / "rank-0.json").write_bytes(b"[]"), "is no checkpoint of this"),
        (lambda place: (place / "rank-0.pt").unlink(), "No such file"),
        (lambda place: place.rename(place.with_name("step-11")), "not that of its folder"),
    ],
)
def test_a_torn_one_is_refused_by_name(files, tmp_path, spoil, says):
    files.write(10, b"ten")
    spoil(tmp_path / "kept" / "step-10")
    step = files.steps()[0]
    with pytest.raises(Refused, match=says) as refused:
        files.read(step)
    assert f"step-{step}/rank-0.pt" in str(refused.value)


def test_a_foreign_one_is_refused_and_never_removed(files, tmp_path):
    other = CheckpointFiles(tmp_path / "kept", 0, ABOUT | {"world_size": 4})
    other.write(7, b"theirs")
    files.write(8, b"ours")
    with pytest.raises(Refused, match="another job: world_size 4, here 2"):
        files.read(7)
    files.keep([])
    assert files.steps() == [7] and other.read(7) == b"theirs"


def test_another_job_with_the_same_model_is_another_job(tmp_path):
    """Two trainings of one model and seed: each removes and writes over its own only."""
    ours, theirs = (CheckpointFiles(tmp_path, 0, ABOUT, job) for job in ("a", "b"))
    theirs.write(7, b"theirs")
    ours.write(8, b"ours")
    (tmp_path / "step-8" / "notes.txt").write_text("a stranger's")
    with pytest.raises(FileExistsError, match="another job"):
        ours.write(7, b"ours")
    ours.remove(7)
    ours.keep([])
    assert theirs.read(7) == b"theirs" == ours.read(7), "but going on from it is possible"
    assert [path.name for path in (tmp_path / "step-8").iterdir()] == ["notes.txt"]
    assert (ours.job_of(7), ours.job_of(8)) == ("b", "")


def test_one_without_a_job_is_of_an_older_version(tmp_path):
    files = CheckpointFiles(tmp_path, 0, ABOUT, "a")
    files.write(7, b"x")
    path = tmp_path / "step-7" / "rank-0.json"
    marker = json.loads(path.read_text())
    del marker["job"]
    path.write_text(json.dumps(marker))
    assert files.job_of(7) == "" and files.read(7) == b"x"
    files.keep([])
    assert files.steps() == []


def test_only_the_named_ones_are_kept(files):
    for step in (1, 2, 3, 4):
        files.write(step, b"x")
    files.keep([3, 4])
    assert files.steps() == [3, 4]


@pytest.mark.parametrize("at", ["data", "marker"])
def test_a_full_disk_leaves_the_older_one_and_no_rest(files, tmp_path, monkeypatch, at):
    files.write(5, b"five")
    calls, real = [], os.fsync

    def full(handle):
        calls.append(handle)
        if len(calls) == (1 if at == "data" else 2):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(6, b"six")
    assert files.steps() == [5] and files.read(5) == b"five"
    monkeypatch.undo()
    files.write(6, b"six")
    assert files.read(6) == b"six"


def test_an_old_marker_does_not_vouch_for_new_bytes(files, tmp_path, monkeypatch):
    files.write(5, b"five")
    marker = json.loads((tmp_path / "kept" / "step-5" / "rank-0.json").read_text())
    assert marker["bytes"] == 4 and marker["about"] == ABOUT
    monkeypatch.setattr(os, "fsync", lambda handle: _killed())
    with pytest.raises(KeyboardInterrupt):
        files.write(5, b"FIVE")
    with pytest.raises(Refused, match="never completed"):
        files.read(5)


def _killed():
    """As a process that is killed there leaves the files."""
    raise KeyboardInterrupt
