"""`wirespeed launch --on deepspeed` for real: on this machine, and on nodes with sshds through pdsh."""

import json
import os
import re
import shutil
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from launched import by_rank, running_on
from processes import command_lines

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="Requires: deepspeed"),
]
needs_pdsh = pytest.mark.skipif(shutil.which("pdsh") is None, reason="Requires: the command pdsh")

LAUNCH = (sys.executable, "-m", "wirespeed", "launch", "--on", "deepspeed")
SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TELL = f"import os; print(os.uname().nodename, *(os.environ[name] for name in {PLACES}))"
NASTY = [
    "a b",
    "'",
    '"',
    ";",
    "$(id)",
    "`id`",
    "-o",
    "--",
    "",
    "two\nlines",
    "$$",
    "%n",
    "--include",
]
AFTER_S = 90.0
LINES = 5_000


def words(ssh_lab: Any, *more: str, hosts: str) -> list[str]:
    return [*LAUNCH, "--hosts", hosts, "--with", f"ssh-config={ssh_lab.config}", *more]


def over(running: Any) -> bool:
    return running.process.poll() is not None


def started(cli: Any, ssh_lab: Any, *more: str, hosts: str) -> tuple[Any, dict[str, int]]:
    running = ssh_lab.start(words(ssh_lab, *more, "--", *SLEEPER, hosts=hosts))
    cli.until(lambda: len(running_on(ssh_lab, SLEEPER)) == hosts.count(",") + 1 or over(running))
    return running, running_on(ssh_lab, SLEEPER)


# This machine.


