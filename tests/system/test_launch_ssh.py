"""`wirespeed launch --on ssh` on four nodes with real sshds: what arrives, what fails, what is left."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launched import by_rank, running_on
from processes import command_lines
from wirespeed import __version__

pytestmark = pytest.mark.system

LAUNCH = (sys.executable, "-m", "wirespeed", "launch", "--on", "ssh")
ALL = "node-0,node-1,node-2,node-3"
TWO = "node-0,node-2"
"""What torchrun does on more nodes it does on two, and on each it takes two seconds to start."""
NO_TORCHRUN = ("--with", "torchrun=no")
SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
NASTY = ["a b", "'", '"', ";", "$(id)", "`id`", "-o", "--", "", "two\nlines", "$$", "${local_rank}"]
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
AFTER_S = 60.0


def words(ssh_lab: Any, *more: str, hosts: str = ALL) -> list[str]:
    return [*LAUNCH, "--hosts", hosts, "--with", f"config={ssh_lab.config}", *more]


def started(cli: Any, ssh_lab: Any, *more: str) -> tuple[Any, dict[str, int]]:
    hosts = ALL if "torchrun=no" in more else TWO
    running = ssh_lab.start(words(ssh_lab, *more, "--", *SLEEPER, hosts=hosts))
    cli.until(lambda: len(running_on(ssh_lab, SLEEPER)) == hosts.count(",") + 1)
    return running, running_on(ssh_lab, SLEEPER)


def inside(ssh_lab: Any, node: str, *command: str) -> None:
    """Run a command where that node's sshd sees files: mounts there are seen by logins only."""
    pid = ssh_lab.server_pid(node)
    subprocess.run(["nsenter", "-t", str(pid), "-m", *command], check=True, timeout=20)


# What arrives.


