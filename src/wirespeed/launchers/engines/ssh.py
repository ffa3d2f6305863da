"""Ranks on any nodes that ssh reaches: one ssh a node, and torchrun on the far side.

Nodes are asked all at once; what is wrong is told in ssh's own words, with the cure.
"""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Engine, Job, Prepared
from wirespeed.launchers.node import probe, torchrun
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Finding

ASK_S = 15.0
"""For all nodes together."""
CONNECT_S = 7
"""For each address of a host: with two of them ssh still tells its own words before we give up."""
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_S}",
    # A connection that is dead is noticed after 15 to 20 s.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
)


def check_host(name: str) -> None:
    """UsageError for what can be no host of ssh; a name that starts with a dash would be an option."""
    odd = not name or name.startswith("-") or not name.isprintable() or any(map(str.isspace, name))
    if odd or "@-" in name:
        raise make_error("ssh_host", name=name)


def ssh_words(config: str, host: str, far: Sequence[str], port: str = "") -> tuple[str, ...]:
    """The system's ssh, with the user's configuration and agent, running `far` on that host.

    The far side's login shell sees `far` quoted as POSIX shells read it.
    """
    check_host(host)
    told = [word for option in _OPTIONS for word in ("-o", option)]
    own = [*(["-p", port] if port else []), *(["-F", config] if config else [])]
    return ("ssh", *own, "-T", *told, "--", host, f"exec {shlex.join(far)}")


_REFUSED = ("Permission denied", "Too many authentication failures", "No supported authentication")
_CHANGED = "IDENTIFICATION HAS CHANGED"
_UNTRUSTED = "Host key verification failed"
_SSH_FAILED = 255
_CURES = (
    ("Could not resolve", "correct the name, or give it a HostName in ~/.ssh/config"),
    ("refused", "start the ssh server there: systemctl start ssh"),
    ("timed out", "switch the node on; open port 22 to this machine"),
    ("No route", "bring the node's network up"),
    ("unreachable", "bring the node's network up"),
)


class SshAsking(probe.Asking):
    """How nodes are asked (`node.probe.Asking`): all at once, as far as ssh leads there."""

    other_python = "install the same environment there, or give --python a path that every node has"

    def __init__(self, config: str, pythons: Sequence[str], within_s: float = ASK_S) -> None:
        super().__init__(pythons, min(within_s, ASK_S))
        self.not_reached: dict[str, str] = {}
        """Of a job that is only written down: nodes of which nothing is known, and why."""
        self._path, self._config = config, ["-F", config] if config else []

    def usable(
        self, job: Job, port: str = "", here: Callable[[str], bool] = lambda host: False
    ) -> tuple[dict[str, probe.Facts], list[Finding]]:
        """What the job's hosts tell, and what is wrong with the others; `here`: asked without ssh.

        Of a job that is only written down, hosts that are not reached are in `not_reached`.
        """
        far = torchrun.probe_words(self.pythons)
        commands = {
            host.name: far if here(host.name) else ssh_words(self._path, host.name, far, port)
            for host in job.hosts
        }
        try:
            good, findings = self.ask(commands, job.directory, job.interface)
        except CannotMeasure as error:
            if not job.written:
                raise
            self.not_reached = dict.fromkeys(commands, error.saw)
            return {}, []
        if job.written:
            unreached = [one for one in findings if one.id in probe.NOT_REACHED]
            self.not_reached = {one.subject.name: one.title for one in unreached}
            findings = [one for one in findings if one not in unreached]
        return good, findings

    def notes(self, unknown: str) -> tuple[str, ...]:
        """Return a line of a dry run for each node that was not reached; `unknown`: what follows."""
        reasons = {
            host: why if why.startswith(host) else f"{host}: {why}"
            for host, why in self.not_reached.items()
        }
        return tuple(f"not known here: {why}; {unknown}" for why in reasons.values())

    def by_hand(self, host: str, *words: str) -> str:
        far = [shlex.join(words)] if words else []
        return shlex.join(["ssh", *self._config, host, *far])

    def install(self, host: str, python: str, package: str) -> str:
        return self.by_hand(host, python, "-m", "pip", "install", package)

    def not_entered(self, host: str, answer: probe.Answer) -> Finding:
        """In ssh's own words, with the cure."""
        text, by_hand = "\n".join(answer.said), self.by_hand(host, "true")
        if answer.code is None:
            return probe.node_finding(
                "ssh_silent", host, asking=self, next=by_hand, said=answer.said
            )
        if answer.code != _SSH_FAILED:
            return self.no_python(host, answer)
        entry, key, said, values = "connection", "", answer.said, {"next": by_hand}
        if _CHANGED in text:
            given = re.search(r"^\s*(ssh-keygen .*-R .*)$", text, re.MULTILINE)
            remove = given[1] if given else shlex.join(["ssh-keygen", "-R", host])
            entry, key, values["remove"] = "changed_key", " has changed", remove
            said = tuple(line for line in said if "@@@" not in line)
        elif _UNTRUSTED in text:
            entry, key, values["by_hand"] = "unknown_key", "host key is known", by_hand
            scan = shlex.join(["ssh-keyscan", host.rpartition("@")[2]])
            values["next"] = f"{scan} prints the keys, for known_hosts"
        elif any(words in text for words in _REFUSED):
            entry, values["fix"] = "refused", shlex.join(["ssh-copy-id", *self._config, host])
        else:
            values["fix"] = next(
                (cure for what, cure in _CURES if what in text), "see what ssh says"
            )
            values["next"] = by_hand.replace("ssh ", "ssh -v ", 1)
        return probe.node_finding(
            entry, host, saw=probe.last_words(answer, key), said=said, **values
        )


class SshPrepared(torchrun.NodesPrepared):
    def enter(self, host: str, far: Sequence[str]) -> Sequence[str]:
        return ssh_words(self.job.options.get("config", ""), host, far)


def _look(job: Job) -> Prepared:
    if not job.hosts:
        raise make_error("ssh_hosts")
    for host in job.hosts:
        check_host(host.name)
    torchrun.check_options(job)
    config = job.options.get("config", "")
    if config and not Path(config).is_file():
        raise UsageError(f"--with config={config}: no such file", expected="as for ssh -F")
    pythons = [job.python] if job.python else [sys.executable, "python3"]
    asking = SshAsking(config, pythons, job.startup_s)
    good, findings = asking.usable(replace(job, interface=""))
    unknown = {host: probe.UnknownFacts.of(host, pythons[0]) for host in asking.not_reached}
    notes = asking.notes("<…> stands for its address and port, and it gets 1 rank unless told")
    return torchrun.prepared(
        SshPrepared(job=job, notes=notes), asking, findings, {**good, **unknown}
    )


ENGINE = Engine("ssh", _look)
