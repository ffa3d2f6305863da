"""The scripts in the ConfigMap do what they say: run as they are, by the shell."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests import MOUNT, START, config_map, hosts
from wirespeed.launchers.request import read_hostfile

BOUND_S = 30.0
_PR_SET_CHILD_SUBREAPER = 36
Make = Callable[..., Deployment]
ENGINES = ("statefulset", "mpijob", "trainjob", "jobset")


def written(deployment: Deployment, folder: Path, hostname: str = "mine-0") -> Path:
    """The ConfigMap's files as a pod of that name has them."""
    name = folder / "hostname"
    name.write_text(f"{hostname}\n")
    for key, text in config_map(deployment)["data"].items():
        (folder / key).write_text(text.replace("/proc/sys/kernel/hostname", str(name)))
    return folder


def as_first_process() -> None:
    """What the kernel does for process 1 of a pod: whatever loses its parent becomes its child."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def started(folder: Path, path: str = "") -> Iterator["subprocess.Popen[str]"]:
    words = ["/bin/sh", str(folder / "start")]
    env = {"PATH": path or os.environ["PATH"]}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=env, stdout=pipe, stderr=pipe, text=True, preexec_fn=as_first_process
    ) as process:
        try:
            yield process
        finally:
            for left in psutil.Process().children(recursive=True):
                if left.pid == process.pid or left.ppid() == process.pid:
                    left.kill()


def sourced(folder: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """A shell that takes the environment, then tells it."""
    script = f". {shlex.quote(str(folder / 'environment'))} && env"
    return subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def variables(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_pods_first_process_waits_and_ends_at_once(
    number: signal.Signals, code: int, deployment: Make, tmp_path: Path
) -> None:
    with started(written(deployment(), tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine-0 waits for ranks\n"
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(BOUND_S) == code
        assert time.monotonic() - began < 5


def test_it_reaps_what_others_leave_behind(deployment: Make, tmp_path: Path) -> None:
    folder = written(deployment(), tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    mark = tmp_path / "orphan"
    sleep = programs / "sleep"
    sleep.write_text(
        f"#!/bin/sh\n(sh -c 'echo $$ > {mark}.new && mv {mark}.new {mark}' &)\nexec /bin/sleep \"$@\"\n"
    )
    sleep.chmod(0o755)
    with started(folder, f"{programs}:{os.environ['PATH']}"):
        end = time.monotonic() + BOUND_S
        while not mark.exists() or psutil.pid_exists(int(mark.read_text())):
            assert time.monotonic() < end, "the orphan is still there, or was never"
            time.sleep(0.02)


def test_it_goes_on_when_somebody_ends_its_sleep(deployment: Make, tmp_path: Path) -> None:
    with started(written(deployment(), tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        first = _sleep_of(process.pid)
        first.terminate()
        end = time.monotonic() + BOUND_S
        while (now := _sleep_of(process.pid)).pid == first.pid:
            assert time.monotonic() < end
        assert now.is_running() and process.poll() is None


def _sleep_of(pid: int) -> psutil.Process:
    end = time.monotonic() + BOUND_S
    while True:
        assert time.monotonic() < end, "no sleep was started"
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):
                # Before its exec it is a copy of the shell.
                if child.status() != psutil.STATUS_ZOMBIE and child.name() == "sleep":
                    return child


def test_an_image_without_sleep_is_told_and_does_not_spin(deployment: Make, tmp_path: Path) -> None:
    with started(written(deployment(), tmp_path), path="/nowhere") as process:
        _, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 127
    assert "the image has no program sleep" in said


@pytest.mark.parametrize(
    ("engine", "hostname", "master"),
    [
        ("statefulset", "mine-13", "mine-0.mine.here.svc"),
        ("statefulset", "mine-13.mine.here.svc.cluster.local", "mine-0.mine.here.svc"),
        ("mpijob", "mine-worker-13", "mine-worker-0.mine.here.svc"),
        ("trainjob", "mine-node-0-13", "mine-node-0-0.mine.here.svc"),
        ("jobset", "mine-ranks-0-13", "mine-ranks-0-0.mine.here.svc"),
    ],
)
def test_the_rank_of_a_node_is_the_ordinal_of_its_pod(
    engine: str, hostname: str, master: str, deployment: Make, tmp_path: Path
) -> None:
    told = deployment(pods=17, engine=engine, gpus={"per_node": 4}, network={"port": 29411})
    env = variables(sourced(written(told, tmp_path, hostname)))
    assert (env["NODE_RANK"], env["NNODES"], env["NPROC_PER_NODE"]) == ("13", "17", "4")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (master, "29411")
    assert not [name for name in env if name.startswith("wirespeed")]


def test_an_indexed_job_tells_it_itself(deployment: Make, tmp_path: Path) -> None:
    folder = written(deployment(engine="jobset"), tmp_path, "anything")
    assert variables(sourced(folder, JOB_COMPLETION_INDEX="1"))["NODE_RANK"] == "1"


@pytest.mark.parametrize("hostname", ["mine-launcher", "laptop", "mine-1a", ""])
def test_a_pod_without_an_ordinal_is_no_rank(
    hostname: str, deployment: Make, tmp_path: Path
) -> None:
    done = sourced(written(deployment(), tmp_path, hostname))
    assert done.returncode != 0
    assert "none of the ranks' pods" in done.stderr
    assert "NODE_RANK" not in done.stdout


@pytest.mark.slow
def test_torchrun_takes_its_options_from_it(deployment: Make, tmp_path: Path) -> None:
    folder = written(deployment(pods=3, gpus={"per_node": 2}), tmp_path, "mine-2")
    ask = (
        "from torch.distributed.run import parse_args; a = parse_args(['train.py']);"
        "print(a.nnodes, a.node_rank, a.nproc_per_node, a.master_addr, a.master_port)"
    )
    env = variables(sourced(folder))
    words = [sys.executable, "-c", ask]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["3", "2", "2", "mine-0.mine.here.svc", "29500"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 0), (3, 8), (1000, 1)])
def test_the_hostfile_names_every_pod_with_its_slots(
    engine: str, nodes: int, gpus: int, deployment: Make, tmp_path: Path
) -> None:
    told = deployment(pods=nodes, engine=engine, gpus={"per_node": gpus})
    found = read_hostfile(written(told, tmp_path) / "hostfile")
    assert [host.name for host in found] == list(hosts(told))
    assert {host.slots for host in found} == {max(1, gpus)}
    assert len(set(hosts(told))) == nodes


def test_the_config_map_carries_the_notes_and_is_mounted_where_pods_start(
    rendered: Callable[..., dict[str, Any]],
) -> None:
    text = 'Ask "vision" first.\n$(reboot)\n'
    made = rendered(notes=text)
    assert made["ConfigMap"]["metadata"]["annotations"]["wirespeed/notes"] == text
    assert made["ConfigMap"]["metadata"]["name"] == "mine-scripts"
    container = made["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == list(START)
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts["scripts"] == MOUNT


@pytest.mark.parametrize("engine", ENGINES)
def test_every_script_is_one_for_a_posix_shell(
    engine: str, deployment: Make, tmp_path: Path
) -> None:
    folder = written(deployment(engine=engine), tmp_path)
    scripts = {"start", "environment"} | ({"worker", "launcher"} if engine == "mpijob" else set())
    assert config_map(deployment(engine=engine))["data"].keys() == scripts | {"hostfile"}
    for name in scripts:
        done = subprocess.run(["/bin/sh", "-n", str(folder / name)], check=False, timeout=BOUND_S)
        assert done.returncode == 0, name
