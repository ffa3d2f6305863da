"""What a run's folder is, and which of those that lie there may be removed."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.process import boot_id, pid_space, started
from wirespeed.rank.storage import folder

TOKEN = "0123456789abcdef"


def own(tmp_path: Path) -> Path:
    return tmp_path / f"{folder.PREFIX}{TOKEN}"


def leavings(tmp_path: Path, digit: str, pid: int, began: int, boot: str = "") -> Path:
    path = tmp_path / f"{folder.PREFIX}{digit * 16}"
    (path / "rank-0.small").mkdir(parents=True)
    (path / "rank-0.small" / "1").write_bytes(b"data")
    told = {"boot": boot or boot_id(), "space": pid_space(), "pid": pid, "started": began}
    (path / "rank-0.owner").write_text(json.dumps(told))
    return path


def swept(tmp_path: Path) -> int:
    return folder.begin(tmp_path, own(tmp_path), 0, lambda: None, first=True)[0]


def test_what_a_dead_run_has_left_is_removed_and_what_a_living_one_has_is_not(
    tmp_path: Path,
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = leavings(tmp_path, "a", child.pid, 1)
    living = leavings(tmp_path, "b", os.getpid(), started(os.getpid()) or 0)
    assert swept(tmp_path) == 1
    assert not dead.exists()
    assert living.exists()


_KILLED = """
import os, pathlib, signal, sys
from wirespeed.rank.storage import folder
place, own = map(pathlib.Path, sys.argv[1:])
folder.begin(place, own, 1, lambda: None, first=False)
for name in ("bin", "small"): (own / f"rank-1.{name}").write_bytes(b"data")
def killed(path, tick=None):
    path.unlink()
    os.kill(os.getpid(), signal.SIGKILL)
folder.discard = killed
folder.clean(own, 1, last=False)
"""


def test_what_a_rank_leaves_that_is_killed_in_its_removal_the_next_run_removes(
    tmp_path: Path,
) -> None:
    """Rank 0 of its node is done by then."""
    other = tmp_path / f"{folder.PREFIX}{'c' * 16}"
    folder.begin(tmp_path, other, 0, lambda: None, first=True)
    done = subprocess.run([sys.executable, "-c", _KILLED, tmp_path, other], check=False)
    assert done.returncode == -signal.SIGKILL
    assert folder.clean(other, 0, last=False) == []
    assert len([*other.iterdir()]) == 2  # one of its files, and whose it is
    assert swept(tmp_path) == 1
    assert not other.exists()


def test_of_another_machine_only_what_has_not_changed_for_long(tmp_path: Path) -> None:
    new = leavings(tmp_path, "a", 1, 1, boot="another")
    old = leavings(tmp_path, "b", 1, 1, boot="another")
    for path in (*old.iterdir(), old):
        os.utime(path, (1, 1))
    assert swept(tmp_path) == 1
    assert new.exists()
    assert not old.exists()


def test_without_a_boot_id_no_machine_is_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as in a sandbox that hides it: pids of others say nothing here."""
    monkeypatch.setattr(folder, "boot_id", lambda: "")
    living = leavings(tmp_path, "a", 1, 1)
    told = {"boot": "", "space": pid_space(), "pid": 1, "started": 1}
    (living / "rank-0.owner").write_text(json.dumps(told))
    assert swept(tmp_path) == 0


def test_what_nfs_keeps_of_a_file_that_was_held_is_removed_as_well(tmp_path: Path) -> None:
    dead = leavings(tmp_path, "a", 1, 1)
    (dead / ".nfs000000000c4a1b2d00000001").write_bytes(b"data")
    assert swept(tmp_path) == 1
    assert not dead.exists()


def test_a_folder_of_very_many_files_is_looked_through_with_signs_of_progress(
    tmp_path: Path,
) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    ticks: list[None] = []
    folder.begin(tmp_path, own(tmp_path), 0, lambda: ticks.append(None), first=True)
    assert len(ticks) >= 50


@pytest.mark.hostile("tampered stores")
def test_folders_in_what_is_ours_are_not_removed(tmp_path: Path) -> None:
    dead = leavings(tmp_path, "a", 1, 1)
    (dead / "rank-0.small" / "2").mkdir()
    (dead / "rank-0.small" / "2" / "thesis.tex").touch()
    assert swept(tmp_path) == 0
    with pytest.raises(OSError):
        folder.discard(dead / "rank-0.small")
    assert (dead / "rank-0.small" / "2" / "thesis.tex").exists()