def test_this_machine_alone(cli: Any) -> None:
    """Places, and a secret that reaches the ranks and no command line or log."""
    secret, go = f"s3cr3t-{os.getpid()} $HOME", cli.folder / "go"
    code = (
        f"{TELL}\nimport pathlib, time\nprint(os.environ['MY_NCCL_TOKEN'], flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    )
    how = ["--ranks", "2", "-x", "MY_NCCL_TOKEN", "--", sys.executable, "-c", code]
    running = cli.start_words([*LAUNCH, *how], env={"MY_NCCL_TOKEN": secret})
    cli.until(lambda: running.out().count(secret) == 2 or over(running))
    shown = [line for line in command_lines().values() if secret in line]
    go.touch()
    done = running.wait()
    assert done.code == 0, done.out + done.err
    told = by_rank(done.out)
    said = {rank: lines[0].split() for rank, lines in told.items()}
    assert {rank: one[1:6] for rank, one in said.items()} == {
        0: ["0", "2", "0", "2", "127.0.0.1"],
        1: ["1", "2", "1", "2", "127.0.0.1"],
    }
    assert said[0][6] == said[1][6]
    assert [told[rank][1] for rank in (0, 1)] == [secret] * 2
    assert shown == []
    for path in cli.home.rglob("*"):
        if path.is_file() and path.name not in ("rank-0.log", "rank-1.log"):
            assert secret not in path.read_text(errors="replace"), path


def test_two_nodes_of_this_machine_without_ssh(cli: Any) -> None:
    how = ["--nodes", "2", "--ranks-per-node", "2", "--with", "no-ssh"]
    done = cli.start_words([*LAUNCH, *how, "--", sys.executable, "-c", TELL]).wait()
    assert done.code == 0, done.out + done.err
    said = {rank: lines[0].split() for rank, lines in by_rank(done.out).items()}
    assert {rank: one[1:5] for rank, one in said.items()} == {
        rank: [str(rank), "4", str(rank % 2), "2"] for rank in range(4)
    }
    assert len({one[6] for one in said.values()}) == 1


def test_each_node_by_itself_makes_one_world(cli: Any) -> None:
    """What two users do on two machines: each hears its own ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    how = ["--hosts", "a:1,b:2", "--with", "no-ssh", "--with", "master-addr=127.0.0.1"]
    how += ["--with", f"master-port={port}"]
    code = (
        "import os, torch.distributed as d; d.init_process_group('gloo'); "
        "print(d.get_rank(), d.get_world_size()); d.barrier()"
    )
    command = ["--", sys.executable, "-c", code]
    runs = [
        cli.start_words([*LAUNCH, *how, "--with", f"node-rank={node}", *command])
        for node in range(2)
    ]
    done = [run.wait(AFTER_S) for run in runs]
    assert [one.code for one in done] == [0, 0], done[0].err + done[1].err
    assert done[0].out == "0 3\n"
    assert by_rank(done[1].out) == {rank: [f"{rank} 3"] for rank in (1, 2)}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_this_machine_is_left(cli: Any, end: int) -> None:
    running = cli.start_words([*LAUNCH, "--ranks", "2", "--", *SLEEPER])
    cli.until(lambda: running.out().count("up") == 2 or over(running))
    assert len(cli.ranks()) == 2
    running.signal(end)
    running.wait()
    cli.nothing_runs()


# Nodes, through pdsh.


def arriving(go: Path) -> str:
    """A rank that tells all that it got, and then, once it may, writes many lines."""
    return (
        "import json, os, pathlib, sys, time\n"
        "print(json.dumps([os.uname().nodename, sys.argv[1:], dict(os.environ)]), flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
        "r = os.environ['RANK']\n"
        f"for i in range({LINES}): sys.stdout.write(f'{{r}}:{{i}}:' + 'x' * (i % 200) + '\\n')"
    )


@needs_pdsh
def test_what_arrives_on_nodes_and_what_comes_back(ssh_lab: Any, cli: Any) -> None:
    """One job for all of it: places after a filter, words, values that no command line shows, lines.

    DeepSpeed would write `export NAME=VALUE` on the command lines of nodes, of some families of its
    own accord.
    """
    mark, pwned, go = f"v4lue-{os.getpid()}", cli.folder / "pwned", cli.folder / "go"
    odd = f"a  b \"'$(touch {pwned})`touch {pwned}`;%h\\"
    values = {"NCCL_MORE": f"{mark} 1", "GLOO_ODD": f"{mark}-2\n$(id)", "UCX_ODD": f"{mark}-3"}
    secrets = {"MY_TOKEN": f"{mark}-4", "MLFLOW_TRACKING_TOKEN": f"{mark}-5"}
    how = ["-q", "--with", "include=node-2@node-0:0,2@node-3", "-x", f"NCCL_ODD={odd}"]
    how += ["-x", "MY_TOKEN", "--", sys.executable, "-c", arriving(go), *NASTY]
    running = ssh_lab.start(
        words(ssh_lab, *how, hosts="node-2:1,node-0:3,node-1:2,node-3:1"),
        env={**values, **secrets, "PYTHONPATH": "/no"},
    )
    shown: list[str] = []
    folders: set[Path] = set()

    def told() -> bool:
        shown.extend(line for line in command_lines().values() if mark in line)
        for pid in cli.processes():
            line = command_lines().get(pid, "")
            folders.update(map(Path, re.findall(r"--carried\0([^\0]+)", line)))
        return running.out().count("GLOO_ODD") == 4 or over(running)

    cli.until(told)
    assert told()
    go.touch()
    done = running.wait(AFTER_S)
    assert done.code == 0, done.err
    found = by_rank(done.out)
    assert sorted(found) == [0, 1, 2, 3]
    seen = [json.loads(found[rank][0]) for rank in range(4)]
    assert [node for node, _, _ in seen] == ["node-2", "node-0", "node-0", "node-3"]
    places = [[env[name] for name in PLACES] for _, _, env in seen]
    assert [one[:2] for one in places] == [[str(rank), "4"] for rank in range(4)]
    assert [one[3] for one in places] == ["1", "2", "2", "1"]
    assert sorted(one[2] for one in places[1:3]) == ["0", "1"]
    assert {one[4] for one in places} == {ssh_lab.lab.address("node-2")}
    assert len({one[5] for one in places}) == 1
    wanted = {**values, "NCCL_ODD": odd, "MY_TOKEN": secrets["MY_TOKEN"]}
    for _, arguments, env in seen:
        assert arguments == NASTY
        assert {name: env[name] for name in wanted} == wanted
        assert "MLFLOW_TRACKING_TOKEN" not in env
    assert not pwned.exists()
    assert shown == []
    expected = [f"{i}:{'x' * (i % 200)}" for i in range(LINES)]
    for rank, lines in found.items():
        assert lines[1:] == [f"{rank}:{line}" for line in expected]
    logs = "".join(path.read_text() for path in cli.home.rglob("deepspeed.log"))
    assert mark not in logs
    (folder,) = folders
    assert not list(folder.parent.glob(f"{folder.name}*"))


@needs_pdsh
def test_one_remote_host_is_not_taken_for_this_machine(ssh_lab: Any) -> None:
    done = ssh_lab.run(words(ssh_lab, "--", "hostname", hosts="node-3:2"))
    assert done.code == 0, done.err
    assert by_rank(done.out) == {0: ["node-3"], 1: ["node-3"]}


@needs_pdsh
def test_a_killed_rank_is_named_and_all_end(ssh_lab: Any, cli: Any) -> None:
    running, pids = started(cli, ssh_lab, hosts="node-0,node-1")
    os.kill(pids["node-1"], signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 137, done.err
    assert "rank 1 on node-1 failed first" in done.err
    assert "SIGKILL" in done.err
    ssh_lab.nothing_left()


@needs_pdsh
def test_nothing_is_left_on_any_node_and_another_job_goes_on(ssh_lab: Any, cli: Any) -> None:
    """After Ctrl-C, and after the death of wirespeed itself.

    DeepSpeed's own way to end a job is `pkill -f` on each host.
    """
    other, pids = started(cli, ssh_lab, hosts="node-2,node-3")
    before = ssh_lab.left()
    mine = ssh_lab.start(words(ssh_lab, "--", "sleep", "599", hosts="node-1,node-2"))
    cli.until(lambda: all(_has(ssh_lab, f"node-{n}", "sleep 599") for n in (1, 2)) or over(mine))
    mine.signal(signal.SIGINT)
    done = mine.wait(AFTER_S)
    assert done.code == 130, done.err
    cli.until(
        lambda: all(
            ssh_lab.processes(f"node-{n}") == before.get(f"node-{n}", {}) for n in (1, 2, 3)
        )
    )
    assert running_on(ssh_lab, SLEEPER) == pids
    other.signal(signal.SIGKILL)
    other.wait(AFTER_S)
    ssh_lab.nothing_left()


def _has(ssh_lab: Any, node: str, line: str) -> bool:
    return line in ssh_lab.processes(node).values()


@needs_pdsh
def test_a_lost_host_ends_the_job(ssh_lab: Any, cli: Any) -> None:
    running, _ = started(cli, ssh_lab, hosts="node-0,node-1")
    ssh_lab.stop_sshd("node-1")
    done = running.wait(AFTER_S)
    assert done.code == 3, done.err
    assert "node-1" in done.err
    ssh_lab.nothing_left()


@needs_pdsh
def test_a_cut_cable_leaves_nothing_on_either_side(ssh_lab: Any, cli: Any) -> None:
    """Nobody closes a connection then; ours is given up after 20 s, the far side ends after 60 s."""
    running, _ = started(cli, ssh_lab, hosts="node-0,node-1")
    ssh_lab.lab.cut("node-1")
    done = running.wait(AFTER_S)
    assert done.code == 3, done.err
    assert "node-1" in done.err
    ssh_lab.nothing_left(AFTER_S)


@needs_pdsh
def test_an_unreachable_host_is_named_before_anything_starts(ssh_lab: Any) -> None:
    ssh_lab.stop_sshd("node-2")
    done = ssh_lab.run(words(ssh_lab, "--", "hostname", hosts="node-1,node-2"))
    assert done.code == 3, done.err
    assert "LAUNCH-001" in done.err
    assert "node-2" in done.err
    assert done.out == ""


# Another launcher.


@pytest.mark.skipif(shutil.which("ompi_info") is None, reason="Requires: the command ompi_info")
def test_open_mpi_as_deepspeeds_launcher_passes_secrets(ssh_lab: Any, cli: Any) -> None:
    secret = f"s3cr3t-{os.getpid()} $HOME"
    allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    code = (
        f"{TELL.replace('print(', 'print(os.environ[' + repr('MY_TOKEN') + '], ')}\n"
        "import time; time.sleep(2)"
    )
    how = ["--with", "launcher=openmpi", "-x", "MY_TOKEN", "--", sys.executable, "-c", code]
    running = ssh_lab.start(
        [*LAUNCH, "--hosts", "node-1,node-2:2", *how],
        env={"MY_TOKEN": secret, **allow, **ssh_lab.ssh_first},
    )
    cli.until(lambda: secret in running.out() or over(running))
    shown = [line for line in command_lines().values() if secret in line]
    done = running.wait(AFTER_S)
    assert done.code == 0, done.err
    assert shown == []
    said = {rank: lines[0].split() for rank, lines in by_rank(done.out).items()}
    assert [said[rank][2] for rank in range(3)] == ["node-1", "node-2", "node-2"]
    assert [said[rank][3:5] for rank in range(3)] == [[str(rank), "3"] for rank in range(3)]
    assert {one[7] for one in said.values()} == {ssh_lab.lab.address("node-1")}
    logs = "".join(path.read_text() for path in cli.home.rglob("deepspeed.log"))
    assert secret not in logs


def test_slurm_as_deepspeeds_launcher_keeps_to_the_hosts(slurm_lab: Any, cli: Any) -> None:
    how = ["--hosts", "node-1:2,node-2:2", "--with", "launcher=slurm", "-x", "MY_TOKEN", "--"]
    tell = f"{TELL}; print(os.environ['MY_TOKEN'])"
    env = {"MY_TOKEN": "a, b 'c'"}
    running = slurm_lab.start([*LAUNCH, *how, sys.executable, "-c", tell], env=env)
    done = running.wait(AFTER_S)
    assert done.code == 0, done.err
    said = by_rank(done.out)
    assert [said[rank][1] for rank in range(4)] == ["a, b 'c'"] * 4
    places = [said[rank][0].split() for rank in range(4)]
    assert [one[0] for one in places] == ["node-1", "node-1", "node-2", "node-2"]
    assert [one[1:3] for one in places] == [[str(rank), "4"] for rank in range(4)]


@pytest.mark.skipif(shutil.which("mpirun.mpich") is None, reason="Requires: mpirun of MPICH")
@pytest.mark.parametrize("launcher", ["mpich", "impi"])
def test_hydra_as_deepspeeds_launcher(ssh_lab: Any, cli: Any, launcher: str) -> None:
    """Intel MPI's mpirun is not free to install; DeepSpeed speaks to it nearly as to MPICH's."""
    folder = cli.folder / "mpich"
    folder.mkdir()
    for name, program in (("mpirun", "mpirun.mpich"), ("hydra_pmi_proxy", "hydra_pmi_proxy")):
        (folder / name).symlink_to(shutil.which(program) or "")
    path = f"{folder}{os.pathsep}{ssh_lab.ssh_first['PATH']}"
    how = ["--hosts", "node-1:2,node-2:2", "--with", f"launcher={launcher}", "-x", "MY_TOKEN"]
    tell = f"{TELL}; print(os.environ['MY_TOKEN'])"
    words = [*LAUNCH, *how, "--", sys.executable, "-c", tell]
    done = ssh_lab.run(words, env={"PATH": path, "MY_TOKEN": "a, b 'c'"})
    assert done.code == 0, done.err
    said = by_rank(done.out)
    assert [said[rank][1] for rank in range(4)] == ["a, b 'c'"] * 4
    places = [said[rank][0].split() for rank in range(4)]
    assert [one[0] for one in places] == ["node-1", "node-1", "node-2", "node-2"]
    assert [one[1:3] for one in places] == [[str(rank), "4"] for rank in range(4)]


# Verbs.


def verb(ssh_lab: Any, *more: str) -> list[str]:
    where = ["--on", "deepspeed", "--hosts", "node-0,node-1:2", "--with"]
    where += [f"ssh-config={ssh_lab.config}", "--interface", "eth0"]
    return [sys.executable, "-m", "wirespeed", *more, *where]


@needs_pdsh
def test_check_on_nodes_is_ready(ssh_lab: Any, cli: Any) -> None:
    done = ssh_lab.run(verb(ssh_lab, "check", "-l", "quick"), timeout=300)
    assert done.code == 0, done.out + done.err
    run = cli.run()
    assert (run["verdict"], run["world"]["size"]) == ("READY", 3)
    assert run["world"]["launcher"] == "deepspeed"


@needs_pdsh
def test_a_rank_that_dies_in_a_check_is_named(ssh_lab: Any, cli: Any) -> None:
    running = ssh_lab.start(verb(ssh_lab, "check"))
    cli.measuring(3)
    victims = [
        pid
        for pid, environment in cli.processes().items()
        if environment.get("RANK") == "2" and "wirespeed.session.rank_program" in _line(pid)
        if "rank_wrapper" not in _line(pid)
    ]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 1, done.out + done.err
    assert [one["id"] for one in cli.run()["findings"] if one["status"] == "fail"] == ["DIED-001"]
    assert "rank 2" in done.out + done.err
    ssh_lab.nothing_left()


def _line(pid: int) -> str:
    return command_lines().get(pid, "")
