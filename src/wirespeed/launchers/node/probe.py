"""Ask all nodes at once, through ssh or the like, what they are: `node.facts` runs there."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface, ip_address
from pathlib import Path
from typing import IO, Any, get_origin, get_type_hints

from wirespeed.errors import CannotMeasure
from wirespeed.launchers.node import facts as node_facts
from wirespeed.launchers.node.facts import MARK

__all__ = ["Answer", "Facts", "ask_all"]

_LOOK_S = 0.02
_AT_ONCE = 128
_MOST_TEXT = 100_000
_MOST_GPUS = 1024
_CURES = {"ssh": "apt-get install openssh-client"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a node told (`node.facts`)."""

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
        wanted = ip_address(address)
        for name, own, mask in self.interfaces:
            if wanted in IPv4Interface(f"{own}/{mask}").network and name != "lo":
                return name, f"it has an address in the network of the first node, {address}"
        for name, own, _ in self.interfaces:
            if own == self.reached and name != "lo":
                return name, "the node was reached there"
        return "", ""


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
    with ExitStack() as stack:
        program = stack.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf-8"))
        source = Path(node_facts.__file__).read_text("utf-8")
        program.write(f"{source}\nmain({directory!a})\n")
        program.flush()
        asked: dict[str, _Asked] = {}
        stack.callback(_end_all, asked)
        answers: dict[str, Answer] = {}
        waiting = list(commands)
        while len(answers) < len(commands):
            while waiting and len(asked) < _AT_ONCE:
                host = waiting.pop(0)
                asked[host] = _Asked(commands[host], program.name, within_s)
            for host in [host for host, one in asked.items() if one.over()]:
                answers[host] = asked.pop(host).answer()
            time.sleep(_LOOK_S)
    return {host: answers[host] for host in commands}


class _Asked:
    """One node; the output of what asks it goes to files, so that nothing ever waits for a reader."""

    def __init__(self, command: Sequence[str], program: str, within_s: float) -> None:
        self._until = time.monotonic() + within_s
        self._files = ExitStack()
        self._out = self._files.enter_context(_temporary())
        self._err = self._files.enter_context(_temporary())
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
            raise CannotMeasure(
                f"{command[0]} cannot be run: {error.strerror}",
                expected=f"{command[0]} on this machine",
                next=_CURES.get(Path(command[0]).name, ""),
            ) from error

    def over(self) -> bool:
        return self._process.poll() is not None or time.monotonic() > self._until

    def answer(self) -> Answer:
        code = self._process.poll()
        self._end()
        out, err = (_text(file) for file in (self._out, self._err))
        self._files.close()
        facts, other = _read(out)
        return Answer(
            facts, code, tuple(line for line in [*other, *err.splitlines()] if line.strip())
        )

    def give_up(self) -> None:
        self._end()
        self._files.close()

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _end_all(asked: Mapping[str, _Asked]) -> None:
    for one in asked.values():
        one.give_up()


def _temporary() -> IO[bytes]:
    return tempfile.TemporaryFile()


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
