"""`wirespeed watch TRACES…` as a command: verdicts, formats, mistakes."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

import trace_making as making
from wirespeed.cli import run as cli

WATCH = Path(__file__).parents[1] / "watch" / "traces"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "traces"
    made.mkdir()
    return made


def write_job(folder, steps=40, **told):
    for rank in range(4):
        making.write(folder / f"rank{rank}.json", rank, making.job(rank, steps, **told))


def asked(capsys, *arguments):
    code = cli(["watch", *map(str, arguments), "-o", "json", "-q"])
    return code, json.loads(capsys.readouterr().out)


def test_a_late_rank_is_named_since_its_step(folder, capsys):
    write_job(folder, 60, work_ms=lambda rank, step: 22.0 if rank == 2 and step >= 30 else 10.0)
    code, run = asked(capsys, folder)
    assert (code, run["verdict"], run["command"]) == (1, "SLOW", "watch")
    assert run["verdict_subject"] == "rank 2"
    (failed,) = [one for one in run["findings"] if one["status"] == "fail"]
    assert (failed["id"], failed["subject"]) == ("WATCH-001", {"kind": "rank", "name": "rank 2"})
    (change,) = [one for one in run["watched"]["changes"] if one["subject"] == "rank 2"]
    assert abs(change["step"] - 30) <= 2
    assert run["watched"]["boundary"] == "annotation"
    assert run["watched"]["traffic"][0]["op"] == "all_reduce"
    assert cli(["runs", "show", "last", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == run["findings"]


def test_an_even_job_is_good(folder, capsys):
    write_job(folder)
    code, run = asked(capsys, folder)
    assert (code, run["verdict"]) == (0, "NO FINDINGS")


def test_few_steps_of_a_late_rank_name_it_too(folder, capsys):
    write_job(folder, 6, work_ms=lambda rank, step: 22.0 if rank == 1 else 10.0)
    code, run = asked(capsys, folder)
    assert code == 1
    assert run["findings"][0]["subject"]["name"] == "rank 1"


def test_a_trace_that_breaks_off_is_never_good(folder, capsys):
    write_job(folder)
    text = (folder / "rank3.json").read_bytes()
    (folder / "rank3.json").write_bytes(text[:-50])
    code, run = asked(capsys, folder)
    assert (code, run["verdict"]) == (3, "NOT ENOUGH SEEN")
    (said,) = [one for one in run["findings"] if "breaks off" in one["because"]]
    assert (said["id"], said["status"]) == ("WATCH-014", "not_checked")


def test_a_packed_trace_that_breaks_off_is_read_as_far_as_it_goes(folder, capsys):
    write_job(folder)
    for rank in range(4):
        path = folder / f"rank{rank}.json"
        packed = gzip.compress(path.read_bytes())
        path.with_suffix(".json.gz").write_bytes(packed[: -40 if rank == 1 else None])
        path.unlink()
    code, run = asked(capsys, folder)
    assert code == 3
    assert run["watched"]["ranks"] == 4
    assert any("breaks off" in one["because"] for one in run["findings"])


def test_ranks_without_a_trace_are_said(folder, capsys):
    write_job(folder)
    (folder / "rank1.json").unlink()
    code, run = asked(capsys, folder)
    assert code == 3
    assert any("1 of 4 ranks" in one["title"] for one in run["findings"])


def test_dumps_of_a_hung_job_name_who_hangs(folder, capsys):
    group = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    for rank in range(3):
        entries = [
            {
                "record_id": seq,
                "process_group": ["0", "default_pg"],
                "collective_seq_id": seq,
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[64]],
                "input_dtypes": ["Float"],
                "time_created_ns": 10**18 + seq * 10**7,
                "state": "completed" if seq < 4 else "scheduled",
                "retired": seq < 4,
            }
            for seq in range(1, 4 if rank == 1 else 5)
        ]
        dump = {"version": "2.4", "pg_config": group, "rank": rank, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_text(json.dumps(dump))
    code, run = asked(capsys, folder)
    assert code == 1
    failed = [one for one in run["findings"] if one["status"] == "fail"]
    assert [one["subject"]["name"] for one in failed] == ["rank 1"]
    assert failed[0]["id"] == "FLIGHT-002"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("t.json", b"", "is empty"),
        ("t.json", b'{"a": 1}', "JSON of another kind"),
        ("t.json", b"[1, 2, 3]", "JSON of another kind"),
        ("t.txt", b"no trace\n", "is no trace"),
        ("t.json", b'{"schemaVersion": 1, "deviceProperties": [', "breaks off"),
    ],
)
def test_what_is_no_trace_is_an_error(folder, capsys, name, data, said):
    (folder / name).write_bytes(data)
    for path in (folder / name, folder):
        assert cli(["watch", str(path)]) == 2
        err = capsys.readouterr().err
        assert "expected" in err and "Traceback" not in err
        assert said in err or path == folder


def test_wrong_usage(folder, capsys):
    for arguments, said in (
        ((), "no trace is given"),
        (("nowhere",), "there is no nowhere"),
        (("no*.json",), "nothing matches"),
        ((str(folder),), "no log file there"),
    ):
        assert cli(["watch", *arguments]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("format", ["table", "md", "csv", "wide"])
def test_every_format_prints(folder, capsys, format):
    for rank in (0, 1):
        shutil.copy(WATCH / "made" / f"ddp_rank{rank}.json.gz", folder)
    assert cli(["watch", str(folder / "*.gz"), "-o", format]) == 3
    assert capsys.readouterr().out
