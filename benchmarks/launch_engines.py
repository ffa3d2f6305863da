"""The engines of `launch_time.py`: how each is started by itself, and by us."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from wirespeed.errors import CannotMeasure
from wirespeed.launchers.engines.mpi import mpirun_path

__all__ = ["ENGINES", "SCRIPT", "Commands", "Missing", "Pair", "Place", "free_port"]

SSHD = "/usr/sbin/sshd"
PYTHON = sys.executable

SCRIPT = """\
import os, pathlib, sys, time
import torch
import torch.distributed as dist

RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
rank, size = (next(int(os.environ[n]) for n in names if n in os.environ) for names in (RANK, SIZE))
dist.init_process_group("gloo", rank=rank, world_size=size)
dist.all_reduce(torch.ones(1))
pathlib.Path(__file__).parent.joinpath(f"mark-{rank}").write_text(repr(time.time()))
dist.destroy_process_group()
"""
RAY = """\
import os, runpy, sys
import ray

@ray.remote(num_cpus=1)
class Rank:
    def run(self, rank, script, variables):
        os.environ.update(variables, RANK=str(rank), WORLD_SIZE="2")
        runpy.run_path(script)

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
variables = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
ray.get([Rank.remote().run.remote(rank, sys.argv[1], variables) for rank in range(2)])
"""
FLOW = """\
import os, runpy
from metaflow import FlowSpec, current, parallel, step

class Bare(FlowSpec):
    @step
    def start(self):
        self.next(self.rank, num_parallel=2)

    @parallel
    @step
    def rank(self):
        os.environ.update(RANK=str(current.parallel.node_index), WORLD_SIZE="2")
        runpy.run_path(os.environ["BARE_SCRIPT"])
        self.next(self.join)

    @step
    def join(self, inputs):
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    Bare()
"""
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
"""
CLIENT = """\
Host node-a node-b
  HostName 127.0.0.1
  HostKeyAlias loopback
  Port {port}
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
"""


class Missing(Exception):
    """Why an engine cannot be measured here."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one benchmark runs."""

    folder: Path

    @property
    def script(self) -> str:
        return str(self.folder / "first.py")

    def launch(self, engine: str, *words: str) -> list[str]:
        start = [PYTHON, "-m", "wirespeed", "launch", "-q", "--on", engine, *words]
        return [*start, "--", PYTHON, self.script]


Commands = list[list[str]]
"""Processes that together are one start."""


@dataclass(frozen=True, slots=True)
class Pair:
    """How the engine is started by itself, and by us."""

    bare: Callable[[int], Commands]
    """Given a free port, which MASTER_PORT says, too."""
    ours: list[str]


# The engines.


@contextmanager
def local(place: Place) -> Iterator[Pair]:
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    yield Pair(lambda port: [[*torchrun, place.script]], place.launch("local", "--ranks", "2"))


@contextmanager
def ssh(place: Place) -> Iterator[Pair]:
    for program in (SSHD, "ssh", "ssh-keygen"):
        need(shutil.which(program), f"there is no {program}")
    config = str(place.folder / "ssh_config")

    def bare(port: int) -> Commands:
        one = f"{PYTHON} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank"
        more = f"--master-addr 127.0.0.1 --master-port {port} {place.script}"
        nodes = enumerate(("node-a", "node-b"))
        return [["ssh", "-F", config, host, f"exec {one} {index} {more}"] for index, host in nodes]

    words = ("--hosts", "node-a:1,node-b:1", "--with", f"config={config}")
    with own_sshd(place.folder):
        yield Pair(bare, place.launch("ssh", *words))


@contextmanager
def mpi(place: Place) -> Iterator[Pair]:
    try:
        mpirun = mpirun_path("")
    except CannotMeasure as error:
        raise Missing("there is no mpirun: pip install 'wirespeed[mpi]'") from error
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=60)
    ours, words = ["--ranks", "2"], [mpirun, "-n", "2"]
    if "Open MPI" in said.stdout:
        words += ["--oversubscribe", "--bind-to", "none", "-x", "MASTER_ADDR", "-x", "MASTER_PORT"]
        ours += ["--with", "oversubscribe"]
        if os.geteuid() == 0:
            words.append("--allow-run-as-root")
            ours += ["--with", "allow-root"]
    yield Pair(lambda port: [[*words, PYTHON, place.script]], place.launch("mpi", *ours))


@contextmanager
def deepspeed(place: Place) -> Iterator[Pair]:
    need(find_spec("deepspeed"), "DeepSpeed is not installed: pip install 'wirespeed[deepspeed]'")
    words = [PYTHON, "-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--no_local_rank"]

    def bare(port: int) -> Commands:
        return [[*words, "--master_port", str(port), place.script]]

    yield Pair(bare, place.launch("deepspeed", "--ranks", "2"))


@contextmanager
def slurm(place: Place) -> Iterator[Pair]:
    need(shutil.which("srun"), "there is no srun")
    try:
        words = ["srun", "-N", "1", "-n", "1", "true"]
        subprocess.run(words, check=True, timeout=20, stderr=subprocess.DEVNULL)
    except subprocess.SubprocessError as error:
        raise Missing("srun starts nothing here: no controller, no node, or it is busy") from error
    words = ["srun", "-N", "1", "-n", "2", "--overcommit", "--kill-on-bad-exit=1"]
    ours = ("--nodes", "1", "--ranks-per-node", "2", "--with", "overcommit")
    yield Pair(lambda port: [[*words, PYTHON, place.script]], place.launch("slurm", *ours))


@contextmanager
def ray(place: Place) -> Iterator[Pair]:
    need(find_spec("ray"), "Ray is not installed: pip install 'wirespeed[ray]'")
    program = place.folder / "ray_bare.py"
    program.write_text(RAY)
    words = [PYTHON, str(program), place.script]
    yield Pair(lambda port: [words], place.launch("ray", "--ranks", "2", "--with", "address=local"))


@contextmanager
def metaflow(place: Place) -> Iterator[Pair]:
    need(find_spec("metaflow"), "Metaflow is not installed: pip install 'wirespeed[metaflow]'")
    flow = place.folder / "bare_flow.py"
    flow.write_text(FLOW)
    words = [PYTHON, str(flow), "--no-pylint", "--quiet", "--datastore", "local"]
    words += ["--metadata", "local", "--environment", "local", "run"]
    ours = place.launch("metaflow", "--nodes", "2", "--ranks-per-node", "1")
    yield Pair(lambda port: [words], ours)


ENGINES = {one.__name__: one for one in (local, ssh, mpi, deepspeed, slurm, ray, metaflow)}


def need(there: object, why: str) -> None:
    if not there:
        raise Missing(why)


# An sshd of our own.


@contextmanager
def own_sshd(folder: Path) -> Iterator[None]:
    for key in ("host_key", "client_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True, timeout=30)
    port = free_port()
    (folder / "sshd_config").write_text(SERVER.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(CLIENT.format(port=port, folder=folder))
    kind, key, *_ = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"loopback {kind} {key}\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    words = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
    server = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, server)
        yield
    finally:
        server.terminate()
        server.wait(20)


def wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise Missing("our own sshd does not start")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
