"""A real Slurm on one machine: each node of a lab is a node of the cluster, node-0 its controller.

`slurm_lab` is taken over by the next test in this process, unless something of a job is left, a fault
of the lab, or a node that is not idle.
"""

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from wirespeed.lab import Lab, LabSpec

__all__ = ["SlurmLab", "made", "slurm_clusters", "slurm_lab"]

NEEDED = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "squeue", "ip", "tc")
_DAEMONS = ("slurmctld", "slurmd-", "munged")
"""Debian's are called slurmctld-wlm and slurmd-wlm; slurmstepd is one that must go."""
UP_S = 30.0
SETTLE_S = 5.0
CALL_S = 60.0
GPUS = 8
_numbers = itertools.count()

_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=node-0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters={select}
SlurmdParameters=config_overrides
SlurmctldParameters=enable_configless
ReturnToService=2
EnforcePartLimits=ALL
MpiDefault=none
GresTypes=gpu
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd_%n.log
SlurmctldTimeout=30
SlurmdTimeout=10
MessageTimeout=5
KillWait=3
BatchStartTimeout=10
NodeName=node-[0-{last}] CPUs=16 Sockets=16 RealMemory=4000 Gres=gpu:{gpus}
PartitionName=train Nodes=node-[0-{last}] Default=YES State=UP OverTimeLimit=0
PartitionName=short Nodes=node-[0-{last}] MaxTime=5 MaxNodes=1
"""


class SlurmLab:
    """`run` and `start` give commands to a shell's place on node-0; `config` is its slurm.conf.

    Everything lives in the namespaces of a lab and in `folder`, and goes with them.
    """

    def __init__(
        self, lab: Lab, folder: Path, cli: Any, *, cgroups: bool = False, more: str = ""
    ) -> None:
        self.lab = lab
        self.folder = folder
        self.config = folder / "slurm.conf"
        self.cli = cli
        """Of the test that uses it now."""
        self._daemons_environment = dict(cli.environment())
        self._cgroups = cgroups
        self._more = more
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def nodes(self) -> list[str]:
        return self.lab.nodes

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.config)}

    # Up and down.

    def up(self) -> None:
        self._write()
        munge = [f"--{name}={self.folder}/munge.{name}" for name in ("socket", "pid-file")]
        munge += [f"--key-file={self.folder}/munge.key", f"--seed-file={self.folder}/munge.seed"]
        munge += [f"--log-file={self.folder}/munge.log"]
        self._daemon("node-0", "munged", "--foreground", "--force", *munge)
        self._until(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._daemon("node-0", "slurmctld", "-D", "-f", str(self.config))
        for node in self.nodes:
            self._daemon(node, "slurmd", "-D", "-N", node, "-f", str(self.config))
        self._until(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), "Slurm")

    def down(self) -> None:
        """Daemons first, so that none of them starts anything while the lab goes."""
        for daemon in self._daemons:
            daemon.terminate()
        for daemon in self._daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(0.5)
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait(UP_S)

    def _write(self) -> None:
        (self.folder / "state").mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        kinds = ("cgroup", "cgroup", "CR_Core_Memory") if self._cgroups else ()
        proctrack, task, select = kinds or ("linuxproc", "none", "CR_Core")
        text = _SLURM_CONF.format(
            folder=self.folder,
            last=len(self.nodes) - 1,
            gpus=GPUS,
            proctrack=proctrack,
            task=task,
            select=select,
        )
        self.config.write_text(text + self._more.format(folder=self.folder))
        limits = "ConstrainRAMSpace=yes\nConstrainSwapSpace=no\n" if self._cgroups else ""
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\n{limits}")
        for number in range(GPUS):  # what the driver of NVIDIA would have made
            os.mknod(self.folder / f"gpu{number}", 0o600 | 0o020000, os.makedev(195, number))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")

    def _daemon(self, node: str, *words: str) -> None:
        with (self.folder / f"{words[0]}-{node}.out").open("wb") as out:
            daemon = subprocess.Popen(
                self.lab.on(node, *words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**self._daemons_environment, **self.environment},
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def _until(self, true: Any, what: str) -> None:
        deadline = time.monotonic() + UP_S
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} is not up after {UP_S} s\n{self.logs()}")
            time.sleep(0.05)

    def logs(self) -> str:
        paths = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    # Using it.

    def on(self, *words: str, node: str = "node-0") -> list[str]:
        return self.lab.on(node, *words)

    def start(
        self, words: Sequence[str], env: Mapping[str, str] | None = None, node: str = "node-0"
    ) -> Any:
        """Start a command on that node, as `cli.start_words` does."""
        own = {**self.environment, **(env or {})}
        return self.cli.start_words(self.on(*words, node=node), env=own)

    def run(
        self,
        words: Sequence[str],
        env: Mapping[str, str] | None = None,
        timeout: float = CALL_S,
    ) -> Any:
        """The same, to its end."""
        return self.start(words, env).wait(timeout)

    def slurm(self, *words: str) -> str:
        """What a command of Slurm prints, such as `squeue`."""
        done = subprocess.run(
            self.on(*words),
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
            env={**self.cli.environment(), **self.environment},
        )
        return done.stdout

    def states(self) -> dict[str, str]:
        """State by node: idle, mixed, down*, …"""
        lines = self.slurm("sinfo", "-hN", "-p", "train", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def jobs(self) -> list[str]:
        """A line for each job that is not over."""
        return self.slurm("squeue", "-h", "-o", "%i %j %T %r").splitlines()

    def cut(self, node: str) -> None:
        self.lab.cut(node)

    def processes(self, node: str) -> dict[int, str]:
        """Command line by pid of all but the daemons of Slurm."""
        found = {}
        for pid in self.lab.pids(node):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                line = b" ".join(words).decode("utf-8", "replace").strip()
                if line and not Path(f"/proc/{pid}/exe").readlink().name.startswith(_DAEMONS):
                    found[pid] = line
        return found

    def idle(self) -> bool:
        """No job, and no process of one on any node."""
        return not self.jobs() and not any(self.processes(node) for node in self.nodes)

    def as_new(self) -> bool:
        """Whether another test may have it, once jobs had a moment to go."""
        deadline = time.monotonic() + SETTLE_S
        while not (self.idle() and self.states() == dict.fromkeys(self.nodes, "idle")):
            if self.lab.spec.faults or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return not self.lab.spec.faults

    def outlive_tests(self) -> None:
        """Nothing of the first test's is in the daemons' environment, by which it finds its own."""
        self._daemons_environment.pop("WIRESPEED_HOME")
        self._daemons_environment |= {"HOME": str(self.folder), "TMPDIR": str(self.folder)}


def made(
    cli: Any, folder: Path, *, kind: type[SlurmLab] = SlurmLab, **kinds: Any
) -> Iterator[SlurmLab]:
    _need()
    with Lab(LabSpec(4, f"sl{os.getpid()}-{next(_numbers)}")) as lab:
        slurm = kind(lab, folder, cli, **kinds)
        try:
            slurm.up()
            yield slurm
        finally:
            cli.end_all()
            slurm.down()


def _need() -> None:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"Requires: root, Slurm and munge (missing: {missing})")


class Clusters:
    """One `SlurmLab` after the other; the same again for as long as it is as new."""

    def __init__(self, folders: Callable[[str], Path]) -> None:
        self._folders = folders
        self._up: SlurmLab | None = None

    def take(self, cli: Any) -> SlurmLab:
        if self._up is None:
            lab = Lab(LabSpec(4, f"sl{os.getpid()}-{next(_numbers)}"))
            lab.up()
            self._up = SlurmLab(lab, self._folders("slurm"), cli)
            self._up.outlive_tests()
            self._up.up()
        self._up.cli = cli
        return self._up

    def end(self) -> None:
        if self._up is not None:
            gone, self._up = self._up, None
            gone.down()
            gone.lab.down()


@pytest.fixture(scope="session")
def slurm_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    clusters = Clusters(tmp_path_factory.mktemp)
    yield clusters
    clusters.end()


@pytest.fixture
def slurm_lab(cli: Any, slurm_clusters: Clusters) -> Iterator[SlurmLab]:
    """Four nodes, node-0 … node-3, with 16 (pretended) cores and 8 (pretended) GPUs each."""
    _need()
    whole = False
    try:
        lab = slurm_clusters.take(cli)
        yield lab
        whole = lab.as_new()
    finally:
        if not whole:
            cli.end_all()
            slurm_clusters.end()


@pytest.fixture
def slurm_memory_lab(cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    """The same, with processes held in cgroups, which limit their memory."""
    yield from made(cli, tmp_path_factory.mktemp("slurm"), cgroups=True)
