"""Logs made for real: a gloo job under torchrun in the lab, broken, and diagnosed from its log alone."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from network_labs import network_lab
from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import Source
from wirespeed.lab import Lab
from wirespeed.model.records import Finding

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

NODES = 3
BOUND_S = 120.0
NO_WAY_S = 40.0
"""Start of torchrun and its first tries to reach a master."""
JOB = Path(__file__).parents[1] / "programs" / "train_gloo.py"
TORCHRUN = (
    *(
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "{nodes}",
        "--node-rank",
        "{rank}",
    ),
    *("--nproc-per-node", "1", "--master-port", "{port}"),
)
Train = Callable[..., Finding]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with network_lab(NODES, "nft") as made:
        yield made


@pytest.fixture
def train(lab: Lab, tmp_path: Path) -> Iterator[Train]:
    """Run the job on nodes and diagnose what it printed, each line with its node before it."""

    def run(
        *words: str,
        master: str = "{master}",
        nodes: int = NODES,
        grace: float = 8.0,
        bound: float = BOUND_S,
    ) -> Finding:
        command = [*TORCHRUN, "--master-addr", master, str(JOB), *words]
        results = lab.run(
            command,
            nodes=lab.nodes[:nodes],
            env={"OMP_NUM_THREADS": "1"},
            ranks=False,
            timeout=bound,
            grace=grace,
        )
        log = tmp_path / "job.log"
        lines = [
            f"[{one.node}] {line}\n"
            for one in results
            for line in (one.stdout + one.stderr).splitlines()
        ]
        log.write_text("".join(lines))
        return diagnose([Source("job.log", log)]).findings[0]

    yield run
    lab.heal()


def test_a_rank_that_is_killed(train: Train) -> None:
    found = train("30", "15", "kill", nodes=2)
    assert "SIGKILL" in found.title
    assert "node-1" in str(found.subject) + found.title


def test_a_rank_that_raises(train: Train) -> None:
    found = train("30", "15", "raise", nodes=2)
    assert (found.id, found.status) == ("LOG-002", "warn")
    assert "the batch of this rank is empty" in found.title + "".join(found.evidence)


def test_a_rank_that_is_stopped_is_looked_at_first(train: Train) -> None:
    """From a log alone it cannot be told why it is silent."""
    found = train("30", "10", "stop")
    assert (found.status, found.confidence) == ("warn", "cannot tell")
    assert "1. node-1: it wrote no line of the failure" in found.fix


def test_a_wrong_interface(lab: Lab, train: Train) -> None:
    lab.environment("node-1", "GLOO_SOCKET_IFNAME", "ib0")
    found = train("5", "15", nodes=2)
    assert (found.status, found.subject.name) == ("fail", "node-1")
    assert "ib0" in found.title and "GLOO_SOCKET_IFNAME" in found.fix


def test_a_loopback_name(lab: Lab, train: Train) -> None:
    lab.loopback_name("node-1")
    found = train("5", "15", nodes=2)
    assert (found.status, found.category) == ("fail", "gloo-loopback")


def test_a_firewall(lab: Lab, train: Train) -> None:
    """The job's own time-out tells it, and no more."""
    lab.firewall("node-1")
    found = train("5", "12")
    assert found.status == "warn" and "firewall" in found.fix


def test_a_link_that_is_cut(lab: Lab, train: Train) -> None:
    """While it trains the others wait, and why does not show; on a busy machine it may still join."""
    cut = threading.Timer(8.0, lab.cut, ["node-1"])
    cut.start()
    try:
        found = train("400", "10", grace=15.0)
    finally:
        cut.join()
    if found.status == "fail":
        assert_it_cannot_join(found)
    else:
        assert (found.status, found.confidence) == ("warn", "cannot tell")
        assert "network" in found.fix


def test_a_link_that_is_cut_before_it_joins(lab: Lab, train: Train) -> None:
    """The node itself says that it finds no way to the master."""
    lab.cut("node-1")
    # Not until torchrun gives up: what it says of each try is enough.
    assert_it_cannot_join(train("400", "10", grace=15.0, bound=NO_WAY_S))


def assert_it_cannot_join(found: Finding) -> None:
    assert (found.status, found.category) == ("fail", "master-unreachable")
    assert found.subject.name == "node-1"
    assert "link is down" in found.because and "network" in found.fix


def test_a_master_that_cannot_be_resolved(train: Train) -> None:
    found = train("5", "10", master="no-such-host", nodes=2, bound=20.0)
    assert (found.status, found.category) == ("fail", "dns-unresolvable")
    assert "no-such-host" in found.title


def test_a_port_that_is_taken(lab: Lab, tmp_path: Path) -> None:
    hold = (
        "import socket,time; s=socket.create_server(('', 0)); print(s.getsockname()[1], flush=True)"
    )
    holder = subprocess.Popen(
        lab.on("node-0", sys.executable, "-c", hold + "; time.sleep(60)"), stdout=subprocess.PIPE
    )
    try:
        port = holder.stdout.readline().decode().strip() if holder.stdout else ""
        words = [*TORCHRUN[:-1], port, "--master-addr", "{master}", str(JOB), "3", "10"]
        results = lab.run(words, nodes=["node-0"], ranks=False, timeout=BOUND_S, grace=2.0)
    finally:
        holder.kill()
        holder.communicate()
    log = tmp_path / "job.log"
    log.write_text(results[0].stdout + results[0].stderr)
    found = diagnose([Source("job.log", log)]).findings[0]
    assert (found.status, found.category) == ("fail", "port-in-use")
    assert port in found.title + "".join(found.evidence)


@pytest.mark.parametrize(
    ("words", "category"),
    [
        (("ssh", "-o", "BatchMode=yes", "no-such-host", "true"), "launcher-dns"),
        (("ssh", "-o", "BatchMode=yes", "-p", "1", "127.0.0.1", "true"), "launcher-ssh"),
    ],
)
def test_ssh_that_fails(tmp_path: Path, words: tuple[str, ...], category: str) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("Requires: ssh")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    log = tmp_path / "ssh.log"
    log.write_text(done.stdout + done.stderr)
    found = diagnose([Source("ssh.log", log)]).findings[0]
    assert found.category == category


def test_mpirun_whose_rank_is_killed(tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("Requires: mpirun")
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    code = (
        "import os, time; os.environ['OMPI_COMM_WORLD_RANK'] == '1' and "
        "os.kill(os.getpid(), 9); time.sleep(3)"
    )
    words = ["mpirun", "--oversubscribe", "-n", "2", sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env, check=False)
    log = tmp_path / "mpi.log"
    log.write_text(done.stdout + done.stderr)
    found = diagnose([Source("mpi.log", log)]).findings[0]
    assert "9" in found.title and found.status in ("warn", "fail")
