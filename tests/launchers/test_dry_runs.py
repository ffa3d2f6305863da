"""What each engine would run, as golden files; the engines' own tests have more of them."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.launchers.base import SCRATCH, Host, Job, Piece, Prepared, as_sh
from wirespeed.launchers.deepspeed import command_line
from wirespeed.launchers.engines import metaflow, ray
from wirespeed.launchers.engines.local import LocalPrepared
from wirespeed.launchers.engines.ray import RayPrepared
from wirespeed.launchers.engines.slurm import SlurmPrepared

GOLDEN = Path(__file__).parent.parent / "golden"
JOB = Job(
    command=("python", "train.py", "--name", "a b; $(id) 'c'"),
    ranks=4,
    nodes=2,
    ranks_per_node=2,
    environment={"NCCL_DEBUG": "INFO", "WIRESPEED_DIRECTORY": "/home/me/run"},
    directory="/home/me/run",
    python="/opt/venv/bin/python",
    token="written-down",
    written=True,
    options={},
)
HOSTS = (Host("node-0", 2), Host("node-1", 2))
JOBS = {
    "local": JOB,
    "ray": JOB,
    "slurm": replace(JOB, hosts=HOSTS),
    "slurm-batch": replace(JOB, options={"batch": "yes", "partition": "train", "gres": "gpu:8"}),
}
PREPARED: dict[str, type[Prepared]] = {
    "local": LocalPrepared,
    "ray": RayPrepared,
    "slurm": SlurmPrepared,
}


@pytest.mark.parametrize("name", JOBS)
def test_what_would_run(name: str) -> None:
    engine = name.partition("-")[0]
    pieces = [_anywhere(piece) for piece in PREPARED[engine](job=JOBS[name]).pieces(SCRATCH)]
    text = pieces[0].script or as_sh(pieces, f"wirespeed launch --on {engine}: 4 ranks")
    path = GOLDEN / f"launch.{name}.sh"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def _anywhere(piece: Piece) -> Piece:
    """With another word for the Python that runs here."""
    words = tuple("PYTHON" if word == sys.executable else word for word in piece.command)
    return replace(piece, command=words)


FAR = {
    "local": ("--ranks", "2"),
    "ssh": ("--hosts", "far-a,far-b:2"),
    "mpi": ("--hosts", "far-a,far-b:2"),
    "mpi-here": ("--ranks", "2"),
    "deepspeed": ("--hosts", "far-a,far-b"),
    "deepspeed-openmpi": ("--hosts", "far-a,far-b", "--with", "launcher=openmpi"),
    "slurm": ("--nodes", "2"),
    "slurm-hosts": ("--hosts", "far-a,far-b", "--with", "partition=train"),
    "slurm-jobid": ("--with", "jobid=123"),
    "slurm-batch": ("--nodes", "2", "--with", "batch"),
    "ray": ("--nodes", "2", "--with", "address=head:6379"),
    "metaflow": ("--nodes", "2"),
    "metaflow-kubernetes": ("--nodes", "2", "--with", "compute=kubernetes"),
    "k8s": ("--cluster", "mine.yaml"),
    "k8s-pods": ("--cluster", "mine.yaml", "--hosts", "mine-0,mine-1"),
}
"""Options of each engine, and of the ways in which it asks something of the far side."""


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No launcher's package can be imported, and no program stands beside Python."""
    for module in (ray, metaflow, command_line):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))


@pytest.mark.parametrize("verb", ["launch", "check"])
@pytest.mark.parametrize("case", FAR)
@pytest.mark.usefixtures("nothing_installed")
def test_a_dry_run_needs_no_program_and_no_far_side(
    cli: Any, tmp_path: Path, case: str, verb: str
) -> None:
    assert cli.here("cluster", "new", "mine", "--nodes", "2", "-o", "mine.yaml").code == 0
    words = ("--on", case.partition("-")[0], *FAR[case], "--dry-run")
    command = ("--", "train") if verb == "launch" else ()
    done = cli.here(verb, *words, *command, env={"PATH": str(tmp_path)})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("#!/bin/sh\n")
    assert case == "local" or "here: " in done.out
    assert cli.folders() == []


def test_what_is_decided_there_has_a_placeholder(cli: Any, tmp_path: Path) -> None:
    """Where ssh is there, and the nodes are not."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host: No route to host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    words = ("launch", "--on", "ssh", "--hosts", "far-a,far-b", "--dry-run", "--", "train")
    done = cli.here(*words, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.code == 0
    assert "--master-addr=<address of far-a>" in done.out
    assert "--master-port=<a free port of far-a>" in done.out
    assert [line for line in done.out.splitlines() if line.startswith("# not known here: far-b")]


def test_a_controller_of_slurm_that_does_not_answer(cli: Any, tmp_path: Path) -> None:
    for name in ("srun", "squeue", "scancel", "sinfo"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
        program.chmod(0o755)
    words = ("launch", "--on", "slurm", "--hosts", "n1,n2", "--with", "partition=x")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert cli.here(*words, "--", "train", env=path).code == 3
    done = cli.here(*words, "--dry-run", "--", "train", env=path)
    assert (done.code, "--nodelist=n1,n2" in done.out) == (0, True)
    assert "# not checked here: Slurm's controller" in done.out
