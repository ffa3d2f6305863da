import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from wirespeed.errors import StorageError
from wirespeed.model.records import Run
from wirespeed.runs import folder as folder_module
from wirespeed.runs.folder import RunFolder, new_id
from wirespeed.runs.place import FOLDER_NAME, home
from wirespeed.runs.schema import load_schema
from wirespeed.runs.store import list_runs, load


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", "/a")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    monkeypatch.setenv("HOME", "/c")
    assert home() == Path("/a")
    monkeypatch.setenv("WIRESPEED_HOME", "")
    assert home() == Path("/b/wirespeed")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert home() == Path("/c/.local/state/wirespeed")


def test_what_is_made_is_for_the_user_alone(home: Path, small_run: Run) -> None:
    folder = RunFolder.create("check", {})
    folder.keep("trace.json", "{}")
    folder.finish(small_run)
    for path in (home, *home.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("name", ["", "runs"])
def test_a_home_that_others_may_write_to_is_refused(home: Path, name: str) -> None:
    RunFolder.create("check", {})
    (home / name).chmod(0o775)
    for use in (lambda: RunFolder.create("check", {}), list_runs):
        with pytest.raises(StorageError, match="may be changed by other users") as told:
            use()
        assert told.value.next == f"chmod go-w {home / name}".rstrip("/")
    (home / name).chmod(0o1777)  # as /tmp is: nobody removes what is another's
    RunFolder.create("check", {})


@pytest.mark.parametrize("name", ["", "runs"])
def test_a_home_of_another_user_is_refused(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    RunFolder.create("check", {})
    if os.geteuid() == 0:  # whose folders count as everybody's
        os.chown(home / name, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(StorageError, match="belongs to another user"):
        RunFolder.create("check", {})
    if os.geteuid() == 0:
        monkeypatch.setenv("SUDO_UID", "4242")
        RunFolder.create("check", {})


def test_a_home_may_be_a_link_and_a_file_of_a_run_may_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    home.symlink_to(tmp_path / "elsewhere")
    folder = RunFolder.create("check", {})
    (victim := tmp_path / "victim").write_text("mine")
    records = folder.path / "records.jsonl"
    records.unlink()
    records.symlink_to(victim)
    (folder.path / f".trace.json.{os.getpid()}").symlink_to(victim)
    with pytest.raises(StorageError):
        folder.append("versions", {})
    with pytest.raises(StorageError):
        folder.keep("trace.json", "{}")
    assert victim.read_text() == "mine"


def test_an_id_is_eight_hexadecimal_digits() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch("[0-9a-f]{8}", one) for one in ids)


def test_a_new_folder_has_a_header_that_is_a_run(home: Path) -> None:
    folder = RunFolder.create("check", {"level": "quick", "odd": Path("/x"), "inf": float("inf")})
    assert folder.path.parent == home / "runs"
    assert FOLDER_NAME.fullmatch(folder.path.name)
    assert folder.path.name.endswith(folder.id)
    assert folder.log_path(3) == folder.path / "logs" / "rank-3.log"
    assert folder.log_path(3).parent.is_dir()
    header = json.loads((folder.path / "run.json").read_text())
    Draft202012Validator(load_schema()).validate(header)
    assert header["id"] == folder.id
    assert header["started"] == folder.started
    assert header["verdict"] == "UNKNOWN"
    assert header["exit_code"] == 3
    assert header["unfinished"] is True
    assert header["config"] == {"level": "quick", "odd": "/x", "inf": "inf"}


def test_records_are_lines_with_kind_time_and_data() -> None:
    folder = RunFolder.create("bench", {})
    folder.append("versions", {"torch": "2.13.0"})
    folder.append("choices", [{"name": "a\nb", "value": "µ", "reason": "\udce9"}])
    lines = (folder.path / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["kind"] for record in records] == ["run", "versions", "choices"]
    assert [set(record) for record in records] == [{"kind", "at", "data"}] * 3
    times = [record["at"] for record in records]
    assert times == sorted(times)
    assert records[2]["data"][0]["name"] == "a\nb"


def test_finish_replaces_the_header_and_leaves_nothing_else(finished: Run) -> None:
    folder = RunFolder.create("bench", {})
    folder.finish(finished)
    assert load(folder.path) == finished
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"run.json", "records.jsonl", "logs"}


def test_runs_of_the_same_second_do_not_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: RunFolder.create("bench", {}), range(64)))
    assert len({folder.path for folder in folders}) == 64
    # Even when the dice fall the same way twice.
    ids = iter(["aaaaaaaa"] * 16 + ["aaaaaaaa"] * 3 + ["bbbbbbbb"] * 13)
    monkeypatch.setattr(folder_module, "new_id", lambda: next(ids))
    monkeypatch.setattr(folder_module, "_STAMP", "20260101-000000")
    assert RunFolder.create("bench", {}).id == "aaaaaaaa"
    assert RunFolder.create("bench", {}).id == "bbbbbbbb"


