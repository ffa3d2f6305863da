"""How the secret of a job comes to its ranks, and does not go any further."""

import os
from typing import Any

import pytest

from wirespeed.launchers.base import Job
from wirespeed.launchers.request import made_ready
from wirespeed.node.identity import detect
from wirespeed.node.secret import VARIABLE, job_secret, new_secret
from wirespeed.plan import Plan
from wirespeed.session.joined_world import carry_rank_in_environment
from wirespeed.session.remote import ordered

PLAN = Plan(command="check", steps=())


def test_each_world_of_an_engine_has_a_secret_of_its_own() -> None:
    job = made_ready(Job(command=(), ranks=2, environment={VARIABLE: new_secret()}))
    worlds = [ordered(job, PLAN, "gloo", "python") for _ in range(2)]
    secrets = {world.environment[VARIABLE] for world in worlds}
    assert len(secrets | {job.environment[VARIABLE]}) == 3
    assert all(job_secret(dict(world.environment)) for world in worlds)
    assert not any(secret in word for secret in secrets for one in worlds for word in one.command)


def test_a_job_that_is_written_down_has_none() -> None:
    job = made_ready(Job(command=(), ranks=2), framed=False)
    assert VARIABLE not in ordered(job, PLAN, "gloo", "python").environment


def test_a_rank_that_starts_anew_takes_it_along_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", VARIABLE: new_secret()}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    seen: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: seen.append(given))
    identity = detect({k: v for k, v in environ.items() if k.startswith("OMPI")})
    assert identity is not None
    secret = job_secret(os.environ)
    assert VARIABLE not in os.environ
    carry_rank_in_environment(identity, secret)
    ((_, words, carried),) = seen
    assert carried[VARIABLE] == environ[VARIABLE]
    assert environ[VARIABLE] not in " ".join(words)
    assert VARIABLE not in os.environ