@pytest.mark.hostile("tampered stores")
def test_what_is_mounted_in_what_is_ours_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = leavings(tmp_path, "a", 1, 1)
    lstat = Path.lstat

    def another(path: Path) -> os.stat_result:
        found = lstat(path)
        return os.stat_result((*found[:2], found[2] + 1, *found[3:])) if path.is_dir() else found

    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "lstat", another)
        assert swept(tmp_path) == 0
        with pytest.raises(OSError) as raised:
            folder.discard(dead / "rank-0.small")
    assert raised.value.errno == errno.EXDEV
    assert (dead / "rank-0.small" / "1").exists()


@pytest.mark.hostile("tampered stores")
def test_nothing_else_is_removed(tmp_path: Path) -> None:
    """Folders of other names, links, and such as hold anything that is not ours."""
    foreign = leavings(tmp_path, "a", 1, 1)
    (foreign / "thesis.tex").write_text("")
    elsewhere = tmp_path / "elsewhere"
    leavings(elsewhere, "c", 1, 1).rename(elsewhere / "kept")
    (tmp_path / f"{folder.PREFIX}{'d' * 16}").symlink_to(elsewhere / "kept")
    other = tmp_path / ".wirespeed-storage-backup"
    other.mkdir()
    assert swept(tmp_path) == 0
    assert (foreign / "thesis.tex").exists()
    assert (elsewhere / "kept" / "rank-0.small" / "1").exists()
    assert other.exists()


def test_each_rank_removes_its_own_and_the_last_the_folder(tmp_path: Path) -> None:
    folder.begin(tmp_path, own(tmp_path), 0, lambda: None, first=True)
    (own(tmp_path) / "rank-1.bin").write_bytes(b"")
    assert folder.clean(own(tmp_path), 0, last=False) == []
    assert [one.name for one in own(tmp_path).iterdir()] == ["rank-1.bin"]
    assert folder.clean(own(tmp_path), 0, last=True) != []
    assert folder.clean(own(tmp_path), 1, last=True) == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_there(tmp_path: Path) -> None:
    found = folder.look(tmp_path)
    assert found["filesystem"]
    assert found["total"] >= found["free"] > 0
    with pytest.raises(NotADirectoryError):
        folder.look(Path(__file__))
    with pytest.raises(FileNotFoundError):
        folder.look(tmp_path / "absent")


@pytest.mark.parametrize(
    ("told", "source", "options"),
    [
        (
            "nfs4 srv:/export rw,vers=4.2,hard,username=me,password=x,nconnect=4",
            "srv:/export",
            "vers=4.2,hard,nconnect=4",
        ),
        ("fuse https://me:secret@dav.example/a rw", "https://***@dav.example/a", ""),
        ("tmpfs  rw", "", ""),
    ],
)
def test_of_a_mount_no_secrets_are_told(
    told: str, source: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"36 27 0:31 / /mnt/a\\040b rw,relatime shared:1 - {told}"
    monkeypatch.setattr(Path, "read_text", lambda *_: line)
    kind = told.split(" ")[0]
    assert folder._mount_of(Path("/mnt/a b/c")) == (kind, source, options, "/mnt/a b")


def test_what_a_quota_leaves() -> None:
    """Lines as quota 4.06 prints them with -w -p --show-mntpoint --hide-device."""
    told = (
        "Disk quotas for user ann (uid 1000): \n"
        "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
        "/mnt/home   9000   10000   12000       0       7       0       0       0\n"
        "/mnt/data   4100*   4000   5000 1795660000       1       0       0       0\n"
    )
    assert folder.quota_of(told, "/mnt/data") == 900 * 1024
    assert folder.quota_of(told, "/mnt/other") is None


def test_a_quota_that_cannot_be_read_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "quota"
    program.write_text(
        "#!/bin/sh\necho 'quota: error of srv:/data: Connection refused' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = folder.look(tmp_path)
    assert found["quota"] is None
    assert "Connection refused" in found["quota_unknown"]
