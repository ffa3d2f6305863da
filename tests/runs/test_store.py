import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.model.codec import to_json
from wirespeed.model.records import Run
from wirespeed.runs import loading, recovery
from wirespeed.runs.folder import RunFolder
from wirespeed.runs.store import find, list_runs, load, past_runs, remove, save


def unfinished(run: Run) -> RunFolder:
    """A folder as a run leaves it that was killed after its last measurement."""
    folder = RunFolder.create(run.command, run.config, run_id=run.id)
    folder.append("world", to_json(run.world))
    folder.append("choices", [asdict(choice) for choice in run.choices])
    folder.append("versions", run.versions)
    folder.append("environment", run.environment)
    folder.append("measurement", to_json(run.measurements[0]))
    folder.append("verification", to_json(run.verifications[0]))
    folder.append("finding", to_json(run.findings[0]))
    return folder


def test_a_saved_run_comes_back_whole(small_run: Run) -> None:
    path = save(small_run)
    again = load(path)
    assert replace(again, started=small_run.started) == small_run
    assert load(path / "run.json") == again


def test_a_json_file_from_elsewhere_is_a_run(small_run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(to_json(small_run)))
    assert load(find(str(file))) == small_run


def test_a_run_that_did_not_finish_is_rebuilt(small_run: Run) -> None:
    folder = unfinished(small_run)
    run = load(folder.path)
    assert run.verdict == "UNKNOWN"
    assert run.exit_code == 3
    assert run.id == small_run.id
    assert run.command == "bench"
    assert run.config == small_run.config
    assert run.seconds > 0
    note, *rest = run.findings
    assert note.id == "RUN-001"
    assert note.status == "warn"
    assert note.title == "this run did not finish; 1 measurement was recovered"
    assert tuple(rest) == small_run.findings
    for name in ("world", "versions", "environment", "choices", "measurements", "verifications"):
        assert getattr(run, name) == getattr(small_run, name), name


def test_lost_run_json_is_rebuilt_from_the_records_alone(small_run: Run) -> None:
    folder = unfinished(small_run)
    (folder.path / "run.json").unlink()
    run = load(folder.path)
    assert run.command == "bench"
    assert run.started == folder.started
    assert run.measurements == small_run.measurements


def test_records_without_their_header_have_the_name_of_the_folder(small_run: Run) -> None:
    folder = unfinished(small_run)
    records = folder.path / "records.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[1:]))
    (folder.path / "run.json").write_text("{")
    run = load(folder.path)
    assert run.id == small_run.id
    assert run.started[:10].replace("-", "") == folder.path.name[:8]
    assert run.measurements == small_run.measurements


@pytest.mark.hostile("tampered stores")
def test_damaged_and_unknown_records_are_left_out_and_counted(small_run: Run) -> None:
    folder = unfinished(small_run)
    with (folder.path / "records.jsonl").open("ab") as file:
        file.write(b'{"kind": "measurement", "at": 1, "data": {"op": "x"}}\n')
        file.write(b"\xff\xfe\n[]\nnull\n\n")
        file.write(b'{"kind": "choices", "at": 1, "data": 3}\n')
        file.write(b'{"kind": "versions", "at": "x", "data": {"a": 1}}\n')
        file.write(b'{"kind": "of a later version", "at": 1e400, "data": 3}\n')
        file.write(b'{"kind": "versions", "at": 0, "data": {"nccl": "2.29"}}\n')
    run = load(folder.path)
    assert run.measurements == small_run.measurements
    assert run.versions == {**small_run.versions, "nccl": "2.29"}
    assert "6 damaged records were left out" in run.findings[0].saw


def cuts(whole: bytes) -> list[int]:
    """Where a file is cut: around its ends, and in every seventh place."""
    last = len(whole)
    return [end for end in range(last) if end < 100 or last - end < 100 or end % 7 == 0]


