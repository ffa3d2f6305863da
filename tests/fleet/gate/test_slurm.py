"""Slurm's side of a gate, by commands that answer as Slurm's do; the real one is in tests/system."""

import os
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.fleet.gate.decision import Memory
from wirespeed.fleet.gate.slurm import Slurm, checked_name, is_ours, reason_of

WHY = "GPU-002 n1: GPU3: 4 uncorrected ECC error(s)"
Answers = Callable[..., Path]


@pytest.fixture
def sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Makes `sinfo` print that; scontrol keeps its words in the file that is given back."""

    def answer(text: str, scontrol: str = "") -> Path:
        (tmp_path / "answer").write_text(text)
        called = tmp_path / "called"
        script(tmp_path / "sinfo", f'cat "{tmp_path}/answer"')
        script(tmp_path / "scontrol", scontrol or f'printf "%s\\n" "$@" >> "{called}"')
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return called

    return answer


def script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize(
    "name",
    ["ALL", "all", "DEFAULT", "n[1-9]", "a,b", "", "-r", "a b", "a\nb", "../x", "'; DROP", "<b>"],
)
def test_what_is_no_single_node_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no node's name"):
        checked_name(name)


def test_names_of_nodes() -> None:
    for name in ("n1", "gpu-07.cluster.example.org", "a_b"):
        assert checked_name(name) == name


@pytest.mark.parametrize("why", [WHY, "x" * 900, 'a "quoted" | b', "\x1b[31mred\nnext = line", ""])
def test_a_reason_is_ours_until_somebody_edits_it(why: str) -> None:
    reason = reason_of(why)
    assert "\n" not in reason
    assert "\x1b" not in reason
    assert is_ours(reason)
    assert is_ours(f"{reason} ")
    assert not is_ours(f"{reason}, ticket 811")
    assert not is_ours(f"wirespeed[000000]: {why}")


def test_how_a_node_stands(sinfo: Answers) -> None:
    sinfo(
        f"n1|drained|2026-11-25T22:00:00|{reason_of(WHY)}\n"
        "n2|draining*|2026-11-25T22:00:00|new DIMM\nn2|draining*|2026-11-25T22:00:00|new DIMM\n"
        "n3|idle|Unknown|none\nn4|down*|2026-11-25T22:00:00|Not responding\n"
    )
    told = {name: Slurm(name).standing(Memory()) for name in ("n1", "n2", "n3", "n4")}
    assert {name: (one.out, one.ours) for name, one in told.items()} == {
        "n1": (True, True),
        "n2": (True, False),
        "n3": (False, False),
        "n4": (True, False),
    }
    fleet = Slurm("n3").fleet()
    assert (fleet.nodes, fleet.taken) == (4, ("n1",))
    assert Slurm("n1").fleet().taken == ()
    with pytest.raises(CannotMeasure, match="no node n9"):
        Slurm("n9").standing(Memory())


def test_slurms_own_reason_is_ours_where_our_prolog_refused(sinfo: Answers) -> None:
    """It counts for the limit whoever refused, but only who refused gives it back."""
    since = "2026-11-25T22:00:00"
    sinfo(f"n1|drained|{since}|Prolog error\nn2|idle|Unknown|none\n")
    refused = Memory(takes=(datetime.fromisoformat(since).timestamp() - 2,))
    assert Slurm("n1").standing(refused).ours
    assert not Slurm("n1").standing(Memory()).ours
    assert Slurm("n2").fleet().taken == ("n1",)


def test_who_was_first(sinfo: Answers) -> None:
    rows = [f"n{n}|drained|2026-11-25T22:00:0{9 - n}|{reason_of('x')}\n" for n in range(5)]
    sinfo("".join(rows))
    assert [Slurm(f"n{n}").place() for n in range(5)] == [4, 3, 2, 1, 0]


@pytest.mark.hostile("rubbish of programs")
@pytest.mark.parametrize(
    "text", ["", "\n", "No nodes\n", "n1\n", "a|idle\n", "n9|idle|Unknown|none\n"]
)
def test_an_answer_without_this_node_counts_nobody(text: str, sinfo: Answers) -> None:
    """Else each of a thousand nodes would be the first to be taken."""
    sinfo(text)
    with pytest.raises(CannotMeasure, match="knows no node n1"):
        Slurm("n1").fleet()


def test_taken_and_given_back_by_words_that_no_shell_reads(sinfo: Answers) -> None:
    called = sinfo("")
    why = "$(reboot); 'x'"
    Slurm("n1").take(why)
    Slurm("n1").give_back()
    words = called.read_text().splitlines()
    reason = f"Reason={reason_of(why)}"
    assert words[:4] == ["update", "NodeName=n1", "State=DRAIN", reason]
    assert words[4:] == ["update", "NodeName=n1", "State=UNDRAIN"]


def test_no_right_to_drain(sinfo: Answers) -> None:
    sinfo("", scontrol="echo 'slurm_update error: Invalid user id' >&2; exit 1")
    with pytest.raises(CannotMeasure, match="may not change n1: slurm_update error: Invalid user"):
        Slurm("n1").take(WHY)


def test_no_slurm_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotMeasure, match="sinfo"):
        Slurm("n1").standing(Memory())
