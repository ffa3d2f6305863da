"""Ranks on any nodes that ssh reaches: one ssh a node, and torchrun on the far side."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Engine, EngineOption, Host, Job, Piece, Prepared
from wirespeed.launchers.frames import VARIABLE
from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.launchers.ssh.findings import (
    Asking,
    differing,
    interface_missing,
    no_torch,
    trouble_of,
)
from wirespeed.launchers.ssh.probe import Facts, ask_all
from wirespeed.launchers.ssh.slots import with_slots
from wirespeed.launchers.ssh.words import (
    Place,
    agent_words,
    check_host,
    order,
    probe_words,
    rank_places,
    ssh_words,
    torchrun_words,
)
from wirespeed.records import Choice, Finding

__all__ = ["ENGINE"]

_ASK_S = 15.0
_SILENCE_S = 60.0
PULSE_S = 5.0
_FOUND = "found"
"""Key of the prepared job's options that holds what the nodes told, as JSON."""
_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class _Node:
    """What pieces need to know of a node."""

    python: str
    address: str
    interface: str


class _Ssh:
    name = "ssh"
    summary = "nodes that ssh reaches, with torchrun on each"
    options = (
        EngineOption("config", "ssh's configuration file, as `ssh -F`"),
        EngineOption("rendezvous", "static or c10d: how torchrun's agents meet (static)"),
        EngineOption("port", "of the rendezvous, on the first node (one that is free)"),
        EngineOption("torchrun", "no: start the ranks without torchrun (needs no torch there)"),
        EngineOption(
            "silence", "seconds after which a node that hears nothing ends its ranks (60)"
        ),
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
        return _prepared(job, asking, findings, good)

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        found = json.loads(job.options.get(_FOUND, "{}"))
        if not found:
            raise CannotMeasure("no node can be used", expected="one that ranks can run on")
        nodes = {host: _Node(**told) for host, told in found["nodes"].items()}
        first, pieces = 0, []
        for index, host in enumerate(job.hosts):
            node = nodes[host.name]
            place = Place(
                host=host.name,
                index=index,
                slots=host.slots or 1,
                first_rank=first,
                nodes=len(job.hosts),
                size=job.size,
                python=node.python,
                address=node.address,
                master=found["master"],
                port=found["port"],
            )
            pieces.append(_piece(job, place, node))
            first += place.slots
        return pieces


# The far side is known.


def _prepared(
    job: Job, asking: Asking, findings: list[Finding], good: dict[str, Facts]
) -> Prepared:
    choices: list[Choice] = []
    options = dict(job.options)
    _without_torch(options, asking, findings, good, choices)
    if job.interface:
        for host in [host for host, facts in good.items() if not facts.at(job.interface)]:
            findings.append(interface_missing(host, good.pop(host), job.interface))
    hosts = tuple(host for host in with_slots(job, good) if host.name in good)
    if len({host.slots for host in hosts}) > 1 and options.get("torchrun") != "no":
        if options.get("rendezvous") == "c10d":
            raise _uneven(hosts)
        options["torchrun"] = "no"
        why = "nodes have different numbers of ranks, which torchrun cannot place in order"
        choices.append(Choice("torchrun", "no", why))
    python = job.python or sys.executable
    if hosts:
        options[_FOUND] = _found(job, hosts, good, asking, choices)
    findings += differing(good)
    ready = replace(job, hosts=hosts, ranks=None, python=python, options=options)
    return Prepared(job=ready, findings=tuple(findings), choices=tuple(choices))


def _without_torch(
    options: dict[str, str],
    asking: Asking,
    findings: list[Finding],
    good: dict[str, Facts],
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
    findings += [no_torch(host, good.pop(host), asking) for host in lacking]


def _found(
    job: Job,
    hosts: tuple[Host, ...],
    good: Mapping[str, Facts],
    asking: Asking,
    choices: list[Choice],
) -> str:
    first = good[hosts[0].name]
    master = _address(job, first) if len(hosts) > 1 else "127.0.0.1"
    port = int(job.options.get("port", first.port))
    nodes = {}
    for host in hosts:
        facts = good[host.name]
        interface = job.interface
        if not interface and len(hosts) > 1:
            interface, why = facts.interface_to(master)
            if interface:
                choices.append(Choice(f"interface of {host.name}", interface, why))
        python = _python(host.name, facts, asking, choices)
        nodes[host.name] = asdict(_Node(python, _address(job, facts), interface))
        if not facts.directory:
            why = f"{job.directory} is not there"
            choices.append(Choice(f"directory on {host.name}", "the home folder", why))
    if len(hosts) > 1:
        why = f"an address of the first node, {hosts[0].name}"
        choices.append(Choice("MASTER_ADDR", master, why))
    if "port" not in job.options:
        why = f"a port that is free on {hosts[0].name} at this moment"
        choices.append(Choice("MASTER_PORT", str(port), why))
    return json.dumps({"master": master, "port": port, "nodes": nodes})


def _address(job: Job, facts: Facts) -> str:
    return (job.interface and facts.at(job.interface)) or facts.address or facts.host


def _python(host: str, facts: Facts, asking: Asking, choices: list[Choice]) -> str:
    """The path that was asked for, which may be a link; else the python3 that was found."""
    wanted = asking.pythons[0]
    if len(asking.pythons) == 1 or facts.asked == wanted:
        return wanted
    choices.append(Choice(f"Python on {host}", facts.executable, f"{wanted} is not there"))
    return facts.executable


# Words.


def _piece(job: Job, place: Place, node: _Node) -> Piece:
    environment = dict(job.environment)
    if place.slots > 1 and job.options.get("torchrun") != "no":
        # torchrun would do the same, with three lines on stderr of every node.
        environment.setdefault("OMP_NUM_THREADS", "1")
    if node.interface:
        chosen = dict.fromkeys(_VARIABLES, node.interface)
        environment = {**environment, **chosen} if job.interface else {**chosen, **environment}
    framed = VARIABLE in environment
    silence_s = float(job.options.get("silence", _SILENCE_S)) if framed else 0.0
    return Piece(
        name=place.host,
        command=ssh_words(job.options.get("config", ""), place.host, agent_words(place.python)),
        stdin=order(_starts(job, place), environment, grace_s=job.grace_s, silence_s=silence_s),
        nodes=(place.host,),
        ends_with_stdin=True,
        pulse_s=min(PULSE_S, silence_s / 3),
    )


def _starts(job: Job, place: Place) -> list[tuple[list[str], dict[str, str]]]:
    command = list(job.command)
    if command and command[0] == job.python:
        command[0] = place.python
    if job.options.get("torchrun") == "no":
        words = wrapped(place.python, command)
        return [(words, own) for own in rank_places(place)]
    rendezvous = job.options.get("rendezvous", "static")
    return [(torchrun_words(place, command, rendezvous=rendezvous, token=job.token), {})]


# The request.


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
    _one_of(job, "rendezvous", ("static", "c10d"))
    _one_of(job, "torchrun", ("yes", "no"))
    _number(job, "port", 1, 65535)
    _number(job, "silence", 1, 86_400)
    if job.options.get("torchrun") == "no" and "rendezvous" in job.options:
        raise UsageError("rendezvous is torchrun's", expected="either, or torchrun=no")
    config = job.options.get("config")
    if config and not Path(config).is_file():
        raise UsageError(f"--with config={config}: no such file", expected="as for ssh -F")


def _one_of(job: Job, key: str, values: tuple[str, ...]) -> None:
    if job.options.get(key, values[0]) not in values:
        raise UsageError(f"--with {key}={job.options[key]}", expected=" or ".join(values))


def _number(job: Job, key: str, least: int, most: int) -> None:
    text = job.options.get(key, str(least))
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
        raise UsageError(f"--with {key}={text}", expected=f"a number, {least} to {most}")


def _uneven(hosts: tuple[Host, ...]) -> UsageError:
    told = ", ".join(f"{host.name}:{host.slots}" for host in hosts)
    return UsageError(
        f"torchrun cannot place different numbers of ranks in order: {told}",
        expected="the same on every node",
        next="the same command with --with torchrun=no in place of rendezvous",
    )


ENGINE: Engine = _Ssh()
