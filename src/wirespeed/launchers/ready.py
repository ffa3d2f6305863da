"""A job made ready for its engine: its token, and what every rank's wrapper must know."""

import secrets
from dataclasses import replace

from wirespeed.launchers.base import Job
from wirespeed.launchers.frames import VARIABLE
from wirespeed.launchers.rank_wrapper import DIRECTORY, GRACE

__all__ = ["made_ready"]

_WRITTEN = "written-down"


def made_ready(job: Job, *, framed: bool = True) -> Job:
    """With a fresh token and the wrappers' variables; not `framed`: to be run by hand."""
    if not framed:
        environment = {**job.environment, DIRECTORY: job.directory}
        return replace(job, token=_WRITTEN, environment=environment)
    environment = {
        **job.environment,
        DIRECTORY: job.directory,
        GRACE: f"{job.grace_s:g}",
        VARIABLE: secrets.token_hex(6),
    }
    return replace(job, token=secrets.token_hex(16), environment=environment)