@pytest.mark.slow
@pytest.mark.hostile("tampered stores")
def test_run_json_cut_anywhere(small_run: Run, count_attacks: Any) -> None:
    """A finished run whose run.json is cut: the records give it back, or it is whole."""
    folder = unfinished(small_run)
    folder.finish(small_run)
    file = folder.path / "run.json"
    whole = file.read_bytes()
    for end in (ends := cuts(whole)):
        file.write_bytes(whole[:end])
        run = load(folder.path)
        assert run.measurements == small_run.measurements
        if run != small_run:
            assert run.findings[0].id == "RUN-001"
            assert run.verdict == "UNKNOWN"
        else:
            assert not whole[end:].strip()
    count_attacks("tampered stores", len(ends))


@pytest.mark.hostile("tampered stores")
def test_run_json_cut_anywhere_without_records(
    small_run: Run, tmp_path: Path, count_attacks: Any
) -> None:
    file = tmp_path / "run.json"
    whole = json.dumps(to_json(small_run)).encode()
    for end in (ends := cuts(whole)):
        file.write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"run\.json: no valid JSON"):
            load(file)
    count_attacks("tampered stores", len(ends))


@pytest.mark.slow
@pytest.mark.hostile("tampered stores")
def test_records_cut_anywhere(small_run: Run, count_attacks: Any) -> None:
    folder = unfinished(small_run)
    file = folder.path / "records.jsonl"
    whole = file.read_bytes()
    header = (folder.path / "run.json").read_bytes()
    seen = set()
    for end in (ends := cuts(whole)):
        file.write_bytes(whole[:end])
        for run_json in (header, b""):
            (folder.path / "run.json").write_bytes(run_json)
            try:
                run = load(folder.path)
            except InputError:
                assert not run_json and b"\n" not in whole[:end]
                continue
            seen.add(len(run.measurements))
            assert run.findings[0].id == "RUN-001"
            assert "damaged" not in run.findings[0].saw
    assert seen == {0, 1}
    count_attacks("tampered stores", 2 * len(ends))


@pytest.mark.hostile("tampered stores")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\xfe garbage \x80",
        b"[" * 100_000,
        b"NaN",
        b'{"schema": "other"}',
        b"1" * 10_000,
        b'"\\ud800"',
    ],
)
def test_garbage_is_an_input_error(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"run\.json"):
        load(file)
    (tmp_path / "records.jsonl").write_bytes(content)
    with pytest.raises(InputError):
        load(tmp_path)


def test_find_by_id_prefix_name_last_and_path(small_run: Run, tmp_path: Path) -> None:
    first = save(replace(small_run, id="aa000001"))
    second = save(replace(small_run, id="aa000002"))
    third = save(replace(small_run, id="bb000003"))
    assert find("aa000001") == first
    assert find("b") == third
    assert find("last") == third
    assert find(second.name) == second
    assert find(str(second)) == second
    assert find(str(second / "run.json")) == second / "run.json"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("aa", "'aa' matches 2 runs: aa000001, aa000002"),
        ("", "matches 2 runs"),
        ("cc", "no run 'cc'"),
        ("/nowhere/at/all", "no run"),
        ("x" * 5000, "no run"),
        ("nul\x00", "no run"),
        ("~nobodyatall/x", "no run"),
    ],
)
def test_a_reference_that_names_not_one_run(reference: str, said: str, small_run: Run) -> None:
    save(replace(small_run, id="aa000001"))
    save(replace(small_run, id="aa000002"))
    with pytest.raises(UsageError) as caught:
        find(reference)
    assert said in caught.value.saw
    assert caught.value.next == "wirespeed runs list"


def test_a_folder_without_a_run_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a folder without run\.json"):
        find(f"{tmp_path}/")
    with pytest.raises(UsageError, match="no runs in"):
        find("last")


