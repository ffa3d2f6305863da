"""`fleet plan` without Slurm: what is printed, wrong usage, and what is no name."""

import json
from typing import Any

import pytest
import yaml


def test_a_new_fleet_is_planned(cli: Any) -> None:
    told = cli.here("fleet", "plan", "--idle", "node-[0-7]")
    assert told.code == 0, told.err
    assert "8 nodes, 8 idle; seen within 14 days: 0% of the nodes, 0% of the pairs" in told.out
    assert "node-[0-7]" in told.out
    data = json.loads(cli.here("fleet", "plan", "--idle", "node-[0-7]", "-o", "json").out)
    assert [one["pairs"] for one in data["checks"]] == [28]


def test_scripts_for_sbatch(cli: Any) -> None:
    words = ("--idle", "node-[0-7]", "--size", "4", "-o", "sbatch", "--with", "partition=low")
    told = cli.here("fleet", "plan", *words)
    assert told.out.count("#!/bin/sh\n") == told.out.count("#SBATCH --partition=low\n") == 2


def test_pairs_of_leaves_from_a_run(cli: Any) -> None:
    words = ("--simulate", "--rails", "1", "--faults", "0", "-q", "--nodes", "64", "--exhaustive")
    assert cli.here("locate", *words).code == 0
    told = cli.here("fleet", "plan", "--idle", "node-[0-63]", "--leaves", "last")
    assert "0% of the pairs of leaves" in told.out


def test_a_cron_job_from_a_cluster_file(cli: Any) -> None:
    (cli.folder / "mine.yaml").write_text("cluster:\n  name: mine\n")
    words = ("-o", "k8s", "--cluster", "mine.yaml", "--nodes", "4", "--at", "17 2 * * *")
    told = cli.here("fleet", "plan", *words)
    assert told.code == 0, told.err
    kinds = [one["kind"] for one in yaml.safe_load_all(told.out)]
    assert kinds[-2:] == ["Service", "CronJob"]
    assert "workload.priority_class is empty" in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--idle", "node-[0-"), "is no list of nodes"),
        (("--idle", "node-[5-1]"), "is no list of nodes"),
        (("--idle", "node-[0-999999999]"), "is no list of nodes"),
        (("--idle", "n[0-9999]"), "pairs of 10,000 nodes"),
        (("--idle", "a b"), "is not the name of a node"),
        (("--idle", "n1", "--with", "partition=a\n#SBATCH --uid=0"), "--with"),
        (("--idle", "n1", "--with", "uid=0"), "KEY=VALUE without blanks"),
        (("--idle", "n[1-4]", "--size", "2"), "4<=x<=1024"),
        (("-o", "k8s"), "-o k8s without --cluster"),
        (("-o", "k8s", "--cluster", "x", "--at", "daily"), "five fields of cron"),
    ],
)
def test_wrong_usage(cli: Any, words: tuple[str, ...], said: str) -> None:
    told = cli.here("fleet", "plan", *words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err


def test_without_slurm_it_says_what_to_name(cli: Any) -> None:
    told = cli.here("fleet", "run", env={"PATH": "/nonexistent"})
    assert (told.code, told.out) == (3, "")
    assert "--idle 'node-[0-15]'" in told.err
