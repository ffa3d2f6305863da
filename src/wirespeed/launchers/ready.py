"""A job made ready for its engine: its token, and what every rank's wrapper must know."""

import secrets
from dataclasses import replace

from wirespeed.launchers.base import Job
from wirespeed.launchers.frames import VARIABLE
from wirespeed.launchers.rank_wrapper import DIRECTORY, GRACE

__all__ = ["INTERFACE", "made_ready"]

INTERFACE = "WIRESPEED_INTERFACE"
"""Tells our own sockets on the nodes which interface to listen on."""
_WRITTEN = "written-down"


def made_ready(job: Job, *, framed: bool = True) -> Job:
    """With a fresh token and the wrappers' variables; not `framed`: to be run by hand."""
    if not framed:
        environment = {**_interface(job.interface), **job.environment, DIRECTORY: job.directory}
        return replace(job, token=_WRITTEN, environment=environment, written=True)
    environment = {
        **_interface(job.interface),
        **job.environment,
        DIRECTORY: job.directory,
        GRACE: f"{job.grace_s:g}",
        VARIABLE: secrets.token_hex(6),
    }
    return replace(job, token=secrets.token_hex(16), environment=environment)


def _interface(name: str) -> dict[str, str]:
    """What makes ranks use that interface; a variable that the user has set is stronger."""
    if not name:
        return {}
    return {INTERFACE: name, "GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