def test_last_is_the_latest_of_one_second(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.runs.folder._STAMP", "20260101-000000")
    paths = [save(replace(small_run, id=f"{9 - n}0000000")) for n in range(5)]
    for path, millisecond in zip(paths, (1, 2, 9, 4, 3), strict=True):
        data = json.loads((path / "run.json").read_text())
        data["started"] = f"2026-01-01T00:00:00.00{millisecond}Z"
        (path / "run.json").write_text(json.dumps(data))
    assert find("last") == paths[2]
    assert [Path(s.path) for s in list_runs()] == [paths[i] for i in (0, 1, 4, 3, 2)]


def test_the_list_has_good_unfinished_and_damaged_runs(small_run: Run, home: Path) -> None:
    assert list_runs() == []
    save(replace(small_run, id="00000001"))
    unfinished(replace(small_run, id="00000002"))
    (home / "runs" / "20200101-000000-0000000f").mkdir()
    (home / "runs" / "not a run").mkdir()
    (home / "runs" / "20200101-000000-0000000e").write_text("a file")
    damaged, good, open_one = list_runs()
    assert damaged.id == "0000000f"
    assert "run.json" in damaged.damaged
    assert (good.id, good.finished, good.damaged) == ("00000001", True, "")
    assert (good.command, good.verdict, good.exit_code) == ("bench", "NOT READY", 1)
    assert (good.world_size, good.nodes, good.backend, good.measurements) == (2, 1, "gloo", 1)
    assert (open_one.id, open_one.finished, open_one.verdict) == ("00000002", False, "UNKNOWN")


def test_remove_deletes_one_run_folder(small_run: Run) -> None:
    kept = save(replace(small_run, id="00000001"))
    gone = save(replace(small_run, id="00000002"))
    assert remove("00000002") == gone
    assert not gone.exists()
    assert load(kept)


def test_remove_deletes_a_damaged_run_too(home: Path) -> None:
    path = home / "runs" / "20200101-000000-0000000f"
    path.mkdir(parents=True)
    remove("0000000f")
    assert not path.exists()


@pytest.mark.hostile("tampered stores")
def test_remove_touches_nothing_but_run_folders(small_run: Run, home: Path, tmp_path: Path) -> None:
    inside = save(replace(small_run, id="00000001"))
    outside = tmp_path / "20200101-000000-0000000a"
    outside.mkdir()
    (outside / "run.json").write_text(json.dumps(to_json(small_run)))
    link = home / "runs" / "20200101-000000-0000000b"
    link.symlink_to(outside)
    renamed = home / "runs" / "precious"
    renamed.mkdir()
    (renamed / "run.json").write_text("{}")
    for reference in (
        str(outside),
        str(outside / "run.json"),
        str(link),
        "0000000b",
        str(renamed),
        str(inside / "run.json"),
        f"{inside}/logs/../../../../20200101-000000-0000000a",
    ):
        with pytest.raises(UsageError, match="left alone"):
            remove(reference)
    assert (outside / "run.json").exists()
    assert (renamed / "run.json").exists()
    assert load(inside)


@pytest.mark.skipif(os.geteuid() == 0, reason="Requires: [a user who is not root]")
def test_remove_says_what_it_could_not_do(small_run: Run, home: Path) -> None:
    save(small_run)
    (home / "runs").chmod(0o500)
    try:
        with pytest.raises(StorageError, match="cannot remove"):
            remove(small_run.id)
    finally:
        (home / "runs").chmod(0o700)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "it is a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "a link to another place"),
        (os.mkdir, "it is a folder"),
    ],
)
def test_what_is_no_file_is_never_waited_for(
    small_run: Run, make: Callable[[Path], None], told: str
) -> None:
    good, bad = save(replace(small_run, id="00000001")), save(small_run)
    for name in ("run.json", "records.jsonl"):
        (bad / name).unlink()
        make(bad / name)
    with pytest.raises(InputError, match=told):
        load(bad)
    shown = {Path(one.path): one.damaged for one in list_runs()}
    assert not shown[good]
    assert told in shown[bad]
    assert list(past_runs()) == []


def test_a_run_that_is_too_large_is_refused(
    small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(small_run)
    monkeypatch.setattr(loading, "LARGEST", 1000)
    monkeypatch.setattr(recovery, "LARGEST", 1000)
    with pytest.raises(InputError, match="larger than 1000 B"):
        load(path / "run.json")
