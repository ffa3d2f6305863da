"""What is wrong with a node that ssh was to start ranks on, in ssh's own words and with the cure."""

import re
import shlex
from collections.abc import Sequence

from wirespeed import __version__
from wirespeed.launchers.ssh.probe import Answer, Facts
from wirespeed.records import Finding, Subject

__all__ = [
    "Asking",
    "differing",
    "interface_missing",
    "no_torch",
    "trouble_of",
]

_EVIDENCE = 6
_REFUSED = ("Permission denied", "Too many authentication failures", "No supported authentication")
_CHANGED = "IDENTIFICATION HAS CHANGED"
_UNTRUSTED = "Host key verification failed"
_SSH_FAILED = 255
_NO_COMMAND = 127
_CURES = (
    ("Could not resolve", "correct the name, or give it a HostName in ~/.ssh/config"),
    ("refused", "start the ssh server there: systemctl start ssh"),
    ("timed out", "switch the node on; open port 22 to this machine"),
    ("No route", "bring the node's network up"),
    ("unreachable", "bring the node's network up"),
)


class Asking:
    """How nodes were asked: what findings need to name the next command."""

    def __init__(self, config: str, pythons: Sequence[str], within_s: float) -> None:
        self.pythons = list(pythons)
        self.within_s = within_s
        self._config = ["-F", config] if config else []

    def ssh(self, host: str, *words: str) -> str:
        """The command that a person types."""
        far = [shlex.join(words)] if words else []
        return shlex.join(["ssh", *self._config, host, *far])

    def copy_key(self, host: str) -> str:
        return shlex.join(["ssh-copy-id", *self._config, host])


def trouble_of(host: str, answer: Answer, asking: Asking) -> Finding | None:
    """Why ranks cannot be started on that node; None: they can."""
    facts = answer.facts
    if facts is None:
        if answer.code is None:
            return _silent(host, answer, asking)
        return (_connection if answer.code == _SSH_FAILED else _no_python)(host, answer, asking)
    if facts.old:
        return _old_python(host, facts)
    if facts.asked != asking.pythons[0] and facts.wirespeed != __version__:
        return _other_python(host, facts, asking)
    if not facts.wirespeed:
        return _no_wirespeed(host, facts, asking)
    if facts.wirespeed != __version__:
        return _other_version(host, facts, asking)
    return None


def no_torch(host: str, facts: Facts, asking: Asking) -> Finding:
    """Other nodes have it."""
    install = asking.ssh(host, facts.executable, "-m", "pip", "install", "torch")
    return _finding(
        "LAUNCH-005",
        host,
        f"{host} has no torch",
        saw=f"{facts.executable} (Python {facts.python}) finds no torch",
        expected="torch on every node, since torchrun starts the ranks",
        fix=install,
        next="for a command that needs no torch: --with torchrun=no",
    )


def interface_missing(host: str, facts: Facts, name: str) -> Finding:
    names = ", ".join(f"{found} ({address})" for found, address, _ in facts.interfaces)
    return _finding(
        "LAUNCH-008",
        host,
        f"{host} has no interface {name} with an IPv4 address",
        saw=names or "no interface with an IPv4 address",
        expected=f"{name}, as --interface says",
        fix="give --interface one that every node has; without it each node's is chosen",
        next="the same command without --interface",
    )


def differing(facts: dict[str, Facts]) -> list[Finding]:
    """Warnings: nodes can be used, but their Python or torch is not the others'."""
    found = []
    for what, values in (
        ("Python", {host: ".".join(one.python.split(".")[:2]) for host, one in facts.items()}),
        ("torch", {host: one.torch for host, one in facts.items() if one.torch}),
    ):
        told = list(values.values())
        usual = max(told, key=told.count, default="")
        for host, value in values.items():
            if value != usual:
                found.append(_differs(host, what, value, usual))
    return found


def _differs(host: str, what: str, value: str, usual: str) -> Finding:
    return Finding(
        id="LAUNCH-006",
        status="warn",
        title=f"{host} has {what} {value}, most nodes {usual}",
        subject=Subject("node", host),
        saw=f"{what} {value}",
        expected=f"{what} {usual}, as on most nodes",
        costs="collectives of different versions of torch may hang or refuse each other",
        fix=f"install {what} {usual} on {host}",
        next="wirespeed check --on ssh with the same hosts compares all software",
    )


# Connections.


