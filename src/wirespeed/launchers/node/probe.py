"""Ask all nodes at once, through ssh or the like, what they are: `node.snapshot` runs there.

From that follows what is wrong with a node's software, with the cure, and how many ranks it gets.
"""

import json
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, ip_address
from pathlib import Path
from typing import IO, Any, get_origin, get_type_hints

from wirespeed import __version__
from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.node import snapshot as node_facts
from wirespeed.launchers.node.snapshot import MARK
from wirespeed.launchers.texts import make_error, make_finding
from wirespeed.model.records import Finding, Subject
from wirespeed.process.guard import signal_group

_LOOK_S = 0.02
_AT_ONCE = 128
_MOST_TEXT = 100_000
_MOST_GPUS = 1024
_CURES = {"ssh": "apt-get install openssh-client"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a node told (`node.snapshot`)."""

    python: str
    """Its version."""
    executable: str
    asked: str = ""
    """The word that it was started by."""
    old: bool = False
    """Too old for wirespeed; nothing else is known then."""
    wirespeed: str = ""
    """Its version; empty: not there, and `trouble` says why."""
    trouble: str = ""
    torch: str = ""
    gpus: int = 0
    directory: bool = True
    port: int = 0
    """Free there at that moment."""
    host: str = ""
    """As the node calls itself."""
    interfaces: tuple[tuple[str, str, str], ...] = ()
    """Name, IPv4 address and mask."""
    reached: str = ""
    """Address at which it was reached; behind a gateway not one of its own."""
    told: tuple[str, ...] = ()
    """Variables that are set there, of those that we would choose (`INTERFACES`, `THREADS`, `ZONE`)."""
    zone: str = ""
    """Where whoever manages the nodes tells it; the node itself does not."""

    @property
    def address(self) -> str:
        """By which other nodes reach it: where it was reached, if that is its own; empty: unknown."""
        own = [address for _, address, _ in self.interfaces if not ip_address(address).is_loopback]
        if self.reached in own:
            return self.reached
        if self.reached and ":" in self.reached and not ip_address(self.reached).is_loopback:
            return self.reached
        return own[0] if own else ""

    def at(self, name: str) -> str:
        """The address of an interface; empty: there is none."""
        return next((address for found, address, _ in self.interfaces if found == name), "")

    def interface_to(self, address: str) -> tuple[str, str]:
        """The interface towards an address, and why it is that; empty where it cannot be told."""
        if ":" in address:
            return "", ""
        try:
            wanted = ip_address(address)
        except ValueError:  # a name, or what stands for an address in a dry run
            return "", ""
        for name, own, mask in self.interfaces:
            if wanted in IPv4Interface(f"{own}/{mask}").network and name != "lo":
                return name, f"it has an address in the network of the first node, {address}"
        for name, own, _ in self.interfaces:
            if own == self.reached and name != "lo":
                return name, "the node was reached there"
        return "", ""


class UnknownFacts(Facts):
    """What stands for a node's facts in a dry run that did not reach it."""

    @classmethod
    def of(cls, host: str, python: str) -> "UnknownFacts":
        return cls(
            python="",
            executable=python,
            asked=python,
            wirespeed=__version__,
            torch="any",
            host=f"<address of {host}>",
        )


NOT_REACHED = "LAUNCH-001", "LAUNCH-002", "LAUNCH-003"
"""Ids of findings by which nothing is known of a node but that it could not be entered from here."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What asking one node gave."""

    facts: Facts | None
    code: int | None
    """Of ssh or the like; None: it did not end in time."""
    said: tuple[str, ...]
    """What it and the far side said on stderr, and on stdout what was no answer."""


def ask_all(
    commands: Mapping[str, Sequence[str]], directory: str, within_s: float
) -> dict[str, Answer]:
    """Run each host's command with the program on its stdin; each has `within_s` seconds.

    CannotMeasure when there is no such program here.
    """
    asked: dict[str, _Asked] = {}
    answers: dict[str, Answer] = {}
    waiting = list(commands)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as program:
        source = Path(node_facts.__file__).read_text("utf-8")
        program.write(f"{source}\nmain({directory!a})\n")
        program.flush()
        try:
            while len(answers) < len(commands):
                while waiting and len(asked) < _AT_ONCE:
                    host = waiting.pop(0)
                    asked[host] = _Asked(commands[host], program.name, within_s)
                for host in [host for host, one in asked.items() if one.over()]:
                    answers[host] = asked.pop(host).answer()
                time.sleep(_LOOK_S)
        finally:
            for one in asked.values():
                one.answer()
    return {host: answers[host] for host in commands}


class _Asked:
    """One node; the output of what asks it goes to files, so that nothing ever waits for a reader."""

    def __init__(self, command: Sequence[str], program: str, within_s: float) -> None:
        self._until = time.monotonic() + within_s
        self._files = ExitStack()
        files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - see answer
        self._out, self._err = map(self._files.enter_context, files)
        try:
            with Path(program).open("rb") as stdin:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=stdin,
                    stdout=self._out,
                    stderr=self._err,
                    start_new_session=True,
                )
        except OSError as error:
            self._files.close()
            raise make_error(
                "not_run",
                program=command[0],
                why=error.strerror,
                next=_CURES.get(Path(command[0]).name, ""),
            ) from error

    def over(self) -> bool:
        return self._process.poll() is not None or time.monotonic() > self._until

    def answer(self) -> Answer:
        """Ends it, if it has not ended."""
        code = self._process.poll()
        signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._files:
            (facts, other), err = _read(_text(self._out)), _text(self._err)
        return Answer(
            facts, code, tuple(line for line in [*other, *err.splitlines()] if line.strip())
        )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_TEXT).decode("utf-8", "replace")


