"""Ranks on any nodes that ssh reaches: one ssh a node, and torchrun on the far side."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine, EngineOption, Job, Prepared
from wirespeed.launchers.node import torchrun
from wirespeed.launchers.node.ssh import SshAsking, check_host, ssh_words


class _Ssh:
    name = "ssh"
    summary = "nodes that ssh reaches, with torchrun on each"
    options = (
        EngineOption("config", "ssh's configuration file, as `ssh -F`"),
        *torchrun.OPTIONS,
    )

    def prepare(self, job: Job) -> Prepared:
        _check(job)
        pythons = [job.python] if job.python else [sys.executable, "python3"]
        asking = SshAsking(job.options.get("config", ""), pythons, job.startup_s)
        good, findings = asking.usable(replace(job, interface=""))
        return torchrun.prepared(SshPrepared(job=job), asking, findings, good)


class SshPrepared(torchrun.NodesPrepared):
    def enter(self, host: str, far: Sequence[str]) -> Sequence[str]:
        return ssh_words(self.job.options.get("config", ""), host, far)


def _check(job: Job) -> None:
    """UsageError for what ssh cannot be meant for."""
    if not job.hosts:
        raise UsageError(
            "--on ssh needs the names of the nodes",
            expected="--hosts A,B or --hostfile FILE",
            next="wirespeed launch --on ssh --hosts node-0,node-1 -- hostname",
        )
    names = [host.name for host in job.hosts]
    for name in names:
        check_host(name)
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice", expected=f"once, with slots: {name}:2")
    torchrun.check_options(job)
    config = job.options.get("config")
    if config and not Path(config).is_file():
        raise UsageError(f"--with config={config}: no such file", expected="as for ssh -F")


ENGINE: Engine = _Ssh()