def _silent(host: str, answer: Answer, asking: Asking) -> Finding:
    return _finding(
        "LAUNCH-001",
        host,
        f"{host} does not answer",
        saw=f"no answer within {asking.within_s:g} s",
        expected="a login and a Python that answers",
        fix="look whether the login hangs: a start-up file that waits, a home folder on a dead "
        "file server",
        next=asking.ssh(host, "true"),
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
    return _finding(
        "LAUNCH-001",
        host,
        f"{host} cannot be reached",
        saw=_last(answer),
        expected="an ssh server that answers",
        fix=next((cure for words, cure in _CURES if words in text), "see what ssh says"),
        next=asking.ssh(host, "true").replace("ssh ", "ssh -v ", 1),
        said=answer.said,
    )


def _refused(host: str, answer: Answer, asking: Asking) -> Finding:
    return _finding(
        "LAUNCH-002",
        host,
        f"{host} refuses the login",
        saw=_last(answer),
        expected="a key of ~/.ssh, of the agent or of ssh's configuration that it accepts",
        because="ranks are started without anybody who could type a password",
        fix=asking.copy_key(host),
        next=asking.ssh(host, "true"),
        said=answer.said,
    )


def _changed_key(host: str, answer: Answer, asking: Asking) -> Finding:
    given = re.search(r"^\s*(ssh-keygen .*-R .*)$", "\n".join(answer.said), re.MULTILINE)
    remove = given[1] if given else shlex.join(["ssh-keygen", "-R", host])
    return _finding(
        "LAUNCH-003",
        host,
        f"the host key of {host} has changed",
        saw=_last(answer, " has changed"),
        expected="the key that this machine knows",
        because="it was installed anew, its name now belongs to another machine, or somebody "
        "stands in between",
        fix=f"ask who runs {host}; if the new key is right: {remove}",
        next=asking.ssh(host, "true"),
        said=[line for line in answer.said if "@@@" not in line],
    )


def _unknown_key(host: str, answer: Answer, asking: Asking) -> Finding:
    return _finding(
        "LAUNCH-003",
        host,
        f"the host key of {host} is not known here",
        saw=_last(answer, "host key is known"),
        expected="a key in known_hosts; none is ever accepted unseen",
        fix=f"{asking.ssh(host, 'true')}, once by hand, and compare the fingerprint with "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there",
        next=shlex.join(["ssh-keyscan", host.rpartition("@")[2]])
        + " prints the keys, for known_hosts",
        said=answer.said,
    )


# Software.


def _no_python(host: str, answer: Answer, asking: Asking) -> Finding:
    missing = answer.code == _NO_COMMAND
    wanted = asking.pythons[0]
    return _finding(
        "LAUNCH-004",
        host,
        f"{host} has no Python at {wanted}" if missing else f"{wanted} does not work on {host}",
        saw=_last(answer) or f"exit code {answer.code} without a word",
        expected=f"{wanted}, a Python of 3.11 or later",
        fix="install the same environment there, or give --python a path that every node has",
        next=asking.ssh(host, "command -v python3"),
        said=answer.said,
    )


def _old_python(host: str, facts: Facts) -> Finding:
    return _finding(
        "LAUNCH-004",
        host,
        f"{host} has Python {facts.python}",
        saw=f"{facts.executable} is {facts.python}",
        expected="3.11 or later",
        fix="install a newer Python there, or give --python the path of one",
        next="the same command with --python PATH",
    )


def _no_wirespeed(host: str, facts: Facts, asking: Asking) -> Finding:
    install = asking.ssh(
        host, facts.executable, "-m", "pip", "install", f"wirespeed=={__version__}"
    )
    return _finding(
        "LAUNCH-005",
        host,
        f"{host} has no wirespeed",
        saw=f"{facts.executable} (Python {facts.python}): {facts.trouble}",
        expected=f"wirespeed {__version__} in the Python of every node",
        fix=install,
        next="or --python PATH, of one that has it on every node",
    )


def _other_python(host: str, facts: Facts, asking: Asking) -> Finding:
    has = f"has wirespeed {facts.wirespeed}" if facts.wirespeed else "has no wirespeed"
    return _finding(
        "LAUNCH-004",
        host,
        f"{host} has no Python at {asking.pythons[0]}",
        saw=f"it is not there, and {facts.executable} (Python {facts.python}) {has}",
        expected=f"the path of this machine's Python, or a python3 with wirespeed {__version__}",
        fix="install the same environment there, or give --python a path that every node has",
        next="the same command with --python PATH",
    )


def _other_version(host: str, facts: Facts, asking: Asking) -> Finding:
    install = asking.ssh(
        host, facts.executable, "-m", "pip", "install", f"wirespeed=={__version__}"
    )
    return _finding(
        "LAUNCH-006",
        host,
        f"{host} has wirespeed {facts.wirespeed}, not {__version__}",
        saw=f"wirespeed {facts.wirespeed} in {facts.executable}",
        expected=f"{__version__}, as on this machine",
        fix=install,
        next=asking.ssh(host, facts.executable, "-m", "wirespeed", "--version"),
    )


def _finding(
    id: str,
    host: str,
    title: str,
    *,
    saw: str,
    expected: str,
    fix: str,
    next: str,
    because: str = "",
    said: Sequence[str] = (),
) -> Finding:
    return Finding(
        id=id,
        status="fail",
        title=title,
        subject=Subject("node", host),
        saw=saw,
        expected=expected,
        because=because,
        costs="no rank runs there",
        fix=fix,
        next=next,
        evidence=tuple(said)[-_EVIDENCE:],
    )


def _last(answer: Answer, words: str = "") -> str:
    """The last line that holds `words`, else the last; ssh's verdict comes at the end."""
    chosen = [line for line in answer.said if words in line] or list(answer.said)
    return chosen[-1].strip() if chosen else ""