def _read(out: str) -> tuple[Facts | None, list[str]]:
    """The facts, and the lines that are something else."""
    lines = out.splitlines()
    for index, line in enumerate(lines):
        if line.startswith(MARK):
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                return _facts(json.loads(line.removeprefix(MARK))), lines[:index]
    return None, lines


def _facts(told: dict[str, Any]) -> Facts:
    if "interfaces" in told:
        told["interfaces"] = tuple((name, own, mask) for name, own, mask in told["interfaces"])
        told["reached"] = next(iter(told["reached"]), "")
        told["told"] = tuple(told["told"])
    facts = Facts(**told)
    _check(facts)
    return facts


def _check(facts: Facts) -> None:
    """ValueError where a node tells what none is: its answer is a stranger's text."""
    kinds = {name: get_origin(kind) or kind for name, kind in get_type_hints(Facts).items()}
    odd = [name for name, kind in kinds.items() if type(getattr(facts, name)) is not kind]
    names = (*facts.told, *(name for name, _, _ in facts.interfaces))
    odd += [str(name) for name in names if not isinstance(name, str)]
    if odd or not 0 <= facts.gpus <= _MOST_GPUS or not 0 <= facts.port < 1 << 16:
        raise ValueError(f"not what a node tells: {odd}")
    for _, own, mask in facts.interfaces:
        IPv4Interface(f"{own}/{mask}")
    if ":" in facts.reached:
        ip_address(facts.reached)


_EVIDENCE = 6
_NO_COMMAND = 127


class Asking(ABC):
    """How nodes are asked, and what findings need of that to name the next command."""

    other_python = ""
    """What to do where the Python that was asked for is not the right one."""

    def __init__(self, pythons: Sequence[str], within_s: float) -> None:
        self.pythons = list(pythons)
        self.within_s = within_s

    @abstractmethod
    def by_hand(self, host: str, *words: str) -> str:
        """The command that a person types, to run that on the node."""

    @abstractmethod
    def install(self, host: str, python: str, package: str) -> str:
        """What brings a package to that Python."""

    @abstractmethod
    def not_entered(self, host: str, answer: Answer) -> Finding:
        """Why nothing answered there: `answer.code` is None where it took too long."""

    def trouble_of(self, host: str, answer: Answer) -> Finding | None:
        """Why ranks cannot be started there; None: they can."""
        facts = answer.facts
        if facts is None:
            return self.not_entered(host, answer)
        if facts.old:
            return node_finding("old_python", host, facts=facts, next=self._list_pythons(host))
        told: dict[str, Any] = {"facts": facts, "version": __version__}
        install = self.install(host, facts.executable, f"wirespeed=={__version__}")
        wanted = self.pythons[0]
        if facts.asked != wanted and facts.wirespeed != __version__:
            has = f"has wirespeed {facts.wirespeed}" if facts.wirespeed else "has no wirespeed"
            texts = {"fix": self.other_python, "next": self._list_pythons(host)}
            return node_finding("other_python", host, wanted=wanted, has=has, **texts, **told)
        if not facts.wirespeed:
            return node_finding("no_wirespeed", host, next=install, **told)
        if facts.wirespeed != __version__:
            look = self.by_hand(host, facts.executable, "-m", "wirespeed", "--version")
            return node_finding("other_version", host, fix=install, next=look, **told)
        return None

    def _list_pythons(self, host: str) -> str:
        """Return the command that lists the Pythons of a node."""
        return self.by_hand(host, "ls /usr/bin/python3* /usr/local/bin/python3* /opt/*/bin/python3")

    def no_python(self, host: str, answer: Answer) -> Finding:
        """The command that should have started Python failed there."""
        wanted = self.pythons[0]
        missing = answer.code == _NO_COMMAND
        return node_finding(
            "no_python",
            host,
            wanted=wanted,
            title=f"{host} has no Python at {wanted}"
            if missing
            else f"{wanted} does not work on {host}",
            saw=last_words(answer) or f"exit code {answer.code} without a word",
            fix=self.other_python,
            next=self.by_hand(host, "command -v python3"),
            said=answer.said,
        )

    def ask(
        self, commands: Mapping[str, Sequence[str]], directory: str, interface: str = ""
    ) -> tuple[dict[str, Facts], list[Finding]]:
        """Ask all hosts at once: facts of those that can be used, and what is wrong with the others.

        commands: how each host is entered; interface: what each must have, if any.
        """
        good, findings = {}, []
        for host, answer in ask_all(commands, directory, self.within_s).items():
            trouble, facts = self.trouble_of(host, answer), answer.facts
            if trouble is None and facts is not None and interface and not facts.at(interface):
                trouble = interface_missing(host, facts, interface)
            if trouble is not None:
                findings.append(trouble)
            elif facts is not None:
                good[host] = facts
        return good, findings


