"""Ranks on any nodes that ssh reaches: one ssh a node, and torchrun on the far side."""

import sys
from collections.abc import Sequence
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine, EngineOption, Job, Piece, Prepared
from wirespeed.launchers.node import torchrun
from wirespeed.launchers.node.probe import ask_all
from wirespeed.launchers.node.words import probe_words
from wirespeed.launchers.ssh.findings import Asking, trouble_of
from wirespeed.launchers.ssh.words import check_host, ssh_words

__all__ = ["ENGINE"]

_ASK_S = 15.0


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
        within_s = min(job.startup_s, _ASK_S)
        config = job.options.get("config", "")
        asking = Asking(config, pythons, within_s)
        words = probe_words(pythons)
        commands = {host.name: ssh_words(config, host.name, words) for host in job.hosts}
        answers = ask_all(commands, job.directory, within_s)
        findings, good = [], {}
        for host, answer in answers.items():
            trouble = trouble_of(host, answer, asking)
            if trouble is not None:
                findings.append(trouble)
            elif answer.facts is not None:
                good[host] = answer.facts
        return torchrun.prepared(job, asking, findings, good)

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        config = job.options.get("config", "")

        def enter(host: str, far: Sequence[str]) -> Sequence[str]:
            return ssh_words(config, host, far)

        return torchrun.pieces(job, enter)


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
