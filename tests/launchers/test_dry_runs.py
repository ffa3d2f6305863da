"""What each engine would run, as golden files; the engines' own tests have more of them."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.launchers.base import SCRATCH, Host, Job, Piece, Prepared, as_sh
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
