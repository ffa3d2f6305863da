"""Ranks as Ray actors, with real clusters: one of the job alone, and one that was there before."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray", reason="Requires: ray (pip install 'wirespeed[ray]')")

END_S = 30.0
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
TELL = f"import os, json; print(json.dumps([os.environ[n] for n in {PLACES}]))"
STAY = "echo $$ > pid-$RANK.new; mv pid-$RANK.new pid-$RANK; sleep 611 & wait"
"""A rank that tells its pid, and has a child of its own."""


# What runs.


def ray_processes(cli: Any) -> dict[int, str]:
    """Processes that were started in the test's folder: also those of Ray, which hide their
    environment behind a title."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(cli.folder) and process.pid != os.getpid():
                found[process.pid] = " ".join(process.cmdline())[:120]
    return found


def folders() -> set[Path]:
    return set(Path("/tmp").glob("ws-ray-*"))


@pytest.fixture
def clean(cli: Any) -> Iterator[None]:
    """After the test no process of a local cluster is left, no folder, and nothing in the home."""
    kept = folders()
    yield
    with suppress(AssertionError):
        cli.until(lambda: not ray_processes(cli) and not folders() - kept, END_S)
    left = ray_processes(cli)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left
    assert not folders() - kept
    cli.nothing_runs()
    assert not (cli.folder / ".ray").exists()


def stayed(cli: Any, ranks: int = 2) -> list[int]:
    """Wait until the ranks have told their pids."""
    files = [cli.folder / f"pid-{rank}" for rank in range(ranks)]
    cli.until(lambda: all(file.exists() for file in files))
    return [int(file.read_text()) for file in files]


def above(pid: int, generations: int) -> psutil.Process:
    process = psutil.Process(pid)
    for _ in range(generations):
        process = process.parent()
    return process


def child_of(pid: int, module: str) -> psutil.Process:
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that has just ended
            found += [one] if module in one.cmdline() else []
    (only,) = found
    return only


def places(out: str) -> list[list[str]]:
    return sorted(json.loads(line) for line in out.splitlines())


ON_RAY = ("launch", "--on", "ray", "--no-prefix")

# A cluster of the job alone.


WRITE = f"""{TELL}
import pathlib, sys, time
for i in range(5_000): print('the same words', os.environ['RANK'], i // 2)
sys.stdout.flush()
pathlib.Path('written-' + os.environ['RANK']).touch()
while not pathlib.Path('written-0').exists(): time.sleep(0.05)
time.sleep(1)  # the other one has ended by then, in order
sys.exit(int(os.environ['RANK']) * 7)
"""


def test_ranks_of_a_local_cluster_and_their_output_and_exit_code(cli: Any, clean: None) -> None:
    """Each line whole and once, and the code of the rank that failed."""
    done = cli(*ON_RAY, "--ranks-per-node", "2", "--", sys.executable, "-c", WRITE)
    assert done.code == 7, done.err
    assert "rank 1" in done.err
    lines = done.out.splitlines()
    assert places("\n".join(line for line in lines if line.startswith("["))) == [
        ["0", "2", "0", "2", "127.0.0.1"],
        ["1", "2", "1", "2", "127.0.0.1"],
    ]
    for rank in "01":
        expected = [f"the same words {rank} {i // 2}" for i in range(5_000)]
        assert [line for line in lines if line.startswith(f"the same words {rank} ")] == expected
    assert len(lines) == 10_002


def test_what_is_secret_is_on_no_command_line_and_what_listens_on_loopback(
    cli: Any, clean: None
) -> None:
    running = cli.start(
        *ON_RAY, "-x", "MY_TOKEN", "--", "sh", "-c", STAY, env={"MY_TOKEN": "hunter2"}
    )
    (pid,) = stayed(cli, 1)
    assert b"MY_TOKEN=hunter2" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    shown = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    assert not [words for words in shown if b"hunter2" in words]
    heard = []
    for process in psutil.Process(running.process.pid).children(recursive=True):
        heard += [c.laddr.ip for c in process.net_connections("inet") if c.status == "LISTEN"]
    assert heard
    assert set(heard) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    running.signal(signal.SIGINT)
    assert running.wait().code == 130


def test_a_rank_is_killed(cli: Any, clean: None) -> None:
    running = cli.start(*ON_RAY, "--ranks", "2", "--", "sh", "-c", STAY)
    os.kill(stayed(cli)[1], signal.SIGKILL)
    done = running.wait()
    assert done.code == 128 + signal.SIGKILL
    assert "rank 1" in done.err
    assert "SIGKILL" in done.err