def test_a_given_id_that_is_taken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "_STAMP", "20260101-000000")
    assert RunFolder.create("bench", {}, run_id="12345678").id == "12345678"
    with pytest.raises(StorageError, match="12345678"):
        RunFolder.create("bench", {}, run_id="12345678")


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/x", "{tmp}/file"])
def test_an_unwritable_home_names_place_cause_and_way_out(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    where = place.format(tmp=tmp_path)
    monkeypatch.setenv("WIRESPEED_HOME", where)
    with pytest.raises(StorageError) as caught:
        RunFolder.create("check", {})
    assert where in caught.value.saw
    assert re.search("No such file|Not a directory|Permission|Read-only", caught.value.saw)
    assert re.match('WIRESPEED_HOME="\\$PWD/.* wirespeed check', caught.value.next)
    assert caught.value.exit_code == 3


def test_a_removed_folder_is_a_storage_error(finished: Run) -> None:
    folder = RunFolder.create("bench", {})
    folder.path.rename(folder.path.with_name("elsewhere"))
    with pytest.raises(StorageError, match=r"records\.jsonl"):
        folder.append("versions", {})
    with pytest.raises(StorageError, match=r"run\.json"):
        folder.finish(finished)


FILL = """
import json, resource, signal, sys
from wirespeed.errors import StorageError
from wirespeed.runs.folder import RunFolder
folder = RunFolder.create("bench", {})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
stored = 0
try:
    for number in range(1000):
        folder.append("versions", {"number": "x" * 100})
        stored += 1
except StorageError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    folder.append("versions", {"after": "there is room again"})
    print(json.dumps([str(folder.path), stored, error.saw, error.next]))
"""


@pytest.mark.slow
def test_a_file_that_cannot_grow_loses_only_the_last_record() -> None:
    """RLIMIT_FSIZE ends a write in the middle of a line, as a full disk does."""
    done = subprocess.run(
        # -B: bytecode cut at the limit would be read by every later process.
        [sys.executable, "-B", "-c", FILL],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    path, stored, saw, following = json.loads(done.stdout)
    assert stored > 5
    assert "records.jsonl: File too large" in saw
    assert "WIRESPEED_HOME=" in following
    lines = (Path(path) / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]  # no half line in between
    assert len(records) == stored + 2
    assert records[-1]["data"] == {"after": "there is room again"}


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="Requires: [root], to mount a small tmpfs")
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_run: Run) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"Requires: [mount], which says {mounted.stderr.strip()}")
    try:
        monkeypatch.setenv("WIRESPEED_HOME", str(disk))
        folder = RunFolder.create("bench", {})
        with pytest.raises(StorageError, match="No space left on device"):
            for _ in range(1000):
                folder.append("versions", {"number": "x" * 1000})
        with pytest.raises(StorageError, match=r"run\.json: No space left"):
            folder.finish(small_run)
        assert not list(folder.path.glob(".run.json*"))
        assert load(folder.path).findings[0].id == "RUN-001"
        with pytest.raises(StorageError, match="No space left"):
            for _ in range(100):
                RunFolder.create("bench", {"fill": "x" * 3000})
    finally:
        subprocess.run(["umount", str(disk)], check=True)


KILLED = """
import sys, time
from wirespeed.runs.folder import RunFolder
folder = RunFolder.create("bench", {})
folder.append("versions", {"torch": "2.13.0"})
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_what_was_appended_survives_kill_9() -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout
        path = Path(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
    run = load(path)
    assert run.versions == {"torch": "2.13.0"}
    assert run.findings[0].id == "RUN-001"