def arriving(go: Path) -> str:
    """A rank that tells all that it got, and ends once it may."""
    return (
        "import json, os, pathlib, sys, time\n"
        "print(json.dumps([os.uname().nodename, sys.argv[1:], dict(os.environ)]), flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    )


@pytest.mark.parametrize("how", [(), NO_TORCHRUN, ("--with", "rendezvous=c10d")])
def test_what_arrives_and_where(ssh_lab: Any, cli: Any, how: Sequence[str]) -> None:
    """Places, words as they were, and a secret that no command line shows."""
    secret, go = f"s3cr3t-{os.getpid()}\nline '$HOME'", cli.folder / "go"
    hosts = ssh_lab.hosts if "torchrun=no" in how else ["node-3", "node-1"]
    size = 2 * len(hosts)
    command = [sys.executable, "-c", arriving(go), *NASTY]
    more = ("--ranks-per-node", "2", *how, "-x", "MY_TOKEN", "--", *command)
    running = ssh_lab.start(words(ssh_lab, *more, hosts=",".join(hosts)), env={"MY_TOKEN": secret})
    cli.until(lambda: len(running.out().splitlines()) == size or running.process.poll() is not None)
    seen = [line for line in command_lines().values() if f"s3cr3t-{os.getpid()}" in line]
    go.touch()
    done = running.wait()
    assert done.code == 0, done.err
    assert not seen
    told = {rank: json.loads(lines[0]) for rank, lines in by_rank(done.out).items()}
    assert sorted(told) == list(range(size))
    for rank, (_, arguments, env) in told.items():
        assert arguments == NASTY
        assert env["MY_TOKEN"] == secret
        places = [int(env[name]) for name in PLACES]
        assert places == [rank, size, rank % 2, 2]
        assert env["GLOO_SOCKET_IFNAME"] == "eth0"
    nodes = [told[rank][0] for rank in range(size)]
    assert sorted(nodes[::2]) == sorted(hosts)
    assert nodes[::2] == nodes[1::2]
    if "rendezvous=c10d" not in how:
        assert nodes[::2] == hosts
    assert {env["MASTER_ADDR"] for _, _, env in told.values()} == {ssh_lab.lab.address(nodes[0])}


def test_different_numbers_of_ranks(ssh_lab: Any, cli: Any) -> None:
    done = ssh_lab.run(words(ssh_lab, "--", "sh", "-c", "echo $RANK", hosts="node-2:1,node-1:3"))
    assert done.code == 0, done.err
    assert by_rank(done.out) == {rank: [str(rank)] for rank in range(4)}
    assert any(one["name"] == "torchrun" for one in cli.run()["choices"])


def test_the_dry_run_does_the_same_by_hand(ssh_lab: Any, cli: Any) -> None:
    more = ("--", "sh", "-c", "echo rank $RANK on $(hostname)")
    done = ssh_lab.run(words(ssh_lab, "--dry-run", *NO_TORCHRUN, *more, hosts="node-1,node-3"))
    assert done.code == 0, done.err
    script = cli.folder / "job.sh"
    script.write_text(done.out)
    by_hand = ssh_lab.run(["sh", str(script)])
    assert by_hand.code == 0, by_hand.err
    assert sorted(by_hand.out.splitlines()) == ["rank 0 on node-1", "rank 1 on node-3"]


# Nodes that cannot be used.


def test_each_unreachable_node_is_one_finding(ssh_lab: Any, cli: Any) -> None:
    ssh_lab.refuse_key("node-1")
    ssh_lab.change_host_key("node-2")
    ssh_lab.lab.cut("node-3")
    done = ssh_lab.run(words(ssh_lab, "--", "hostname"), timeout=AFTER_S)
    run = cli.run()
    assert (done.code, run["verdict"]) == (3, "UNKNOWN")
    found = {one["subject"]["name"]: one for one in run["findings"]}
    ids = {name: one["id"] for name, one in found.items()}
    assert ids == {"node-1": "LAUNCH-002", "node-2": "LAUNCH-003", "node-3": "LAUNCH-001"}
    assert "ssh-copy-id" in found["node-1"]["fix"]
    assert "ssh-keygen" in found["node-2"]["fix"]
    assert "port 22" in found["node-3"]["saw"]
    # What the finding says helps.
    subprocess.run(
        shlex.split(found["node-2"]["fix"].partition("right: ")[2]), check=True, timeout=20
    )
    again = ssh_lab.run(words(ssh_lab, "--", "hostname", hosts="node-0,node-2"))
    assert "the host key of node-2 is not known here" in again.err


def test_a_node_without_python_and_two_with_other_software(ssh_lab: Any, cli: Any) -> None:
    """node-1 has no Python there, node-2 no wirespeed, node-3 another one."""
    python, other = cli.folder / "python", cli.folder / "other" / "wirespeed"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text('__version__ = "9.9"\n')
    real = shlex.quote(sys.executable)
    python.write_text(
        f"#!/bin/sh\ncase $(uname -n) in\n"
        f'node-2) exec {real} -S "$@" ;;\n'
        f'node-3) PYTHONPATH={shlex.quote(str(other.parent))} exec {real} "$@" ;;\n'
        f'*) exec {real} "$@" ;;\nesac\n'
    )
    python.chmod(0o755)
    inside(ssh_lab, "node-1", "mount", "--bind", "/dev/null", str(python))
    done = ssh_lab.run(words(ssh_lab, "--python", str(python), "--", "hostname"), timeout=AFTER_S)
    assert done.code == 3
    found = {one["subject"]["name"]: one for one in cli.run()["findings"]}
    ids = {name: one["id"] for name, one in found.items()}
    assert ids == {"node-1": "LAUNCH-004", "node-2": "LAUNCH-005", "node-3": "LAUNCH-006"}
    assert f"wirespeed=={__version__}" in found["node-2"]["next"]
    assert "9.9" in found["node-3"]["saw"]


def test_an_unknown_host_key_is_never_accepted(ssh_lab: Any) -> None:
    ssh_lab.forget_host_key("node-1")
    before = (ssh_lab.folder / "known_hosts").read_text()
    done = ssh_lab.run(words(ssh_lab, "--", "hostname", hosts="node-0,node-1"))
    assert done.code == 3
    assert "LAUNCH-003" in done.err
    assert (ssh_lab.folder / "known_hosts").read_text() == before


# How jobs end; that nothing is left on any node is checked after each test.


@pytest.mark.parametrize("how", [(), NO_TORCHRUN])
def test_a_killed_rank_is_named_and_the_others_end(
    ssh_lab: Any, cli: Any, how: Sequence[str]
) -> None:
    running, pids = started(cli, ssh_lab, *how)
    os.kill(pids["node-2"], signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 128 + signal.SIGKILL
    assert cli.run()["verdict"] == "JOB FAILED"
    rank = list(pids).index("node-2")
    assert f"rank {rank} on node-2 failed first" in done.err
    assert "SIGKILL" in done.err


@pytest.mark.parametrize("how", [(), NO_TORCHRUN])
def test_when_the_launching_process_is_killed_every_node_is_empty(
    ssh_lab: Any, cli: Any, how: Sequence[str]
) -> None:
    running, _ = started(cli, ssh_lab, *how)
    running.signal(signal.SIGKILL)
    running.wait(AFTER_S)
    ssh_lab.nothing_left()


def test_ctrl_c_ends_all(ssh_lab: Any, cli: Any) -> None:
    running, _ = started(cli, ssh_lab)
    running.signal(signal.SIGINT)
    assert running.wait(AFTER_S).code == 130
    assert cli.run()["verdict"] == "INTERRUPTED"
    ssh_lab.nothing_left()


def test_a_node_that_is_cut_off_is_lost_and_ends_its_ranks(ssh_lab: Any, cli: Any) -> None:
    """Nobody tells the node: it notices that nothing comes any more."""
    running, _ = started(cli, ssh_lab, *NO_TORCHRUN, "--with", "silence=6")
    ssh_lab.lab.cut("node-2")
    done = running.wait(AFTER_S)
    assert done.code == 3
    (found,) = [one for one in cli.run()["findings"] if one["id"] == "LAUNCH-007"]
    assert found["subject"]["name"] == "node-2"
    ssh_lab.nothing_left()


def test_a_quiet_job_goes_on_since_the_launching_process_gives_signs_of_life(ssh_lab: Any) -> None:
    command = words(ssh_lab, *NO_TORCHRUN, "--with", "silence=2", "--", "sleep", "7")
    done = ssh_lab.run(command)
    assert done.code == 0, done.err


def test_an_sshd_that_is_killed_is_no_success(ssh_lab: Any, cli: Any) -> None:
    running, _ = started(cli, ssh_lab)
    ssh_lab.stop_sshd("node-2")
    done = running.wait(AFTER_S)
    assert done.code == 3
    (found,) = [one for one in cli.run()["findings"] if one["id"] == "LAUNCH-007"]
    assert found["subject"]["name"] == "node-2"