def no_torch(host: str, facts: Facts, asking: Asking) -> Finding:
    """Other nodes have it."""
    install = asking.install(host, facts.executable, "torch")
    return node_finding("no_torch", host, facts=facts, fix=install)


def interface_missing(host: str, facts: Facts, name: str) -> Finding:
    names = ", ".join(f"{found} ({address})" for found, address, _ in facts.interfaces)
    return node_finding(
        "interface_missing", host, name=name, saw=names or "no interface with an IPv4 address"
    )


def differing(facts: dict[str, Facts]) -> list[Finding]:
    """Warnings: nodes can be used, but their Python or torch is not the others'."""
    found = []
    known = {host: one for host, one in facts.items() if not isinstance(one, UnknownFacts)}
    for what, values in (
        ("Python", {host: ".".join(one.python.split(".")[:2]) for host, one in known.items()}),
        ("torch", {host: one.torch for host, one in known.items() if one.torch}),
    ):
        told = list(values.values())
        usual = max(told, key=told.count, default="")
        for host, value in values.items():
            if value != usual:
                found.append(node_finding("differs", host, what=what, value=value, usual=usual))
    return found


def node_finding(entry: str, host: str, *, said: Sequence[str] = (), **values: object) -> Finding:
    """Ranks cannot be started on that node: `entry` of findings.yaml, with what it said."""
    evidence = tuple(said)[-_EVIDENCE:]
    subject = Subject("node", host)
    return make_finding(entry, subject=subject, evidence=evidence, host=host, **values)


def last_words(answer: Answer, words: str = "") -> str:
    """The last line that holds `words`, else the last; a program's verdict comes at the end."""
    chosen = [line for line in answer.said if words in line] or list(answer.said)
    return chosen[-1].strip() if chosen else ""


def with_slots(job: Job, facts: Mapping[str, Facts]) -> list[Host]:
    """The job's hosts that get ranks, with their numbers, also those that cannot be used.

    Slots as named, else ranks a node, else GPUs, else 1. A world size that was asked for fills the
    slots in order, or is spread evenly where nothing says how many a node takes. UsageError where
    it does not fit.
    """
    told = [host.slots or job.ranks_per_node for host in job.hosts]
    if job.ranks is None:
        gpus = {host: one.gpus for host, one in facts.items()}
        return [
            replace(host, slots=slots or gpus.get(host.name) or 1)
            for host, slots in zip(job.hosts, told, strict=True)
        ]
    if not any(told):
        each, more = divmod(job.ranks, len(job.hosts))
        told = [each + (index < more) for index in range(len(job.hosts))]
    left, filled = job.ranks, []
    for host, slots in zip(job.hosts, told, strict=True):
        taken = min(1 if slots is None else slots, left)
        filled += [replace(host, slots=taken)] if taken else []
        left -= taken
    if left:
        room = job.ranks - left
        raise make_error("no_fit", ranks=job.ranks, room=room)
    return filled