@pytest.mark.parametrize(
    ("generations", "words"),
    [(1, "is lost: the process around it ended"), (3, "is lost: its actor is gone")],
    ids=["wrapper", "actor"],
)
def test_what_is_around_a_rank_is_killed(
    cli: Any, clean: None, generations: int, words: str
) -> None:
    running = cli.start(*ON_RAY, "--ranks", "2", "--", "sh", "-c", STAY)
    os.kill(above(stayed(cli)[1], generations).pid, signal.SIGKILL)
    done = running.wait()
    assert done.code == 3
    assert f"ray: rank 1 on node {os.uname().nodename} {words}" in done.err


def test_the_wrappers_parent_is_killed(cli: Any, clean: None) -> None:
    """The wrapper sees it, and ends the rank in order: that is no failure of the rank's own."""
    running = cli.start(*ON_RAY, "--ranks", "2", "--", "sh", "-c", STAY)
    os.kill(above(stayed(cli)[1], 2).pid, signal.SIGKILL)
    done = running.wait()
    assert done.code == 3, done.err
    assert "rank 1" in done.err


def test_ended_by_sigterm(cli: Any, clean: None) -> None:
    running = cli.start(*ON_RAY, "--ranks", "2", "--", "sh", "-c", STAY)
    stayed(cli)
    running.signal(signal.SIGTERM)
    assert running.wait().code == 130


@pytest.mark.parametrize("after_s", [0.0, 1.5, 3.0])
def test_interrupted_while_the_cluster_starts(cli: Any, clean: None, after_s: float) -> None:
    running = cli.start(*ON_RAY, "--ranks", "2", "--", "sh", "-c", STAY)
    cli.until(psutil.Process(running.process.pid).children)
    time.sleep(after_s)
    running.signal(signal.SIGINT)
    assert running.wait().code == 130


@pytest.mark.parametrize("who", ["console", "guard", "session"])
def test_killed(cli: Any, clean: None, who: str) -> None:
    running = cli.start(*ON_RAY, "--ranks", "2", "--", "sh", "-c", STAY)
    stayed(cli)
    console = running.process.pid
    pids = {
        "console": lambda: console,
        "guard": lambda: child_of(console, "wirespeed.launchers.ray.driver").pid,
        "session": lambda: child_of(console, "wirespeed.launchers.ray.session").pid,
    }
    os.kill(pids[who](), signal.SIGKILL)
    assert running.wait().code != 0


def test_no_room_in_a_local_cluster(cli: Any, clean: None) -> None:
    done = cli(*ON_RAY, "--ranks", "2", "--with", "cpus-per-rank=4000", "--", "true")
    assert done.code == 3
    assert "no room for 2 ranks: asked 1 × (8000 CPU)" in done.err
    assert "the cluster has 1 node(s) (127.0.0.1: " in done.err


# A cluster that was there before.


