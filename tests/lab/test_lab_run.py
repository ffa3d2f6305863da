"""Commands on nodes: what they find, how they end, and what a crash leaves."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import UsageError
from wirespeed.lab import Lab, LabSpec

pytestmark = [pytest.mark.system]
Command = Callable[..., subprocess.CompletedProcess[str]]
Remains = Callable[[str], list[str]]
SLEEP = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import time; print('here', flush=True); time.sleep(300)",
]


@pytest.fixture
def two(lab_name: str, command: Command, remains: Remains) -> Iterator[str]:
    """The name of a lab of two nodes that the command made."""
    done = command("up", "--nodes", "2", "--name", lab_name)
    assert done.returncode == 0, done.stderr
    yield lab_name
    done = command("down", "--name", lab_name)
    assert done.returncode == 0, done.stderr
    assert not remains(lab_name)


def test_each_node_has_its_name_its_addresses_and_its_rank(lab: Lab) -> None:
    code = (
        "import os, socket, sys\n"
        "e = os.environ\n"
        "names = sorted(name for _, name in socket.if_nameindex())\n"
        "print(socket.gethostname(), e['NODE_RANK'], e['NNODES'], e['MASTER_ADDR'],\n"
        "      e['RANK'] + e['WORLD_SIZE'] + e['LOCAL_RANK'] + e['LOCAL_WORLD_SIZE'],\n"
        "      socket.gethostbyname(socket.gethostname()),\n"
        "      sorted(os.listdir('/sys/class/net')) == names, sys.argv[1], '{other}',\n"
        "      sys.argv[1].endswith(e['MASTER_PORT']))\n"
    )
    words = [sys.executable, "-I", "-S", "-c", code, "{rank}/{nodes} {master}:{port}"]
    results = lab.run(words)
    master = lab.address("node-0")
    for rank, (node, result) in enumerate(zip(lab.nodes, results, strict=True)):
        assert result.returncode == 0, result.stderr
        told = result.stdout.split()
        assert told[:4] == [node, str(rank), "3", master]
        assert told[4:7] == [f"{rank}301", lab.address(node), "True"]
        assert told[7] == f"{rank}/3"
        assert told[9:] == ["{other}", "True"]


def test_ranks_are_counted_among_the_chosen_nodes_and_can_be_left_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    script = "echo $RANK/$WORLD_SIZE/$LOCAL_RANK/$LOCAL_WORLD_SIZE at $MASTER_ADDR by $NODE_RANK"
    master = lab.address("node-2")
    results = lab.run(["sh", "-c", script], nodes=["node-2", "node-0"])
    told = {result.node: result.stdout.strip() for result in results}
    assert told == {"node-2": f"0/2/0/1 at {master} by 0", "node-0": f"1/2/0/1 at {master} by 1"}
    (result,) = lab.run(["sh", "-c", script], nodes=["node-2"], ranks=False)
    assert result.stdout.strip() == f"/// at {master} by 0"


def test_a_node_has_its_share_of_the_cores_unless_told_otherwise(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["sh", "-c", "echo $OMP_NUM_THREADS"]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = max(1, len(os.sched_getaffinity(0)) // len(lab.nodes))
    (result,) = lab.run(words, nodes=["node-1"])
    assert result.stdout.strip() == str(share)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (result,) = lab.run(words, nodes=["node-1"])
    assert result.stdout.strip() == "7"


def test_torchrun_counts_its_own_ranks_beside_ours(lab: Lab) -> None:
    code = (  # one write a line: with PYTHONUNBUFFERED, print() writes its words one by one
        "import os; e = os.environ; line = [e['RANK'], e['WORLD_SIZE'], e['LOCAL_RANK']]; "
        "os.write(1, (' '.join(line) + '\\n').encode())"
    )
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "{nodes}"]
    words += ["--node-rank", "{rank}", "--nproc-per-node", "2", "--master-addr", "{master}"]
    words += ["--master-port", "{port}", "--no-python", sys.executable, "-I", "-S", "-c", code]
    results = lab.run(words, nodes=["node-0", "node-1"], timeout=90.0, grace=5.0)
    assert [result.returncode for result in results] == [0, 0], results
    told = [sorted(result.stdout.splitlines()) for result in results]
    assert told == [["0 4 0", "1 4 1"], ["2 4 0", "3 4 1"]]


def test_without_ranks_on_the_command_line(two: str, command: Command) -> None:
    script = 'echo "rank ${RANK-none}"'
    for option, told in ((), "rank 0"), (("--no-ranks",), "rank none"):
        done = command("run", "--name", two, "--nodes", "node-0", *option, "--", "sh", "-c", script)
        assert done.stdout.strip() == told


def test_two_labs_at_once_do_not_meet(lab: Lab, lab_name: str) -> None:
    with Lab(LabSpec(2, f"{lab_name}-b")) as other:
        assert other.address("node-0") != lab.address("node-0")
        assert [one.returncode for one in other.run(["true"])] == [0, 0]
        assert [one.returncode for one in lab.run(["true"])] == [0, 0, 0]
    assert lab.run(["hostname"])[2].stdout == "node-2\n"


def test_when_one_fails_the_others_have_a_bounded_time_left(lab: Lab) -> None:
    script = 'if [ "$NODE_RANK" = 1 ]; then exit 7; fi; echo on; sleep 300 & wait'
    began = time.monotonic()
    results = lab.run(["sh", "-c", script], timeout=60.0, grace=0.5)
    assert time.monotonic() - began < 30
    assert results[1].returncode == 7
    assert [one.ended for one in results] == ["grace", "", "grace"]
    assert results[0].stdout == "on\n"
    assert not any(lab.pids(node) for node in lab.nodes)


def test_a_command_that_ignores_everything_ends_at_its_timeout(lab: Lab) -> None:
    deaf = "import signal, time, os\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
    deaf += "if os.fork() == 0: os.setsid()\ntime.sleep(300)"
    results = lab.run([sys.executable, "-I", "-S", "-c", deaf], nodes=["node-1"], timeout=1.0)
    assert [(one.ended, one.returncode) for one in results] == [("timeout", -signal.SIGKILL)]
    assert not lab.pids("node-1")


def test_a_command_that_is_not_there_is_named(lab: Lab) -> None:
    (result,) = lab.run(["no-such-command"], nodes=["node-0"])
    assert result.returncode == 127
    assert "no-such-command: command not found" in result.stderr


def test_a_node_that_is_not_there_is_named(lab: Lab) -> None:
    for wrong in (lambda: lab.cut("node-7"), lambda: lab.run(["true"], nodes=["node-7"])):
        with pytest.raises(UsageError, match="node-7"):
            wrong()
    assert not lab.spec.faults


def test_an_error_inside_the_with_leaves_nothing(lab_name: str, remains: Remains) -> None:
    with pytest.raises(ZeroDivisionError), Lab(LabSpec(2, lab_name)) as lab:
        lab.delay("node-1", "1ms")
        lab.straggler("node-0", "stop:10ms/100ms")
        lab.start(SLEEP)
        assert remains(lab_name)
        raise ZeroDivisionError
    assert not remains(lab_name)


def test_host_names_through_the_command_line(two: str, command: Command) -> None:
    done = command("run", "--name", two, "--", "hostname")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[node-1] node-1", "node-0"]
    listed = command("list")
    assert f"lab {two}: 2 nodes" in listed.stdout


def test_the_largest_code_counts_and_stderr_stays_stderr(two: str, command: Command) -> None:
    script = "printf half >&2; exit $((NODE_RANK * 5 + 3))"
    done = command("run", "--name", two, "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (8, "")
    assert "[node-1] half\n" in done.stderr
    assert "node-1 ended with 8" in done.stderr


def test_a_second_lab_of_that_name_is_refused_with_the_next_command(
    two: str, command: Command
) -> None:
    done = command("up", "--name", two)
    assert done.returncode == 2
    assert f"down --name {two}" in done.stderr
    assert command("run", "--name", two, "--", "true").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_with_130(
    two: str, started: Callable[..., Any], remains: Remains, number: int
) -> None:
    process = started("run", "--name", two, "--", *SLEEP)
    assert process.stdout.readline()
    process.send_signal(number)
    assert process.wait(30) == 130
    assert not [path for path in remains(two) if path.endswith("environ")]


def test_after_a_crash_of_run_down_removes_all(two: str, started: Callable[..., Any]) -> None:
    process = started("run", "--name", two, "--", *SLEEP)
    for _ in range(2):  # of each node: one that has not got there yet would end by itself
        assert process.stdout.readline()
    process.kill()
    process.wait(10)
    # The fixture's `down` must end what the run has left.
    assert Lab.attach(two).pids("node-1")


@pytest.mark.parametrize("things", [1, 2, 3, 4])
def test_after_a_crash_of_up_down_removes_all(
    lab_name: str, command: Command, remains: Remains, things: int
) -> None:
    crash = (
        "import os, sys\n"
        "from wirespeed.lab import state, __main__ as command\n"
        "kept = state.State.will_make\n"
        "def will_make(self, kind, name):\n"
        "    kept(self, kind, name)\n"
        f"    if len(self.made) == {things}: os.kill(os.getpid(), 9)\n"
        "state.State.will_make = will_make\n"
        f"command.run_lab(['up', '--nodes', '2', '--name', {lab_name!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", crash], capture_output=True, timeout=30)
    assert done.returncode == -signal.SIGKILL
    assert remains(lab_name)
    refused = command("run", "--name", lab_name, "--", "true")
    assert refused.returncode == 2
    assert f"down --name {lab_name}" in refused.stderr
    for _ in range(2):
        assert command("down", "--name", lab_name).returncode == 0
    assert not remains(lab_name)


def test_a_namespace_that_others_made_is_not_touched(
    lab_name: str, command: Command, remains: Remains
) -> None:
    space = f"wslab-{lab_name}-node-1"
    subprocess.run(["ip", "netns", "add", space], check=True, timeout=20)
    try:
        done = command("up", "--nodes", "2", "--name", lab_name)
        assert done.returncode == 3
        assert space in done.stderr
        assert remains(lab_name) == [f"/run/netns/{space}"]
    finally:
        subprocess.run(["ip", "netns", "delete", space], check=True, timeout=20)


def test_up_without_a_fault_s_tool_makes_nothing(
    lab_name: str, command: Command, remains: Remains, tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from wirespeed.lab import processes, __main__ as command\n"
        "where = processes.where\n"
        "processes.where = lambda name: None if name == 'nft' else where(name)\n"
        f"sys.exit(command.run_lab(['up', '--name', {lab_name!r}, '--lossy', 'node-1=5%']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3
    assert "apt-get install nftables" in done.stderr
    assert not remains(lab_name)


@pytest.fixture
def started() -> Iterator[Callable[..., Any]]:
    """Start the command; it is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "wirespeed.lab", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ),
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()  # what it had started may hold the other end
