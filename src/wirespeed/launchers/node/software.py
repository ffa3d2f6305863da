"""What is wrong with the software of a node that ranks were to be started on, and the cure."""

from collections.abc import Sequence
from typing import Protocol

from wirespeed import __version__
from wirespeed.launchers.node.probe import Answer, Facts
from wirespeed.records import Finding, Subject

__all__ = [
    "Asking",
    "differing",
    "interface_missing",
    "last_words",
    "no_python",
    "no_torch",
    "node_finding",
    "software_trouble",
]

_EVIDENCE = 6
_NO_COMMAND = 127


class Asking(Protocol):
    """How nodes were asked: what findings need to name the next command."""

    pythons: list[str]
    within_s: float
    other_python: str
    """What to do where the Python that was asked for is not the right one."""

    def by_hand(self, host: str, *words: str) -> str:
        """The command that a person types, to run that on the node."""
        ...

    def install(self, host: str, python: str, package: str) -> str:
        """What brings a package to that Python."""
        ...


def software_trouble(host: str, facts: Facts, asking: Asking) -> Finding | None:
    """Why its software cannot run ranks; None: it can."""
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
    install = asking.install(host, facts.executable, "torch")
    return node_finding(
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
    return node_finding(
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
        next="wirespeed check on the same nodes compares all software",
    )


def no_python(host: str, answer: Answer, asking: Asking) -> Finding:
    missing = answer.code == _NO_COMMAND
    wanted = asking.pythons[0]
    return node_finding(
        "LAUNCH-004",
        host,
        f"{host} has no Python at {wanted}" if missing else f"{wanted} does not work on {host}",
        saw=last_words(answer) or f"exit code {answer.code} without a word",
        expected=f"{wanted}, a Python of 3.11 or later",
        fix=asking.other_python,
        next=asking.by_hand(host, "command -v python3"),
        said=answer.said,
    )


def _old_python(host: str, facts: Facts) -> Finding:
    return node_finding(
        "LAUNCH-004",
        host,
        f"{host} has Python {facts.python}",
        saw=f"{facts.executable} is {facts.python}",
        expected="3.11 or later",
        fix="install a newer Python there, or give --python the path of one",
        next="the same command with --python PATH",
    )


def _no_wirespeed(host: str, facts: Facts, asking: Asking) -> Finding:
    install = asking.install(host, facts.executable, f"wirespeed=={__version__}")
    return node_finding(
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
    return node_finding(
        "LAUNCH-004",
        host,
        f"{host} has no Python at {asking.pythons[0]}",
        saw=f"it is not there, and {facts.executable} (Python {facts.python}) {has}",
        expected=f"the path of this machine's Python, or a python3 with wirespeed {__version__}",
        fix=asking.other_python,
        next="the same command with --python PATH",
    )


def _other_version(host: str, facts: Facts, asking: Asking) -> Finding:
    install = asking.install(host, facts.executable, f"wirespeed=={__version__}")
    return node_finding(
        "LAUNCH-006",
        host,
        f"{host} has wirespeed {facts.wirespeed}, not {__version__}",
        saw=f"wirespeed {facts.wirespeed} in {facts.executable}",
        expected=f"{__version__}, as on this machine",
        fix=install,
        next=asking.by_hand(host, facts.executable, "-m", "wirespeed", "--version"),
    )


def node_finding(
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
    """Ranks cannot be started on that node."""
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


def last_words(answer: Answer, words: str = "") -> str:
    """The last line that holds `words`, else the last; a program's verdict comes at the end."""
    chosen = [line for line in answer.said if words in line] or list(answer.said)
    return chosen[-1].strip() if chosen else ""
