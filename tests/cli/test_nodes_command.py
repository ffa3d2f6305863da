"""`wirespeed nodes`: in the tests' own process, on what was stored before."""

import json
import time

import numpy as np
import pytest

import usual
from wirespeed.model.records import Finding, Subject
from wirespeed.runs.store import save

HEAD = "JobIDRaw|User|Partition|State|Start|End|NodeList|JobName\n"


def accounting(bad: str = "gpu3") -> str:
    """Six weeks of jobs on eight nodes, one of which fails a third of its jobs."""
    rng, now = np.random.default_rng(1), int(time.time())
    lines = []
    for slot in range(160):
        start = now - (161 - slot) * 21600
        for node in range(8):
            broke = f"gpu{node}" == bad and rng.random() < 0.33
            state, end = ("FAILED", start + 9000) if broke else ("COMPLETED", start + 21600)
            lines.append(f"{slot}{node}|u{slot % 9}|train|{state}|{start}|{end}|gpu{node}|x")
    return HEAD + "\n".join(lines) + "\n"


def test_jobs_are_imported_and_the_lemon_is_named(cli, tmp_path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_text(accounting())
    done = cli.here("nodes", "import-jobs", str(file))
    assert done.code == 0, done.err
    assert "1,280 jobs that ended on 8 nodes" in done.out
    again = cli.here("nodes", "import-jobs", str(file))
    assert (again.code, "all of them were stored already" in again.out) == (0, True)
    done = cli.here("nodes", "lemons")
    assert done.code == 1
    assert "LEMON  gpu3" in done.out
    assert "next: wirespeed nodes show gpu3" in done.out
    told = json.loads(cli.here("nodes", "lemons", "-o", "json").out)
    assert [one["node"] for one in told["suspects"] if one["accused"]] == ["gpu3"]
    done = cli.here("nodes", "repaired", "gpu3")
    assert ("gpu3: repaired" in done.out, done.err) == (True, "")
    done = cli.here("nodes", "repaired", "gpu33")
    assert (done.code, "no run or job stored here knows it" in done.err) == (0, True)
    done = cli.here("nodes", "lemons")
    assert (done.code, "no lemons" in done.out) == (0, True)
    shown = cli.here("nodes", "show", "gpu3")
    assert shown.code == 0
    assert "gpu3  in no stored run" in shown.out
    assert "160 jobs in the last 91 days" in shown.out
    assert "(u1/x) failed" in shown.out


@pytest.mark.hostile("hostile values")
def test_a_name_that_would_steer_a_terminal_is_made_harmless(cli, tmp_path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_text(accounting().replace("|gpu3|x", "|\x1bc$(id)|\x1b]0;x\x07"))
    assert cli.here("nodes", "import-jobs", str(file)).code == 0
    done = cli.here("nodes", "lemons")
    assert done.code == 1
    shown = cli.here("nodes", "show", "\x1bc$(id)")
    assert shown.code == 0
    assert not {"\x1b", "\x07"} & {*done.out, *shown.out}
    assert "next: wirespeed nodes show ' c$(id)'" in done.out


def test_nothing_is_known_yet(cli) -> None:
    assert "next: wirespeed check" in cli.here("nodes", "list").out
    done = cli.here("nodes", "lemons")
    assert (done.code, "wirespeed nodes import-jobs" in done.err) == (5, True)
    file = cli.folder / "jobs.txt"
    hour = int(time.time()) + 3600
    file.write_text(f"{HEAD}1|ann|p|FAILED|{hour}|{hour + 60}|a|x\n")  # by a clock of another zone
    assert cli.here("nodes", "import-jobs", str(file)).code == 0
    assert cli.here("nodes", "lemons").code == 5
    done = cli.here("nodes", "show", "n\x1b[31m")
    assert done.code == 2
    assert "\x1b" not in done.err


def test_a_node_of_stored_runs_is_listed_and_shown(cli) -> None:
    assert cli.here("topo", "-q").code in (0, 3)
    done = cli.here("nodes", "list", "-o", "json")
    (one,) = json.loads(done.out)
    assert one["runs"] == 1
    assert one["latest"]["command"] == "topo"
    assert one["host"] in cli.here("nodes", "list").out
    shown = cli.here("nodes", "show", one["host"])
    assert "first seen, by topo, alone" in shown.out
    other = cli.here("nodes", "show", "nobody")
    assert other.code == 2
    assert one["host"] in other.err


def test_what_is_open_is_listed_and_shown_with_the_command_that_looks_again(
    cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(cli.home))
    slow = Finding(id="LOC-001", status="fail", title="b is slow", subject=Subject("node", "b"))
    warm = Finding(id="GPU-011", status="warn", title="b is warm", subject=Subject("node", "b"))
    told = {"command": "locate", "verdict": "NOT READY", "exit_code": 1, "started": ""}
    world = usual.world(usual.node("a", 0), usual.node("b", 1))
    save(usual.run(world=world, findings=(slow, warm), **told))
    listed = cli.here("nodes", "list").out
    row = next(line for line in listed.splitlines() if line.startswith("b "))
    assert row.split()[1] == "fail"
    assert "LOC-001" in row and "GPU-011" not in row
    assert "next: wirespeed locate   (with b" in listed
    shown = cli.here("nodes", "show", "b").out
    assert "LOC-001 fail since" in shown and "wirespeed locate" in shown
    assert "GPU-011 warn since" in shown and "wirespeed check --only GPU-011" in shown
    (one,) = [one for one in json.loads(cli.here("nodes", "list", "-o", "json").out) if one["open"]]
    assert [(each["id"], each["status"]) for each in one["open"]] == [
        ("LOC-001", "fail"),
        ("GPU-011", "warn"),
    ]


def test_a_program_that_is_not_there_changes_no_node(cli) -> None:
    assert cli("launch", "--ranks", "1", "-q", "--", "no-such-program").code == 127
    for one in json.loads(cli.here("nodes", "list", "-o", "json").out):
        assert (one["said"], one["blamed"], one["open"]) == ("", 0, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "is no output of sacct"),
        (HEAD, "no job that has ended"),
        (None, "cannot read"),
    ],
)
def test_files_that_are_none(cli, tmp_path, text, said) -> None:
    file = tmp_path / "jobs.txt"
    if text is not None:
        file.write_text(text)
    done = cli.here("nodes", "import-jobs", str(file))
    assert done.code == 2
    assert said in done.err
    assert "next" in done.err
    assert cli.here("runs", "list", "-o", "json").out.strip() == "[]"


def test_without_slurm_it_is_told_how_to_give_a_file(cli) -> None:
    done = cli.here("nodes", "import-jobs", env={"PATH": "/nowhere"})
    assert done.code == 3
    assert "sacct tells no jobs: sacct: No such file or directory" in done.err
