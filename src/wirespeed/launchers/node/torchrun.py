"""Ranks of nodes that are entered one by one (ssh, kubectl exec): torchrun on each, or rank places.

`prepared` makes a job of what the nodes told; its pieces are one process a node, which starts the node
agent there and sends it its order over stdin. How a node is entered is the engine's.
"""

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from wirespeed import __version__
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Host, Job, Piece, Prepared
from wirespeed.launchers.node import probe
from wirespeed.launchers.node.snapshot import THREADS, ZONE, interface_variables
from wirespeed.launchers.rank_wrapper import rank_variables, wrapped
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice, Finding
from wirespeed.process.frames import VARIABLE

_FIRST_THERE = (
    'for python in "$@"; do command -v "$python" >/dev/null 2>&1 && '
    'exec env PYTHONSAFEPATH=1 WIRESPEED_ASKED="$python" "$python" -; done; '
    'echo "not there: $*" >&2; exit 127'
)
_AGENT = "wirespeed.launchers.node.agent"


def probe_words(pythons: Sequence[str]) -> list[str]:
    """The first of these Pythons that is there, with its program on stdin."""
    return ["sh", "-c", _FIRST_THERE, "sh", *pythons]


def agent_words(python: str) -> list[str]:
    """The node agent. -P: what lies in the home folder is no module."""
    return [python, "-P", "-m", _AGENT]


def order(
    starts: Sequence[tuple[Sequence[str], Mapping[str, str]]],
    environment: Mapping[str, str],
    *,
    grace_s: float,
    silence_s: float,
) -> str:
    """One line for the node agent: what to start, each with variables of its own, and in what."""
    told = {
        "version": __version__,
        "grace_s": grace_s,
        "silence_s": silence_s,
        "environment": dict(sorted(environment.items())),
        "start": [{"words": list(words), "environment": dict(own)} for words, own in starts],
    }
    return json.dumps(told) + "\n"


