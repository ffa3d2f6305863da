"""A node's state after the commands of the tutorial, in a lab with a node at a tenth of its speed."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from network_labs import network_lab
from wirespeed.fleet.nodes import NodeState, state
from wirespeed.lab import Lab
from wirespeed.runs.index import Index

pytestmark = pytest.mark.system

NODES = 4
BOUND_S = 150.0
WIRESPEED = (sys.executable, "-m", "wirespeed")
SLOW = "node-2"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with network_lab(NODES) as made:
        yield made


class Home:
    """What the runs of a lab's nodes leave."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self._lab, self._path = lab, path

    def run(self, *words: str, exit_code: int = 0) -> dict[str, NodeState]:
        """Run a command on all nodes, whose exit code the first one tells; the states afterwards."""
        environment = {"WIRESPEED_HOME": str(self._path), "OMP_NUM_THREADS": "1"}
        done = self._lab.run([*WIRESPEED, *words], env=environment, timeout=BOUND_S)
        assert done[0].returncode == exit_code, done[0].stdout + done[0].stderr
        return self.states()

    def states(self) -> dict[str, NodeState]:
        with Index.opened() as index:
            return {one.host: one for one in state(index)}


def said(states: Mapping[str, NodeState]) -> dict[str, str]:
    return {host: one.said for host, one in states.items()}


@pytest.mark.quiet
@pytest.mark.timeout(600)
def test_a_slow_node_stays_failed_until_it_is_looked_at_again(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    home = Home(lab, tmp_path)
    lab.slow(SLOW, "100mbit")
    found = home.run("locate", "-q", exit_code=1)
    named = {host: "fail" if host == SLOW else "" for host in found}
    assert said(found) == named
    assert [one.id for one in found[SLOW].open] == ["LOC-001"]
    since = found[SLOW].since
    bench = ("bench", "all_reduce", "-b", "256K", "-e", "256K", "--max-time", "1", "-q")
    assert said(home.run(*bench)) == named
    assert said(home.run("topo", "-q")) == named
    assert said(home.run("launch", "--ranks", "1", "-q", "--", "false", exit_code=1)) == named
    missing = home.run("launch", "--ranks", "1", "-q", "--", "no-such-program", exit_code=127)
    assert said(missing) == named
    assert missing[SLOW].since == since
    flip = ("check", "--only", "COL-001", "--inject", "flip:rank=0", "-q")
    assert said(home.run(*flip, exit_code=1)) == named
    lab.heal()
    assert said(home.run("check", "--only", "COL-001", "-q")) == named
    healed = home.run("locate", "-q")
    assert said(healed) == dict.fromkeys(named, "pass")
    assert healed[SLOW].flaps == 1
