"""`topo --from RUN`: a stored run of locate becomes switches, or says why it cannot."""

import json
from typing import Any

import pytest

LOCATE = ("locate", "--simulate", "--rails", "1", "--faults", "0", "-q", "--nodes")


def test_pairs_become_switches_and_labels(cli: Any) -> None:
    assert cli.here(*LOCATE, "64", "--exhaustive").code == 0
    told = cli.here("topo", "--from", "last", "-o", "json")
    assert told.code == 0, told.err
    assert [len(one["nodes"]) for one in json.loads(told.out)["switches"]] == [16] * 4
    labels = cli.here("topo", "--from", "last", "-o", "k8s-labels", "--label", "example.org/leaf")
    assert labels.out.count('"example.org/leaf": leaf3') == 16


def test_too_few_pairs_are_exit_code_3(cli: Any) -> None:
    assert cli.here(*LOCATE, "64", "--rounds", "3").code == 0
    told = cli.here("topo", "--from", "last", "-o", "slurm")
    assert (told.code, told.out) == (3, "")
    assert "of 2,016 pairs do not tell" in told.err
    assert "wirespeed locate --exhaustive" in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "slurm"), "-o slurm without --from"),
        (("--from", "last", "-o", "md"), "-o md with --from"),
        (("--from", "last"), "holds no pairs of nodes"),
        (("--from", "nothing"), "no run"),
    ],
)
def test_wrong_usage(cli: Any, words: tuple[str, ...], said: str) -> None:
    cli.here("topo", "-q")
    told = cli.here("topo", *words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