@dataclass
class Cluster:
    """Two raylets of this machine as two nodes."""

    address: str
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ask(self, expression: str) -> Any:
        """The value of an expression in a driver of its own."""
        text = (
            "import json, ray; from ray.util import placement_group_table as table;"
            f"ray.init({self.address!r}, log_to_driver=False, logging_level='ERROR');"
            f"print(json.dumps({expression}))"
        )
        words = [sys.executable, "-c", text]
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(done.stdout)

    def is_empty(self) -> bool:
        """Whether all of it is free, and no placement group is left."""
        free = "ray.available_resources().get('CPU') == ray.cluster_resources()['CPU']"
        gone = "all(group['state'] == 'REMOVED' for group in table().values())"
        return bool(self.ask(f"{free} and {gone}"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def start_node(folder: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    ports = [f"--{name}={free_port()}" for name in ("node-manager-port", "object-manager-port")]
    common = ["--block", "--num-cpus=2", "--num-gpus=2", "--object-store-memory=80000000"]
    program = str(Path(sys.executable).parent / "ray")
    with (folder / f"log-{len(words)}").open("wb") as log:
        return subprocess.Popen(
            [program, "start", "--disable-usage-stats", *common, *ports, *words],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def end_node(process: subprocess.Popen[bytes]) -> None:
    """A raylet's workers have sessions of their own: by their pids."""
    with suppress(psutil.NoSuchProcess):
        everything = [psutil.Process(process.pid)]
        everything += everything[0].children(recursive=True)
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait(END_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="ray-t-", dir="/tmp"))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    environment = {**os.environ, "HOME": str(folder), **token}
    port = free_port()
    head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
    head += ["--node-name=head"]
    found = Cluster("", environment)
    try:
        found.processes.append(start_node(folder, environment, *head))
        found.address = f"{_own_address()}:{port}"
        _until_listening(found.address)
        join = [f"--address={found.address}", "--node-name=other"]
        found.processes.append(start_node(folder, environment, *join))
        deadline = time.monotonic() + END_S * 2
        while found.ask("len([n for n in ray.nodes() if n['Alive']])") < 2:
            assert time.monotonic() < deadline
        yield found
    finally:
        for process in found.processes:
            end_node(process)
        shutil.rmtree(folder, ignore_errors=True)


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _until_listening(address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + END_S * 2
    while True:
        with suppress(OSError):
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


Launch = Callable[..., Any]


@pytest.mark.timeout(420)
def test_a_cluster_that_is_there(cli: Any, cluster: Cluster, clean: None) -> None:
    """One cluster for all of it, since starting one takes long."""
    on = (*ON_RAY, "--with", f"address={cluster.address}")

    def launch(*words: str) -> Any:
        return cli(*on, *words, env=cluster.environment | {"HOME": str(cli.folder)})

    tell = ("--", sys.executable, "-c", TELL)
    address = cluster.address.partition(":")[0]
    _spread(launch, tell, address)
    _packed(launch, tell, address)
    _named(launch, tell)
    _gpus(launch)
    _no_room(launch)
    _no_such_python(launch)
    assert cluster.is_empty()
    _console_killed(cli, cluster, on)
    cli.until(cluster.is_empty)
    assert [process.poll() for process in cluster.processes] == [None, None]
    _node_lost(cli, cluster, on)


def _spread(launch: Launch, tell: tuple[str, ...], address: str) -> None:
    done = launch("--nodes", "2", "--ranks-per-node", "2", *tell)
    assert done.code == 0, done.err
    assert places(done.out) == [[str(r), "4", str(r % 2), "2", address] for r in range(4)]


def _packed(launch: Launch, tell: tuple[str, ...], address: str) -> None:
    done = launch("--nodes", "2", "--ranks-per-node", "1", "--with", "strategy=PACK", *tell)
    assert done.code == 0, done.err
    assert places(done.out) == [[str(r), "2", str(r), "2", address] for r in range(2)]


def _named(launch: Launch, tell: tuple[str, ...]) -> None:
    done = launch("--hosts", "head", *tell)
    assert done.code == 0, done.err
    done = launch("--hosts", "nobody", *tell)
    assert done.code == 3
    assert "no node of the cluster is called nobody" in done.err


def _gpus(launch: Launch) -> None:
    """Ray believes in GPUs that are not there: each rank sees those of its node's ranks."""
    text = "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES"
    done = launch("--nodes", "2", "--ranks-per-node", "2", "--", "sh", "-c", text)
    assert sorted(done.out.splitlines()) == ["0 0 0,1", "1 1 0,1", "2 0 0,1", "3 1 0,1"]
    done = launch("--ranks", "1", "--with", "gpus-per-rank=0", "--", "sh", "-c", text)
    assert done.code == 0, done.err
    assert "0,1" not in done.out


def _no_room(launch: Launch) -> None:
    done = launch("--nodes", "3", "--with", "timeout=2", "--", "true")
    assert done.code == 3
    assert "no room for 3 ranks: asked 3 × (1 CPU, 1 GPU) on nodes of their own" in done.err
    assert "the cluster has 2 node(s)" in done.err


def _no_such_python(launch: Launch) -> None:
    done = launch("--python", "/no/such/python", "--", "true")
    assert done.code == 3
    assert "has no Python at /no/such/python" in done.err


def _console_killed(cli: Any, cluster: Cluster, on: tuple[str, ...]) -> None:
    """The session alone, so that Ray itself has to end the actors."""
    running = cli.start(*on, "--nodes", "2", "--", "sh", "-c", STAY, env=cluster.environment)
    pids = stayed(cli)
    session = child_of(running.process.pid, "wirespeed.launchers.ray.session")
    os.kill(session.pid, signal.SIGKILL)
    assert running.wait().code == 3
    cli.until(lambda: not any(psutil.pid_exists(pid) for pid in pids), END_S)
    for rank in range(2):
        (cli.folder / f"pid-{rank}").unlink()


def _node_lost(cli: Any, cluster: Cluster, on: tuple[str, ...]) -> None:
    running = cli.start(*on, "--nodes", "2", "--", "sh", "-c", STAY, env=cluster.environment)
    stayed(cli)
    raylets = [
        one
        for one in psutil.Process(cluster.processes[1].pid).children(recursive=True)
        if one.name() == "raylet"
    ]
    for raylet in raylets:
        raylet.kill()
    assert len(raylets) == 1
    done = running.wait()
    assert done.code == 3, done.err
    assert "is lost: its actor is gone" in done.err


def test_nobody_answers(cli: Any, clean: None) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = cli(*ON_RAY, "--with", f"address={address}", "--", "true")
    assert done.code == 3
    assert f"no connection to the cluster at {address}" in done.err
