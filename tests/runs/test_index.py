"""The index: the same as the folders tell, whatever becomes of its file."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import InputError
from wirespeed.model.codec import to_json
from wirespeed.model.compute_records import Compute, ComputeRate
from wirespeed.model.records import Finding, NodeFacts, Run, Subject
from wirespeed.runs import folder_stamps, index_file, loading
from wirespeed.runs import index as index_module
from wirespeed.runs.folder import PatientFolder, RunFolder
from wirespeed.runs.index import Index, RunFilter
from wirespeed.runs.loading import load
from wirespeed.runs.rows import (
    FigureRow,
    FindingRow,
    NodeRow,
    Rows,
    RunRow,
    damaged_row,
    order_of,
    rows_of,
)
from wirespeed.runs.store import list_runs, remove, save

KINDS = (RunRow, FigureRow, FindingRow, NodeRow)


@pytest.fixture
def stored(small_run: Run, home: Path) -> list[Path]:
    """Twelve runs, on nodes of their own."""
    return [save(on_node(replace(small_run, id=f"0000000{n:x}"), f"node-{n}")) for n in range(12)]


def on_node(run: Run, host: str, **facts: object) -> Run:
    node = replace(run.world.nodes[0], host=host)
    return replace(run, world=replace(run.world, nodes=(node,)))


def file_of(home: Path) -> Path:
    return home / f"index-{index_file.VERSION}.sqlite"


def everything() -> tuple[list[list[object]], str]:
    """All rows, and why the file was not used."""
    with Index.opened() as index:
        return [[row for page in index.pages(kind) for row in page] for kind in KINDS], (
            index.in_memory
        )


def as_folders_tell(paths: Iterable[Path]) -> list[list[object]]:
    rows = sorted(map(read, paths), key=lambda one: order_of(one.run))
    return [
        [one.run for one in rows],
        *([row for one in rows for row in one[k]] for k in range(1, 4)),
    ]


def read(path: Path) -> Rows:
    try:
        return rows_of(load(path), path.name)
    except InputError as error:
        return damaged_row(path.name, error.saw)


def test_it_tells_what_the_folders_tell(stored: list[Path], home: Path) -> None:
    assert everything() == (as_folders_tell(stored), "")
    assert file_of(home).stat().st_mode & 0o777 == 0o600
    remove(stored.pop(3).name)
    assert everything()[0] == as_folders_tell(stored)
    assert everything()[0] == as_folders_tell(stored)


def test_a_run_is_seen_as_it_is_now(small_run: Run) -> None:
    folder = RunFolder.create("bench", {})
    (row,) = list_runs()
    assert (row.finished, row.verdict, row.headline) == (
        False,
        "UNKNOWN",
        "this run did not finish; 0 measurements were recovered",
    )
    folder.append("finding", to_json(small_run.findings[0]))
    assert list_runs()[0].failed == row.failed + (small_run.findings[0].status == "fail")
    folder.finish(replace(small_run, id=folder.id, started=folder.started))
    assert list_runs()[0].verdict == small_run.verdict
    data = json.loads((folder.path / "run.json").read_text()) | {"verdict": "READY"}
    (folder.path / "run.json").write_text(json.dumps(data))
    assert list_runs()[0].verdict == "READY"
    (folder.path / "run.json").write_text("{")
    (folder.path / "records.jsonl").unlink()
    assert "no valid JSON" in list_runs()[0].damaged


def cut(part: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * part))


def of_version(number: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {number}")
        db.close()

    return change


def without_a_table(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE findings")
    db.close()


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        *map(cut, (0, 0.01, 0.3, 0.5, 0.99)),
        lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
        lambda path: path.write_text("SQLite format 3\0 it is not"),
        of_version(index_file.VERSION + 1),
        of_version(7),
        without_a_table,
    ],
)
def test_a_harmed_index_is_made_anew(
    harm: Callable[[Path], object], stored: list[Path], home: Path
) -> None:
    right = everything()
    harm(file_of(home))
    assert everything() == right
    db = sqlite3.connect(file_of(home))
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert db.execute("SELECT count(*) FROM runs").fetchall() == [(12,)]
    db.close()


def test_garbage_in_any_page_is_seen(stored: list[Path], home: Path) -> None:
    right, path = everything(), file_of(home)
    dice, whole = random.Random(19), path.read_bytes()
    for first in range(0, len(whole), 4096):
        at = first + dice.randrange(4096 - 64)
        path.write_bytes(whole[:at] + dice.randbytes(64) + whole[at + 64 :])
        assert everything()[0] == right[0], at


def test_one_changed_letter_is_seen(stored: list[Path], home: Path) -> None:
    right, path = everything(), file_of(home)
    path.write_bytes(path.read_bytes().replace(b"NOT READY", b"NOW READY", 3))
    assert everything() == right


@pytest.mark.parametrize("what", ["a folder", "locked", "nowhere"])
def test_without_a_file_it_is_made_in_memory(
    what: str, stored: list[Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_BUSY_S", 0.05)
    right = everything()[0]
    other = sqlite3.connect(file_of(home), isolation_level=None)
    if what == "locked":
        other.execute("BEGIN EXCLUSIVE")
    else:
        file_of(home).unlink()
        (home / "elsewhere").mkdir()
        file_of(home).symlink_to("elsewhere/x/y") if what == "nowhere" else file_of(home).mkdir()
    found, why = everything()
    assert found == right
    assert why
    other.close()


def test_no_index_is_made_where_nothing_was_run(home: Path) -> None:
    home.mkdir()
    assert list_runs() == []
    assert list(home.iterdir()) == []


def test_its_time_may_be_bounded(stored: list[Path], home: Path) -> None:
    with Index.opened(seconds=0) as index:
        assert (index.missing, index.runs()) == (12, [])
    with Index.opened() as index:
        assert (index.missing, len(index.runs())) == (0, 12)


def test_a_run_that_goes_on_is_read_by_its_header_and_whole_once_nobody_holds_it(
    small_run: Run, home: Path
) -> None:
    folder = PatientFolder.create("soak", {})
    folder.append("world", to_json(small_run.world))
    folder.append("finding", to_json(Finding(id="X-1", status="fail", title="x")))
    with Index.opened() as index:
        (one,) = index.runs()
        assert (one.command, one.finished, one.failed, one.damaged) == ("soak", False, 0, "")
        assert one.world_size == small_run.world.size
        assert [row.host for row in index.nodes()] == [node.host for node in small_run.world.nodes]
        folder.lock.release()  # as after its death
        (one,) = index.runs()
        assert (one.finished, one.failed) == (False, 1)
        assert "x" in [row.title for row in index.findings()]


def test_the_header_of_a_run_that_goes_on_is_read_where_it_was_written(
    small_run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = PatientFolder.create("soak", {})
    read: list[Path] = []
    header = loading.read_document
    monkeypatch.setattr(loading, "read_document", lambda path: read.append(path) or header(path))
    for _ in range(2):
        assert [one.world_size for one in list_runs()] == [0]
        folder.append("finding", to_json(Finding(id="X-1", status="fail", title="x")))
    assert len(read) == 1
    folder.append("world", to_json(small_run.world))
    for _ in range(2):
        assert [one.world_size for one in list_runs()] == [small_run.world.size]
    assert len(read) == 2


def test_pages_hold_no_more_than_the_newest(
    stored: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_PAGE", 2)
    with Index.opened() as index:
        for kind in KINDS:
            pages = list(index.pages(kind, RunFilter(last=3)))
            rows = [row for page in pages for row in page]
            assert {row.run for row in rows} == {path.name for path in stored[-3:]}
            assert len(pages) == 2


def test_filters(small_run: Run, home: Path) -> None:
    gpu = ({"name": "NVIDIA B200"},)
    node = NodeFacts(host="n'1; DROP TABLE runs", ranks=(0,), facts=small_run.world.nodes[0].facts)
    world = replace(small_run.world, nodes=(replace(node, gpus=gpu),))
    odd = save(replace(small_run, id="00000001", world=world, verdict="READY", exit_code=0))
    bench = save(replace(small_run, id="00000002"))
    train = save(replace(small_run, id="00000003", command="train"))
    (home / "runs" / "20200101-000000-0000000f").mkdir()

    def found(**which: object) -> list[str]:
        with Index.opened() as index:
            rows = index.runs(RunFilter(**which))  # type: ignore[arg-type]
            assert len(rows) == index.count(RunFilter(**which)) or "last" in which  # type: ignore[arg-type]
            return [row.id for row in rows]

    assert found(node=node.host) == found(gpu="b200") == found(verdict="pass") == ["00000001"]
    assert found(verdict="fail") == found(verdict="not ready") == ["00000002", "00000003"]
    assert found(verdict="unknown") == []
    assert found(command="train") == ["00000003"]
    assert found(since="2021") == found(finished=True) == ["00000001", "00000002", "00000003"]
    assert found(until="2021", since="2000") == []
    assert found(last=2) == ["00000002", "00000003"]
    assert found(last=1, before=train.name) == ["00000002"]
    assert found(before=odd.name) == ["0000000f"]
    assert found(world=("gloo", 2), last=1) == ["00000003"]
    assert found(world=("nccl", 2)) == []
    with Index.opened() as index:
        assert {row.run for row in index.figures(["all_reduce"], RunFilter(last=2))} == {
            *(bench.name, train.name)
        }
        assert index.figures(["none"]) == []
        assert index.hosts() == sorted({node.host, small_run.world.nodes[0].host})
        assert [row.run for row in index.nodes(node=node.host)] == [odd.name]


def test_findings_by_node(small_run: Run) -> None:
    told = {"id": "NET-009", "status": "fail", "title": "slow"}
    findings = (
        Finding(**told, subject=Subject("link", "a -> b")),
        Finding(**told, subject=Subject("rank", "rank 1")),
        Finding(**told, subject=Subject("node", "elsewhere")),
        Finding(**told),
    )
    save(on_node(replace(small_run, findings=findings), "a"))
    with Index.opened() as index:
        of = {host: [row.number for row in index.findings(node=host)] for host in ("a", "b", "c")}
        assert of == {"a": [0, 1], "b": [0], "c": []}
        assert len(index.findings(ids=["NET-009"], status=["fail"])) == 4
        assert index.findings(status=["warn"]) == []
        assert index.nodes()[0].status == "fail"
    assert rows_of(replace(small_run, findings=findings), "x").run.failed == 4


def test_what_devices_did_counts_as_measured(small_run: Run) -> None:
    where = {"host": "a", "device": "NUMA node 0", "product": "CPU", "rank": 0}
    rate = ComputeRate(**where, dtype="float32", op="copy")
    plain = rows_of(small_run, "x").run.measurements
    told = replace(small_run, compute=Compute(rates=(rate, replace(rate, reason="busy"))))
    assert rows_of(told, "x").run.measurements == plain + 1


def test_runs_that_come_and_go_while_it_lists(
    stored: list[Path], small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = index_module.folder_changes

    def while_another_is_made(*told: Any) -> tuple[set[str], set[str], str]:
        found = names(*told)
        monkeypatch.setattr(index_module, "folder_changes", names)
        stored.append(save(replace(small_run, id="aaaaaaaa")))
        remove(stored.pop(0).name)
        return found

    monkeypatch.setattr(index_module, "folder_changes", while_another_is_made)
    everything()
    assert everything()[0] == as_folders_tell(stored)


@pytest.mark.parametrize("large", [False, True])
def test_a_damaged_branch_hides_nothing(
    large: bool, small_run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reads what is left of it, and says nothing. Of a large file another process looks."""
    begun: list[int] = []
    if large:
        monkeypatch.setattr(index_file, "_SMALL_BYTES", 0)
        monkeypatch.setattr(index_file, "_begin_to_look", lambda: begun.append(1))
    node = small_run.world.nodes[0]
    nodes = tuple(replace(node, host=f"node-{number:02}") for number in range(80))
    stored = save(replace(small_run, world=replace(small_run.world, nodes=nodes)))
    told = everything()
    assert told == (as_folders_tell([stored]), "")
    with sqlite3.connect(file_of(home)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'nodes'")
    db.close()
    with file_of(home).open("r+b") as file:  # https://www.sqlite.org/fileformat2.html, 1.6
        file.seek((root - 1) * 4096)
        assert file.read(5)[-1] > 1, "no branch"
        file.seek(-1, os.SEEK_CUR)
        file.write(b"\1")
    if large:
        with Index.opened() as index:
            index.look_over()
        subprocess.run(index_file._LOOK, check=True)
    assert everything() == told
    assert begun == [1] * large, "more than once a day"


def test_of_many_names_those_that_are_as_they_were_are_not_compared(
    stored: list[Path], small_run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has gone, or come with an older name than others, is seen all the same."""
    monkeypatch.setattr(folder_stamps, "_MANY", 2)
    compared: list[int] = []
    changes = index_module.folder_changes

    def seen(*told: Any) -> tuple[set[str], set[str], str]:
        runs, known, names = told
        return changes(
            runs, lambda after: compared.append(len(known(after))) or known(after), names
        )

    monkeypatch.setattr(index_module, "folder_changes", seen)
    assert everything()[0] == as_folders_tell(stored)
    stored.append(save(replace(small_run, id="aaaaaaaa", started="2031-01-01T00:00:00.000Z")))
    assert everything()[0] == as_folders_tell(stored)
    assert compared[-1] < len(stored) - 1
    first = stored.pop(0)
    away = first.rename(home / first.name)
    assert everything()[0] == as_folders_tell(stored)
    stored.insert(0, away.rename(first))
    assert everything()[0] == as_folders_tell(stored)


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from wirespeed.runs.loading import load
from wirespeed.runs.store import list_runs, save
run = load(Path(sys.argv[1]))
print("begun", flush=True)
for n in range(int(sys.argv[3])):
    path = save(replace(run, id=f"{sys.argv[2]}{n:06x}"))
    assert path.name in [one.run for one in list_runs()]
"""


@contextmanager
def writers(golden: Path, many: int, runs: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that each save a run and find it in the list, again and again; they have begun."""
    file = str(golden.parent / "runs" / "golden" / "first-check.run.json")
    with ExitStack() as stack:
        started = []
        for number in range(many):
            words = [sys.executable, "-c", WRITER, file, f"{number:02x}", str(runs)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(stack.enter_context(subprocess.Popen(words, **pipes)))  # type: ignore[call-overload]
            stack.callback(started[-1].kill)
        for one in started:
            one.stdout.readline()
        yield started


@pytest.mark.slow
def test_many_write_and_read_at_once(golden: Path, home: Path) -> None:
    with writers(golden, 6, 12) as started:
        for one in started:
            assert one.communicate(timeout=60)[1] == ""
            assert one.returncode == 0
    found, why = everything()
    assert (found, why) == (as_folders_tell((home / "runs").iterdir()), "")
    assert len(found[0]) == 72


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["kill", "cut", "garbage", "delete"])
def test_harm_in_the_middle_of_writes(harm: str, golden: Path, home: Path) -> None:
    """Whoever is not killed itself goes on without a word; nothing is lost for anybody."""
    dice = random.Random(harm)
    with writers(golden, 3, 4000) as started:
        for _ in range(20):
            time.sleep(dice.uniform(0.02, 0.1))
            with suppress(FileNotFoundError):
                _do_harm(harm, file_of(home), dice)
        for one in started:
            one.kill()
            assert one.communicate(timeout=60)[1] == ""
    found, why = everything()
    assert (found, why) == (as_folders_tell((home / "runs").iterdir()), "")
    assert len(found[0]) > 3


def _do_harm(harm: str, path: Path, dice: random.Random) -> None:
    size = path.stat().st_size
    if harm == "cut":
        os.truncate(path, int(size * dice.random()))
    elif harm == "delete":
        path.unlink()
    elif harm == "garbage":
        with path.open("r+b") as file:
            file.seek(int(size * dice.random()))
            file.write(dice.randbytes(200))


def test_an_index_that_does_not_say_when_it_was_made_is_read(
    stored: list[Path], home: Path
) -> None:
    told = everything()
    with sqlite3.connect(file_of(home)) as db:
        db.execute("DELETE FROM told WHERE name = 'made'")
    db.close()
    assert everything() == told


def test_a_home_whose_name_is_no_text(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    monkeypatch.setenv("WIRESPEED_HOME", str(home))
    one, other = save(replace(small_run, id="00000001")), save(replace(small_run, id="00000002"))
    (one / "run.json").write_text("{")
    (other / "run.json").unlink()
    (other / "records.jsonl").unlink()
    damaged = {row.id: bool(row.damaged) for row in list_runs()}
    assert damaged == {"00000001": False, "00000002": True}
    assert everything()[1] == ""


def test_odd_values_are_kept(small_run: Run, home: Path) -> None:
    """What a tampered file may hold: figures beyond any column, names of somebody who means ill."""
    node = small_run.world.nodes[0]
    gpus = tuple({"name": "'; --\0<b>", "ecc_uncorrected": 2**64 - 1} for _ in range(2))
    world = replace(small_run.world, size=2**62, nodes=(replace(node, gpus=gpus),))
    path = save(replace(small_run, world=world, seconds=1e29, command="é'\"\n;"))
    found, why = everything()
    assert (found, why) == (as_folders_tell([path]), "")
    with Index.opened() as index:
        assert index.nodes()[0].ecc_uncorrected == 2**63 - 1


OTHER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    db.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""


def test_one_thread_that_reads_leaves_the_locks_of_another(stored: list[Path], home: Path) -> None:
    """Locks of a file belong to the process: closing it once would end them all."""
    everything()
    with sqlite3.connect(file_of(home), isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        file = index_file.IndexFile(file_of(home), lambda: None)
        assert file.ask("SELECT count(*) FROM runs") == [(len(stored),)]
        file.close()
        told = subprocess.run(
            [sys.executable, "-c", OTHER, file_of(home)], capture_output=True, text=True
        )
        db.execute("ROLLBACK")
    db.close()
    assert told.stdout == "database is locked\n", told.stderr
