"""`fleet run` on a real Slurm: a check runs on idle nodes, is planned once, and gives way to any job."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_lab import SlurmLab, made

pytestmark = pytest.mark.system
UP_S = 120.0
_LOW = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PriorityType=priority/multifactor
PartitionName=low Nodes=node-[0-3] PriorityTier=1 PreemptMode=CANCEL OverSubscribe=NO
PartitionName=high Nodes=node-[0-3] PriorityTier=10 PreemptMode=OFF OverSubscribe=NO
"""


@pytest.fixture
def slurm(cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    """Four nodes, and a partition whose jobs give way to those of another."""
    yield from made(cli, tmp_path_factory.mktemp("slurm"), more=_LOW)


def fleet(slurm: Any, cli: Any, *words: str) -> Any:
    command = [sys.executable, "-m", "wirespeed", "fleet", *words, "--with", "partition=low"]
    return slurm.run(command)


def test_idle_nodes_are_checked_once_and_given_up(slurm: Any, cli: Any) -> None:
    planned = fleet(slurm, cli, "plan")
    assert planned.code == 0, planned.err
    assert "4 nodes, 4 idle" in planned.out
    assert "node-[0-3]" in planned.out
    started = fleet(slurm, cli, "run")
    assert started.code == 0, started.err
    assert "check 1: job " in started.out
    again = fleet(slurm, cli, "run")
    assert "nothing to check now" in again.out, "its nodes are ours already"
    cli.until(slurm.idle, UP_S)
    done = fleet(slurm, cli, "plan")
    assert "100% of the nodes, 100% of the pairs" in done.out, done.out + slurm.logs()
    assert "nothing to check now" in done.out


def test_another_job_takes_the_nodes(slurm: Any, cli: Any) -> None:
    assert fleet(slurm, cli, "run").code == 0
    cli.until(lambda: any("RUNNING" in line for line in slurm.jobs()), UP_S)
    took = slurm.run(["srun", "--partition=high", "--nodes=4", "--exclusive", "true"])
    assert took.code == 0, took.err
    cli.until(slurm.idle, UP_S)
    told = fleet(slurm, cli, "plan")
    assert "0% of the pairs" in told.out
    assert "node-[0-3]" in told.out, "it is planned anew"
