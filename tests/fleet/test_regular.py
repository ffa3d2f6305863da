"""What the stored runs have seen, who is suspected, and the job that a check becomes."""

import json
from typing import Any

import pytest

from wirespeed.cli import run
from wirespeed.errors import UsageError
from wirespeed.fleet.nodes import moment_ago
from wirespeed.fleet.plan import Batch
from wirespeed.fleet.regular import script, seen_in, standing
from wirespeed.model.records import Finding, Subject

from .conftest import Stored


def blamed(host: str) -> Finding:
    return Finding(id="LOC-001", status="fail", title="slow", subject=Subject("node", host))


def nobody() -> Finding:
    return Finding(id="LOC-001", status="pass", title="no node stands out")


def test_nodes_and_pairs_are_as_old_as_their_last_run(stored: Stored, index: Any) -> None:
    three = [("a", "b"), ("a", "c"), ("b", "c")]
    stored(moment_ago(9), "a", "b", "c", command="locate", pairs=three)
    stored(moment_ago(2), "b", "c", "d")  # a check: each node, but no pair by itself
    stored(moment_ago(1), "a", command="gate")  # says nothing of the network
    unknown = {"verdict": "UNKNOWN", "exit_code": 3}
    stored(moment_ago(1), "a", "d", command="locate", pairs=[("a", "d")], **unknown)
    seen = seen_in(index(), ["a", "b", "c", "d"], [], within=14)
    assert seen.node_days.round().tolist() == [9, 2, 2, 2]
    assert [seen.pair_days.round()[a, b] for a, b in ((0, 1), (0, 2), (1, 2))] == [9, 9, 9]
    assert seen.coverage(14) == (1.0, 0.5)
    assert seen.coverage(5) == (0.75, 0.0)


def test_a_run_that_lost_a_rank_has_seen_what_it_measured(stored: Stored, index: Any) -> None:
    some = [("a", "b"), ("c", "d")]
    stored(moment_ago(1), *"abcd", command="locate", verdict="NOT READY", pairs=some)
    seen = seen_in(index(), list("abcd"), [], within=14)
    assert seen.coverage(14) == (1.0, pytest.approx(2 / 6))


def test_slurm_may_leave_out_the_domain_of_a_host(stored: Stored, index: Any) -> None:
    a, b, c = (f"{name}.lab.example" for name in "abc")
    stored(moment_ago(2), a, b, command="locate", pairs=[(a, b)])
    stored(moment_ago(1), b, c, verdict="NOT READY", findings=[blamed(b)])
    seen = seen_in(index(), ["a", "b", c], [("a", "b"), (c,)], within=14)
    assert seen.node_days.round().tolist() == [2, 1, 1]
    assert seen.pair_days.round()[0, 0] == 2
    suspects, good = standing(index(), ["a", "b", c])
    assert ([one.name for one in suspects], good) == (["b"], ["a"])
    stored(moment_ago(0), command="nodes repaired", config={"node": b})
    assert standing(index(), ["a", "b", c]) == ([], ["a"])


def test_suspects_are_those_at_which_a_failure_is_open(stored: Stored, index: Any) -> None:
    bad = {"verdict": "NOT READY", "command": "locate"}
    stored(moment_ago(9), "a", "b", "c", "d")
    stored(moment_ago(8), "a", "b", findings=[blamed("b")], **bad)
    stored(moment_ago(7), "c", "d", findings=[blamed("d")], **bad)
    stored(moment_ago(6), "c", "d", command="locate", findings=[nobody()])
    stored(moment_ago(5), "b", "c", findings=[blamed("b")], **bad)
    suspects, good = standing(index())
    assert [(one.name, one.blamed, one.companies) for one in suspects] == [("b", 2, 2)]
    assert suspects[0].take_out
    assert good[-1] == "a"
    assert set(good) == {"a", "c", "d"}


def test_a_suspect_that_locate_cannot_clear_is_in_no_check(
    stored: Stored, index: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    xid = Finding(id="GPU-006", status="fail", title="Xid 79", subject=Subject("node", "n5"))
    stored(moment_ago(9), "n1", "n2", "n3", "n4", "n5")
    stored(moment_ago(8), "n1", "n5", verdict="NOT READY", findings=[xid])
    suspects, _ = standing(index())
    assert [(one.name, one.by_locate) for one in suspects] == [("n5", False)]
    assert run(["fleet", "plan", "--idle", "n[1-5]", "-o", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert all("n5" not in one["nodes"] for one in planned["checks"])


def test_a_pass_alone_clears_nothing_that_was_seen_in_company(stored: Stored, index: Any) -> None:
    stored(moment_ago(5), "a", "b", verdict="NOT READY", findings=[blamed("b")])
    stored(moment_ago(4), "c", verdict="NOT READY", command="gate", findings=[blamed("c")])
    stored(moment_ago(3), "b", command="gate")
    stored(moment_ago(2), "c", command="gate")
    suspects, good = standing(index())
    assert ([one.name for one in suspects], good) == (["b"], [])


def test_a_node_that_was_repaired_is_no_suspect(stored: Stored, index: Any) -> None:
    stored(moment_ago(3), "a", "b", verdict="NOT READY", findings=[blamed("b")])
    stored(moment_ago(1), command="nodes repaired", config={"node": "b"})
    suspects, _ = standing(index())
    assert suspects == []


def test_the_job_of_a_check() -> None:
    batch = Batch(nodes=("n1", "n2", "n3", "n9"), why="due", pairs=6)
    text = script(batch, ranks_per_node=8, options={"partition": "low"}, python="/opt/python")
    lines = text.splitlines()
    assert "#SBATCH --nodelist=n[1-3,9]" in lines
    assert "#SBATCH --partition=low" in lines
    assert "#SBATCH --nice=10000" in lines
    assert lines[-1] == (
        "exec /opt/python -m wirespeed locate --exhaustive --on slurm --ranks-per-node 8 --over rails"
    )


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("name", ["n1\n#SBATCH --uid=0", "$(id)", "n1;id", "-w"])
def test_a_name_from_a_run_that_is_none_gets_into_no_script(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a node"):
        script(Batch(nodes=("n1", name), why="due"), options={}, python="python")


def test_suspects_are_checked_first_and_then_to_be_taken_out(
    stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"verdict": "NOT READY", "command": "locate"}
    stored(moment_ago(9), "n1", "n2", "n3", "n4", "n5")
    stored(moment_ago(8), "n1", "n5", findings=[blamed("n5")], **bad)
    assert run(["fleet", "plan", "--idle", "n[1-5]"]) == 0
    told = capsys.readouterr().out
    assert "suspect n5" in told
    assert "take out" not in told
    stored(moment_ago(7), "n2", "n5", findings=[blamed("n5")], **bad)
    assert run(["fleet", "plan", "--idle", "n[1-5]"]) == 0
    told = capsys.readouterr().out
    assert "take out n5: 2 runs in a row blame it, in 2 companies" in told
    assert "scontrol update nodename=n5 state=drain" in told
    assert "n[1-4]" in told, "the others are due"


@pytest.mark.hostile("hostile values")
def test_a_suspect_with_a_strange_name_is_inert(
    stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x; touch /tmp/here\x1b[31m"
    for ago, other in ((3, "n1"), (2, "n2")):
        stored(moment_ago(ago), other, name, verdict="NOT READY", findings=[blamed(name)])
    assert run(["fleet", "plan", "--idle", "n[1-4]"]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "kubectl cordon 'x; touch /tmp/here" in told
