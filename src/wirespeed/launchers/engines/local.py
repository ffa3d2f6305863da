"""Ranks on this machine, without any other launcher."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine, EngineOption, Job, Piece, Prepared
from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.records import Choice

__all__ = ["ENGINE"]


class _Local:
    name = "local"
    summary = "processes of this machine"
    options: tuple[EngineOption, ...] = ()

    def prepare(self, job: Job) -> Prepared:
        if job.hosts or (job.nodes or 1) > 1:
            raise UsageError(
                "--on local knows this machine only",
                expected="--ranks N, or --ranks-per-node N",
                next="wirespeed launch --on ssh --hosts node-0,node-1 -- …",
            )
        port = _free_port()
        environment = {**job.environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        choice = Choice("MASTER_PORT", str(port), "a port that is free at this moment")
        return Prepared(job=replace(job, environment=environment), choices=(choice,))

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        words = tuple(wrapped(job.python or sys.executable, job.command))
        return [
            Piece(
                name=f"rank-{rank}",
                command=words,
                environment={**job.environment, **_places(rank, job.size)},
            )
            for rank in range(job.size)
        ]


def _places(rank: int, size: int) -> dict[str, str]:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {name: str(n) for name, n in {**numbers, "NODE_RANK": 0, "GROUP_RANK": 0}.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


ENGINE: Engine = _Local()