PULSE_S = 5.0
_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class NodeFound:
    """What pieces need to know of a node."""

    python: str
    address: str
    """By which other nodes reach it."""
    interface: str
    told: Sequence[str] = ()
    """Variables that are set there, and are not for us to choose (`Facts.told`)."""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What the nodes told, of those that can be used."""

    master: str = ""
    """Address of the first."""
    port: int | str = 0
    """Of the rendezvous; in a dry run words for it, where the first node was not reached."""
    nodes: Mapping[str, NodeFound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """One node of a job among the others."""

    index: int
    slots: int
    first_rank: int
    node: NodeFound


def torchrun_words(job: Job, found: Found, place: NodePlace, command: Sequence[str]) -> list[str]:
    """torchrun for the ranks of one node, without any file of its own.

    torchrun fills in `${local_rank}` in the words of a rank and makes `$$` of them `$`
    (string.Template in torch/distributed/elastic), so words with a dollar go encoded.
    """
    master, port, python = found.master, found.port, place.node.python
    meet = [f"--nnodes={len(job.hosts)}", f"--nproc-per-node={place.slots}"]
    if job.options.get("rendezvous") == "c10d":
        # Its id is seen by `ps`, and the token asks for trust.
        id = hashlib.sha256(job.token.encode()).hexdigest()[:16]
        endpoint = f"[{master}]:{port}" if ":" in master else f"{master}:{port}"
        meet += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={id}"]
        meet += [f"--rdzv-conf=is_host={int(place.index == 0)}"]
        meet += [f"--local-addr={place.node.address}"]
    else:
        meet += [f"--node-rank={place.index}", f"--master-addr={master}", f"--master-port={port}"]
    rank = wrapped(python, command, encoded=any("$" in word for word in command))
    run = [python, "-P", "-m", "torch.distributed.run"]
    return [*run, *meet, "--log-dir=/dev/null", "--no-python", *rank]


def rank_places(job: Job, found: Found, place: NodePlace) -> list[dict[str, str]]:
    """What each rank of a node must know where no torchrun tells it."""
    size, each = job.size, place.slots
    of_job = {"MASTER_ADDR": found.master, "MASTER_PORT": str(found.port)}
    of_job["NNODES"] = str(len(job.hosts))
    return [
        of_job
        | rank_variables(
            rank=place.first_rank + local, size=size, local=local, local_size=each, node=place.index
        )
        for local in range(each)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPrepared(Prepared, ABC):
    """Ranks on nodes that are entered one by one."""

    found: Found = Found()

    @abstractmethod
    def enter(self, host: str, far: Sequence[str]) -> Sequence[str]:
        """The words that run the words `far` on a host."""

    def look(self, host: str) -> str:
        """`Piece.look`."""
        return ""

    def pieces(self, scratch: Path) -> list[Piece]:
        """One a node."""
        job, found = self.job, self.found
        if not found.nodes:
            raise CannotMeasure("no node can be used", expected="one that ranks can run on")
        first, made = 0, []
        for index, host in enumerate(job.hosts):
            place = NodePlace(index, host.slots or 1, first, found.nodes[host.name])
            made.append(self._piece(host.name, place))
            first += place.slots
        return made

    def _piece(self, host: str, place: NodePlace) -> Piece:
        job, node = self.job, place.node
        environment = dict(job.environment)
        torchrun = place.slots > 1 and job.options.get("torchrun") != "no"
        if torchrun and THREADS not in node.told:
            # torchrun would do the same, with three lines on stderr of every node.
            environment.setdefault(THREADS, "1")
        if node.zone and ZONE not in node.told:
            environment.setdefault(ZONE, node.zone)
        if node.interface:
            chosen = interface_variables(node.interface)
            own = {name: text for name, text in chosen.items() if name not in node.told}
            environment = {**environment, **chosen} if job.interface else {**own, **environment}
        framed = VARIABLE in environment
        silence_s = float(job.options.get("silence", _SILENCE_S)) if framed else 0.0
        starts = _starts(job, self.found, place)
        return Piece(
            name=host,
            command=tuple(self.enter(host, agent_words(node.python))),
            stdin=order(starts, environment, grace_s=job.grace_s, silence_s=silence_s),
            nodes=(host,),
            look=self.look(host),
            ends_with_stdin=True,
            pulse_s=min(PULSE_S, silence_s / 3),
        )


def _starts(job: Job, found: Found, place: NodePlace) -> list[tuple[list[str], dict[str, str]]]:
    python, command = place.node.python, list(job.command)
    if command and command[0] == job.python:
        command[0] = python
    if job.options.get("torchrun") == "no":
        words = wrapped(python, command)
        return [(words, own) for own in rank_places(job, found, place)]
    return [(torchrun_words(job, found, place, command), {})]


def check_options(job: Job) -> None:
    """UsageError for options that do not go together, and for a host that is named twice."""
    if job.options.get("torchrun") == "no" and "rendezvous" in job.options:
        raise UsageError("rendezvous is torchrun's", expected="either, or torchrun=no")
    names = [host.name for host in job.hosts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice", expected=f"once, with slots: {name}:2")


# The far side is known.

P = TypeVar("P", bound=NodesPrepared)


def prepared(
    asked: P, asking: probe.Asking, findings: list[Finding], good: dict[str, probe.Facts]
) -> P:
    """What was asked, on the nodes that can be used; `findings` are of those that cannot."""
    job = asked.job
    choices: list[Choice] = []
    options = dict(job.options)
    _without_torch(options, asking, findings, good, choices)
    if job.interface:
        known = {host: one for host, one in good.items() if not _is_unknown(one)}
        for host in [host for host, facts in known.items() if not facts.at(job.interface)]:
            findings.append(probe.interface_missing(host, good.pop(host), job.interface))
    hosts = tuple(host for host in probe.with_slots(job, good) if host.name in good)
    if len({host.slots for host in hosts}) > 1 and options.get("torchrun") != "no":
        if options.get("rendezvous") == "c10d":
            told = ", ".join(f"{host.name}:{host.slots}" for host in hosts)
            raise make_error("torchrun_uneven", slots=told)
        options["torchrun"] = "no"
        why = "nodes have different numbers of ranks, which torchrun cannot place in order"
        choices.append(Choice("torchrun", "no", why))
    python = job.python or sys.executable
    found = _found(job, hosts, good, asking, choices) if hosts else Found()
    findings += probe.differing(good)
    ready = replace(job, hosts=hosts, ranks=None, python=python, options=options)
    return replace(asked, job=ready, findings=tuple(findings), choices=tuple(choices), found=found)


def _without_torch(
    options: dict[str, str],
    asking: probe.Asking,
    findings: list[Finding],
    good: dict[str, probe.Facts],
    choices: list[Choice],
) -> None:
    """torchrun needs torch: without it anywhere there is no torchrun; on some nodes, not these."""
    lacking = [host for host, facts in good.items() if not facts.torch]
    if options.get("torchrun") == "no" or not lacking:
        return
    if len(lacking) == len(good) and "rendezvous" not in options:
        options["torchrun"] = "no"
        choices.append(Choice("torchrun", "no", "no node has torch"))
        return
    findings += [probe.no_torch(host, good.pop(host), asking) for host in lacking]


def _found(
    job: Job,
    hosts: tuple[Host, ...],
    good: Mapping[str, probe.Facts],
    asking: probe.Asking,
    choices: list[Choice],
) -> Found:
    first = good[hosts[0].name]
    master = _address(job, first) if len(hosts) > 1 else "127.0.0.1"
    port: int | str = int(job.options.get("port", first.port))
    if not port:
        port = f"<a free port of {hosts[0].name}>"
    nodes = {}
    for host in hosts:
        facts = good[host.name]
        interface = job.interface
        if not interface and len(hosts) > 1:
            interface, why = facts.interface_to(master)
            if interface:
                choices.append(Choice(f"interface of {host.name}", interface, why))
        python = _python(host.name, facts, asking, choices)
        nodes[host.name] = NodeFound(
            python, _address(job, facts), interface, facts.told, facts.zone
        )
        if not facts.directory and not _is_unknown(facts):
            why = f"{job.directory} is not there"
            choices.append(Choice(f"directory on {host.name}", "the home folder", why))
    if len(hosts) > 1:
        why = f"an address of the first node, {hosts[0].name}"
        choices.append(Choice("MASTER_ADDR", master, why))
    if "port" not in job.options:
        why = f"a port that is free on {hosts[0].name} at this moment"
        choices.append(Choice("MASTER_PORT", str(port), why))
    return Found(master, port, nodes)


def _is_unknown(facts: probe.Facts) -> bool:
    return isinstance(facts, probe.UnknownFacts)


def _address(job: Job, facts: probe.Facts) -> str:
    return (job.interface and facts.at(job.interface)) or facts.address or facts.host


def _python(host: str, facts: probe.Facts, asking: probe.Asking, choices: list[Choice]) -> str:
    """The path that was asked for, which may be a link; else the python3 that was found."""
    wanted = asking.pythons[0]
    if len(asking.pythons) == 1 or facts.asked == wanted:
        return wanted
    choices.append(Choice(f"Python on {host}", facts.executable, f"{wanted} is not there"))
    return facts.executable
