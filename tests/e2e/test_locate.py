"""`wirespeed locate` on real ranks and on a simulated fabric."""

import json
from typing import Any

import jsonschema
import pytest

from wirespeed.model.codec import validated
from wirespeed.model.records import Run
from wirespeed.runs.schema import load_schema


def checked(text: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(text)
    validated(Run, run, source="stdout")
    jsonschema.Draft202012Validator(load_schema()).validate(run)
    return run


@pytest.mark.slow
def test_every_pair_of_local_ranks_is_measured(cli: Any) -> None:
    # A threshold that no noise of a busy machine reaches.
    done = cli("locate", "--ranks", "3", "--threshold", "100", "-q", env=cli.no_pickles())
    assert cli.without_pickles() == 3
    run = checked(cli.here("runs", "show", "last", "-o", "json").out)
    assert done.code == run["exit_code"] == 0, done.out + done.err
    assert run["verdict"] == "NO CULPRIT"
    located = run["located"]
    assert located["over"] == "ranks"
    assert located["nodes"] == ["rank 0", "rank 1", "rank 2"]
    assert located["pairs_measured"] == located["pairs_possible"] == 3
    met = {(pair["first"], pair["second"]) for pair in located["pairs"]}
    assert len(met) == 3
    for pair in located["pairs"]:
        assert min(pair["forth_GBps"], pair["back_GBps"], pair["both_GBps"]) > 0
        assert pair["latency_us"] > 0
    assert len(located["compute_s"]) == 3
    assert run == cli.run(), "what is shown and what is stored differ"
    # The matrix is shown, and shown again.
    assert "from \\ to" in done.out
    assert "LOC-001" in done.out
    again = cli.here("runs", "show", "last", "-o", "md")
    assert "rank 0" in again.out and "GB/s from the node" in again.out


@pytest.mark.slow
def test_one_rank_has_nobody_to_talk_to(cli: Any) -> None:
    done = cli("locate", "--ranks", "1", "-q")
    assert done.code == 3
    assert cli.run()["verdict"] == "UNKNOWN"
    assert "pair" in done.out + done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_rank_that_dies_is_named(cli: Any, finding: Any) -> None:
    # Nobody's work is timed again for being slow now and then.
    words = ("--threshold", "100", "--inject", "kill:rank=2", "-q", "-o", "json")
    done = cli("locate", "--ranks", "3", *words)
    run = checked(done.out)
    assert (done.code, run["verdict"], run["verdict_subject"]) == (1, "CULPRIT NAMED", "rank 2")
    assert run["findings"][0]["subject"] == {"kind": "rank", "name": "rank 2"}


@pytest.mark.slow
def test_the_simulation_names_what_was_injected(cli: Any) -> None:
    asked = ("--simulate", "--nodes", "1024", "--faults", "4", "--seed", "7")
    done = cli("locate", *asked, "-o", "json")
    run = checked(done.out)
    assert done.code == run["exit_code"] == 1, done.err
    assert run["verdict"] == "CULPRIT NAMED"
    simulation = run["simulation"]
    assert simulation["nodes"] == 1024
    assert len(simulation["faults"]) == 4
    assert simulation["precision"] == simulation["recall"] == 1
    assert simulation["rounds"] <= 24
    failed = [one for one in run["findings"] if one["status"] == "fail"]
    assert len(failed) == len(simulation["named"])
    assert run == cli.run(), "what is printed and what is stored differ"


def test_a_healthy_simulation_names_nobody(cli: Any) -> None:
    done = cli.here("locate", "--simulate", "--nodes", "16", "--faults", "0", "-o", "json")
    run = checked(done.out)
    assert (done.code, run["verdict"]) == (0, "NO CULPRIT"), done.err
    assert run["simulation"]["named"] == []
    assert len({pair["round"] for pair in run["located"]["pairs"]}) == run["located"]["rounds"]


def test_options_of_the_simulation_need_it(cli: Any, says_clearly: Any) -> None:
    assert "--simulate" in says_clearly(cli.here("locate", "--nodes", "8"), 2)


def test_a_fault_that_cannot_strike_is_refused(cli: Any, says_clearly: Any) -> None:
    assert "flip" in says_clearly(cli.here("locate", "--inject", "flip:rank=1"), 2)
