"""What is wrong with a node that ssh was to start ranks on, in ssh's own words and with the cure."""

import re
import shlex
from collections.abc import Sequence

from wirespeed.launchers.node.probe import Answer
from wirespeed.launchers.node.software import (
    last_words,
    no_python,
    node_finding,
    software_trouble,
)
from wirespeed.records import Finding

__all__ = ["Asking", "trouble_of"]

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


class Asking:
    """How nodes were asked (`node.software.Asking`)."""

    other_python = "install the same environment there, or give --python a path that every node has"

    def __init__(self, config: str, pythons: Sequence[str], within_s: float) -> None:
        self.pythons = list(pythons)
        self.within_s = within_s
        self._config = ["-F", config] if config else []

    def by_hand(self, host: str, *words: str) -> str:
        far = [shlex.join(words)] if words else []
        return shlex.join(["ssh", *self._config, host, *far])

    def install(self, host: str, python: str, package: str) -> str:
        return self.by_hand(host, python, "-m", "pip", "install", package)

    def copy_key(self, host: str) -> str:
        return shlex.join(["ssh-copy-id", *self._config, host])


def trouble_of(host: str, answer: Answer, asking: Asking) -> Finding | None:
    """Why ranks cannot be started on that node; None: they can."""
    if answer.facts is not None:
        return software_trouble(host, answer.facts, asking)
    if answer.code is None:
        return _silent(host, answer, asking)
    return (_connection if answer.code == _SSH_FAILED else no_python)(host, answer, asking)


def _silent(host: str, answer: Answer, asking: Asking) -> Finding:
    return node_finding(
        "LAUNCH-001",
        host,
        f"{host} does not answer",
        saw=f"no answer within {asking.within_s:g} s",
        expected="a login and a Python that answers",
        fix="look whether the login hangs: a start-up file that waits, a home folder on a dead "
        "file server",
        next=asking.by_hand(host, "true"),
        said=answer.said,
    )


def _connection(host: str, answer: Answer, asking: Asking) -> Finding:
    text = "\n".join(answer.said)
    if _CHANGED in text:
        return _changed_key(host, answer, asking)
    if _UNTRUSTED in text:
        return _unknown_key(host, answer, asking)
    if any(words in text for words in _REFUSED):
        return _refused(host, answer, asking)
    return node_finding(
        "LAUNCH-001",
        host,
        f"{host} cannot be reached",
        saw=last_words(answer),
        expected="an ssh server that answers",
        fix=next((cure for words, cure in _CURES if words in text), "see what ssh says"),
        next=asking.by_hand(host, "true").replace("ssh ", "ssh -v ", 1),
        said=answer.said,
    )


def _refused(host: str, answer: Answer, asking: Asking) -> Finding:
    return node_finding(
        "LAUNCH-002",
        host,
        f"{host} refuses the login",
        saw=last_words(answer),
        expected="a key of ~/.ssh, of the agent or of ssh's configuration that it accepts",
        because="ranks are started without anybody who could type a password",
        fix=asking.copy_key(host),
        next=asking.by_hand(host, "true"),
        said=answer.said,
    )


def _changed_key(host: str, answer: Answer, asking: Asking) -> Finding:
    given = re.search(r"^\s*(ssh-keygen .*-R .*)$", "\n".join(answer.said), re.MULTILINE)
    remove = given[1] if given else shlex.join(["ssh-keygen", "-R", host])
    return node_finding(
        "LAUNCH-003",
        host,
        f"the host key of {host} has changed",
        saw=last_words(answer, " has changed"),
        expected="the key that this machine knows",
        because="it was installed anew, its name now belongs to another machine, or somebody "
        "stands in between",
        fix=f"ask who runs {host}; if the new key is right: {remove}",
        next=asking.by_hand(host, "true"),
        said=[line for line in answer.said if "@@@" not in line],
    )


def _unknown_key(host: str, answer: Answer, asking: Asking) -> Finding:
    return node_finding(
        "LAUNCH-003",
        host,
        f"the host key of {host} is not known here",
        saw=last_words(answer, "host key is known"),
        expected="a key in known_hosts; none is ever accepted unseen",
        fix=f"{asking.by_hand(host, 'true')}, once by hand, and compare the fingerprint with "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there",
        next=shlex.join(["ssh-keyscan", host.rpartition("@")[2]])
        + " prints the keys, for known_hosts",
        said=answer.said,
    )
