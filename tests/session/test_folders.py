"""What a run that was killed leaves in the temporary folder goes with the next run."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wirespeed.session.folders import new_scratch

LEAVE = (
    "from wirespeed.session.folders import new_scratch; print(new_scratch(), flush=True); input()"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_dead_ones_folder_goes_and_a_living_ones_stays(folder: Path) -> None:
    left = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", LEAVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(folder)}, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        left.append((process, Path(process.stdout.readline().strip())))
    (dead, gone), (living, kept) = left
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    mine = new_scratch()
    assert not gone.exists()
    assert kept.is_dir() and mine.is_dir()
    living.communicate("\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.replace(told.split("\n")[0], "elsewhere", 1),
        lambda told: "\n".join((*told.split("\n")[:2], "7", "1", "0")),
        lambda told: "nothing of ours",
        lambda told: "",
        lambda told: "\0" * 100_000,
    ],
    ids=["another host", "another container", "strange", "empty", "large"],
)
def test_what_is_not_known_to_be_dead_stays(folder: Path, change: object) -> None:
    other = new_scratch()
    told = (other / "owner").read_text()
    (other / "owner").write_text(change(told))  # type: ignore[operator]
    new_scratch()
    assert other.is_dir()


def test_before_the_last_boot_everybody_died(folder: Path) -> None:
    other = new_scratch()
    host, _, *rest = (other / "owner").read_text().split("\n")
    (other / "owner").write_text("\n".join((host, "another-boot", *rest)))
    new_scratch()
    assert not other.exists()


def test_a_pid_that_another_process_has_now_is_no_owner(folder: Path) -> None:
    other = new_scratch()
    (other / "owner").write_text((other / "owner").read_text() + "1")
    new_scratch()
    assert not other.exists()


def test_links_and_folders_of_others_stay(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (folder / "wirespeed-link").symlink_to(precious)
    (folder / "wirespeed-lab").mkdir()
    (folder / "wirespeed-file").write_text("x")
    new_scratch()
    assert precious.is_dir() and (folder / "wirespeed-lab").is_dir()
    assert (folder / "wirespeed-link").is_symlink() and (folder / "wirespeed-file").is_file()
