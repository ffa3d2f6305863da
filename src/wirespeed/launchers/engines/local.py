"""Ranks on this machine, without any other launcher."""

import os
import sys
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import CommandProblem
from wirespeed.launchers.base import Engine, Job, Piece, Prepared
from wirespeed.launchers.rank_wrapper import rank_variables, wrapped
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice
from wirespeed.process import free_port
from wirespeed.process.lookup import find_problem


def _look(job: Job) -> Prepared:
    if job.hosts or (job.nodes or 1) > 1:
        raise make_error("local_only")
    port = free_port("127.0.0.1")
    environment = {**job.environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    choice = Choice("MASTER_PORT", str(port), "a port that is free at this moment")
    return LocalPrepared(job=replace(job, environment=environment), choices=(choice,))


class LocalPrepared(Prepared):
    def check_command(self) -> None:
        job = self.job
        path = job.environment.get("PATH", os.environ.get("PATH"))
        problem = find_problem(job.command[0], job.directory, path)
        if problem is not None:
            raise CommandProblem(
                problem.text(),
                problem.exit_code,
                expected="a program on PATH, or a path to one",
            )

    def pieces(self, scratch: Path) -> list[Piece]:
        job, size = self.job, self.job.size
        words = tuple(wrapped(job.python or sys.executable, job.command))
        return [
            Piece(
                name=f"rank-{rank}",
                command=words,
                environment={
                    **job.environment,
                    **rank_variables(rank=rank, size=size, local=rank, local_size=size, node=0),
                },
            )
            for rank in range(size)
        ]


ENGINE = Engine("local", _look)
