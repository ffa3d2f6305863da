"""`wirespeed check` on real ranks: a verdict, its findings, and what it refuses."""

import json
from typing import Any

import jsonschema
import pytest

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.codec import validated
from wirespeed.model.records import Run
from wirespeed.runs.schema import load_schema

QUICK = ("check", "-l", "quick", "--ranks", "2", "-q")


def test_a_healthy_machine_is_ready(cli: Any, finding: Any) -> None:
    done = cli(*QUICK, env=cli.no_pickles())
    assert done.code == 0, done.out + done.err
    assert cli.without_pickles() == 2
    run = cli.run()
    validated(Run, run, source="run.json")
    jsonschema.Draft202012Validator(load_schema()).validate(run)
    assert (run["verdict"], run["exit_code"], run["speed_judged"]) == ("READY", 0, False)
    timed = [one for one in run["findings"] if one["id"].startswith(("LAT-", "BW-"))]
    assert {one["status"] for one in timed} <= {"measured", "warn"}, "nothing to judge it by"
    assert {v["op"] for v in run["verifications"]} == set(CATALOGUE)
    assert {v["wrong"] for v in run["verifications"]} == {0}
    for number in range(1, len(CATALOGUE) + 1):
        assert finding(run, f"COL-{number:03}")["status"] == "pass"
    counted = {one["id"]: one["status"] for one in run["findings"] if one["id"].startswith("COUNT")}
    assert set(counted) == {f"COUNT-{number:03}" for number in range(1, 9)}
    assert set(counted.values()) <= {"pass", "not_checked", "not_applicable"}, (
        "traffic of a healthy machine"
    )
    (node,) = run["world"]["nodes"]
    assert node["counters"]["grown"]["TCP"]["OutSegs"] > 0
    (last,) = [
        line for line in done.out.splitlines()[-2:] if line.startswith("READY (speed not judged)")
    ]
    assert "exit 0" in last
    assert run["id"] in last
    assert cli.here("runs", "list").out.count(run["id"]) == 1


@pytest.mark.slow
def test_wrong_data_fails(cli: Any, finding: Any) -> None:
    words = ("--only", "COL-001,COL-002", "--inject", "twice:rank=1,at=reduce_scatter")
    done = cli(*QUICK, *words, "-o", "json", env=cli.no_pickles())
    assert done.code == done.json["exit_code"] == 1
    assert done.json["verdict"] == "FAILED"
    found = finding(done.json, "COL-002")
    assert found["status"] == "fail"
    told = " ".join([found["title"], found["saw"], found["because"], *found["evidence"]])
    assert "rank 1 contributes twice" in told
    assert finding(done.json, "COL-001")["status"] == "pass"


@pytest.fixture(scope="module")
def some(new_cli: Any) -> tuple[Any, Any]:
    """Some checks only: the home and what was said."""
    cli = new_cli()
    return cli, cli(*QUICK, "--only", "COL-006,COL-012", "-o", "json")


@pytest.mark.slow
def test_only_some_checks(some: tuple[Any, Any]) -> None:
    _, done = some
    assert (done.code, done.json["verdict"]) == (0, "PASSED"), done.err
    assert {one["id"] for one in done.json["findings"]} == {"COL-006", "COL-012"}
    assert done.json["checks_listed"] > 2 * len(CATALOGUE)
    assert {v["op"] for v in done.json["verifications"]} == {"broadcast", "barrier"}


@pytest.mark.slow
def test_verbose_tells_each_automatic_choice(cli: Any) -> None:
    done = cli("check", "--only", "COL-001", "-l", "quick", "-v")
    assert done.code == 0, done.err
    assert "torch sees no GPU here" in done.out
    assert "loopback" in done.out or "all ranks are on this machine" in done.out
    assert done.err.splitlines()[0] == "starting 4 ranks", "the default on a machine without GPUs"


def test_the_list_and_the_explanations(cli: Any) -> None:
    listed = cli.here("check", "--list")
    assert listed.code == 0
    ids = [line.split()[0] for line in listed.out.splitlines()]
    assert {"COL-001", "DIED-001", "HANG-001", "JOIN-001", "LAT-001", "NODE-001"} <= set(ids)
    assert len(ids) == len(set(ids))
    explained = cli.here("check", "--explain", "col-001")
    assert explained.code == 0
    assert explained.out.startswith("COL-001")
    assert "all_reduce" in explained.out
    assert cli.folders() == [], "no run for a question"


@pytest.mark.slow
def test_colour_is_never_the_only_sign(cli: Any) -> None:
    done = cli(*QUICK, "--only", "COL-001", "--color", "always", "--inject", "flip:rank=1")
    assert "\x1b[" in done.out
    plain = cli.here("runs", "show", "last", "--color", "always")
    assert "\x1b[" in plain.out
    for env in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}, {"NO_COLOR": "1"}):
        shown = cli("runs", "show", "last", env=env)
        assert shown.code == 0, shown.err
        assert "\x1b[" not in shown.out
        assert "FAILED" in shown.out
        assert shown.out.isascii() == ("LC_ALL" in env)


@pytest.mark.parametrize("ranks", [1])
@pytest.mark.slow
def test_one_rank_alone(cli: Any, finding: Any, ranks: int) -> None:
    """A world of one: what needs two does not apply, the rest is checked, and nobody is ready."""
    done = cli("check", "-l", "quick", "--ranks", str(ranks), "-q", "-o", "json")
    assert (done.code, done.json["verdict"]) == (3, "UNKNOWN"), done.err
    assert finding(done.json, "WORLD-005")["status"] == "not_checked"
    assert not [one for one in done.json["findings"] if one["id"].startswith("BW-")]
    assert {m["busbw_GBps"] for m in done.json["measurements"]} == {0}
    assert done.json["world"]["size"] == ranks
    reasons = {v["op"]: v["reason"] for v in done.json["verifications"] if v["reason"]}
    assert set(reasons) == {"send_recv", "pair_exchange"}


@pytest.mark.slow
def test_the_stored_run_is_the_same_whoever_reads_it(some: tuple[Any, Any]) -> None:
    cli, done = some
    (folder,) = cli.folders()
    by_path = cli.here("runs", "show", str(folder), "-o", "json")
    file = cli.folder / "moved.json"
    file.write_text(done.out)
    by_file = cli.here("runs", "show", str(file), "-o", "json")
    assert (
        done.json == by_path.json == by_file.json == json.loads((folder / "run.json").read_text())
    )
