"""`python -P -m wirespeed.fleet.gate.worker`: the look, the decision and the act, told line by line.

Whatever it does may hang (a driver, a home on NFS, a controller): who started it (`guarded.py`)
reads how far it came and ends it when its time is over. What was asked comes from stdin, JSON as
are the lines that it answers with: `doing`, then `seen` and `answer` when they are known.
"""

import hashlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from wirespeed import __version__
from wirespeed.checks.registry import tell
from wirespeed.errors import StorageError, WirespeedError, refused_as
from wirespeed.fleet.gate import look
from wirespeed.fleet.gate.decision import (
    Act,
    Decision,
    Fleet,
    Memory,
    Rules,
    Seen,
    Standing,
    acts_by_exit_code,
    decide,
    exit_code,
    held,
    most_out,
)
from wirespeed.fleet.gate.guarded import Answer, Asked, Line
from wirespeed.fleet.gate.look import Counters
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import Finding, NodeFacts, Run, Subject, World
from wirespeed.model.verdicts import Verdict
from wirespeed.node.reading import read_whole
from wirespeed.process import boot_id
from wirespeed.runs.folder import write_whole
from wirespeed.runs.place import home, private_folder
from wirespeed.runs.unsent import VARIABLE

_FOLDER = "gate"
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a node's gate keeps from call to call: `$WIRESPEED_HOME/gate/NODE.json`, for its owner alone.

    Lost or damaged it is begun anew: nothing but the patience with a node that comes and goes is lost.
    """

    memory: Memory = field(default_factory=Memory)
    counters: Counters | None = None


def recall(node: str) -> Kept:
    """Empty where there is nothing, or nothing that can be read as such."""
    with suppress(OSError, StorageError, msgspec.MsgspecError, UnicodeDecodeError):
        text = read_whole(home() / _FOLDER / f"{node}.json", _LARGEST, links=False)
        return msgspec.json.decode(text, type=Kept)
    return Kept()


def keep(node: str, kept: Kept) -> None:
    """StorageError where it cannot be written."""
    told = {
        "expected": "a folder that can be written",
        "next": "WIRESPEED_HOME=/var/lib/wirespeed wirespeed gate …",
    }
    with refused_as(StorageError, f"the gate of {node} cannot remember this call", **told):
        write_whole(private_folder(_FOLDER) / f"{node}.json", msgspec.json.encode(kept))


STAGGER_S = 1.0
"""Nodes that refuse at the same moment count, one after the other, over this time."""
_SLOW_S = 15.0
"""NVML that is silent for so long again and again is a fault; for less it may be starting."""
_OF_THE_POD = ("NODE-006", "NODE-007", "NODE-015", "NODE-016")
"""Limits of the container that looks, not of the node."""
_ALL_WELL = "pass good []"


class Site(Protocol):
    """The scheduler of the node."""

    def standing(self, memory: Memory) -> Standing: ...
    def fleet(self) -> Fleet: ...
    def place(self) -> int: ...
    def take(self, why: str) -> None: ...
    def give_back(self) -> None: ...
    def told(self, decision: Decision) -> None: ...


def main() -> None:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    began = time.monotonic()
    seen, node, counters = _look(asked)
    _say(doing=f"reading what was kept of {asked.node} in its home")
    at_home = asked.recalled or not asked.missing
    kept = recall(asked.node) if at_home else Kept()
    if not asked.missing:
        seen = _with_the_past(asked, seen, node, kept, counters)
    decision, problems = _decided(asked, seen, kept.memory)
    answer = Answer(
        node=asked.node,
        act=decision.act,
        health=decision.health,
        refuses=decision.refuses,
        why=decision.why,
        problems=tuple(problems),
        findings=tuple(
            Line(id=one.id, status=one.status, title=one.title) for one in seen.findings
        ),
    )
    _say(answer=msgspec.to_builtins(answer))
    _say(doing="storing what was done")
    ids = sorted({one.id for one in decision.counted})
    told = " ".join((decision.act, decision.health, str(ids), *problems))
    try:
        if _is_news(asked.rules, decision, told, kept.memory.told):
            seconds = time.monotonic() - began
            run = run_of(asked.node, node, asked.rules, decision, seen, problems, seconds)
            answer = msgspec.structs.replace(answer, run=run)
        if at_home:
            _remember(asked, decision, told, seen.at, kept, counters)
        if answer.run:
            _sent(answer)
    except StorageError as error:
        answer = msgspec.structs.replace(answer, problems=(*answer.problems, error.saw))
    _say(answer=msgspec.to_builtins(answer), done=True)


def _sent(answer: Answer) -> None:
    """What is stored goes to the common store, where one is named: a gate may be all that runs here."""
    if os.environ.get(VARIABLE):
        from wirespeed.fleet.common_store.sending import send_at_end

        _say(answer=msgspec.to_builtins(answer), doing="sending the run to the common store")
        send_at_end()


def _remember(
    asked: Asked,
    decision: Decision,
    told: str,
    at: float,
    before: Kept,
    counters: look.Counters | None,
) -> None:
    """With what another gate of the node, such as its prolog, has taken since we read `before`."""
    takes = {*recall(asked.node).memory.takes} - {*before.memory.takes} | {*decision.memory.takes}
    if decision.act == "take" and not asked.rules.dry_run:
        takes.add(at)
    memory = replace(decision.memory, told=told, takes=tuple(sorted(takes)))
    keep(asked.node, Kept(memory=memory, counters=counters or before.counters))


def _is_news(rules: Rules, decision: Decision, told: str, before: str) -> bool:
    """What it did always is; what it saw or would do, where the last call said something else."""
    acted = decision.act in ("take", "return") and not rules.dry_run
    return acted or (told != before and not {told, before} <= {"", _ALL_WELL})


def _say(**told: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


def _look(asked: Asked) -> tuple[Seen, NodeFacts, look.Counters | None]:
    """The facts, or what an earlier worker has seen."""
    if asked.seen is not None:
        node = from_json(NodeFacts, asked.seen)
        counters = None
    elif asked.blind:
        node, counters = look.unread(asked.node), None
    else:
        _say(doing="reading the node: /proc, /sys, NVML")
        node = look.read_node(asked.node, asked.quiet_s)
        counters = look.read_links(time.time(), boot_id())
        _say(seen=to_json(node))
    missing = (*asked.missing, *look.blind_spots(node))
    every = [] if asked.blind else look.node_findings(node)
    if asked.rules.purpose.startswith("k8s"):
        every = [one for one in every if one.id not in _OF_THE_POD]
    findings = tuple(look.problems(every))
    passing: tuple[str, ...] = ()
    silent = look.silent_gpus(node)
    if silent and asked.quiet_s >= _SLOW_S:
        passing = ("GPU-009",)
    elif silent:
        findings = tuple(one for one in findings if one.id != "GPU-009")
    return (
        Seen(
            at=time.time(),
            findings=findings,
            good=tuple(one for one in every if one.status == "pass"),
            passing=passing,
            missing=missing,
        ),
        node,
        counters,
    )


def _with_the_past(
    asked: Asked, seen: Seen, node: NodeFacts, kept: Kept, counters: look.Counters | None
) -> Seen:
    """With what links did since the last look, and what the last check of the node said."""
    from wirespeed.fleet.gate.past import last_blame

    links = look.link_problems(node, kept.counters, counters) if counters else []
    _say(doing="reading what earlier runs say of it", recalled=True)
    try:
        blame = last_blame({asked.node, socket.gethostname()}, asked.node)
    except WirespeedError as error:
        return replace(seen, missing=(*seen.missing, f"its earlier runs: {error.saw}"))
    return replace(seen, findings=(*seen.findings, *links, *blame))


def _decided(asked: Asked, seen: Seen, memory: Memory) -> tuple[Decision, list[str]]:
    """The decision as the scheduler allows it, acted upon; and what could not be done."""
    rules, problems = asked.rules, list[str]()
    if acts_by_exit_code(rules.purpose):
        decision = decide(rules, seen, memory, Standing())
        if decision.act == "take" and rules.purpose != "k8s":
            _say(doing="counting the nodes that are out")
            time.sleep(STAGGER_S * _spread(asked.node))
            decision = held(decision, rules.most_taken, _counted(_site(asked), problems))
        return decision, problems
    _say(doing="asking the scheduler how the node stands")
    try:
        site = _site(asked)
        standing = site.standing(memory)
    except WirespeedError as error:
        decision = decide(rules, seen, memory, Standing())
        return held(decision, rules.most_taken, None), [error.saw]
    decision = decide(rules, seen, memory, standing)
    if decision.act == "take":
        decision = held(decision, rules.most_taken, _counted(site, problems))
    if not rules.dry_run:
        _say(doing=f"telling the scheduler: {decision.act}")
        decision = _acted(site, rules, decision, standing, problems)
    return decision, problems


def _acted(
    site: Site, rules: Rules, decision: Decision, standing: Standing, problems: list[str]
) -> Decision:
    """What came of it. Once the node is out, what fails afterwards does not bring it back."""
    try:
        if decision.act == "return":
            site.give_back()
        if decision.act == "take" or (decision.act == "keep" and standing.unnamed):
            site.take(decision.why)
    except WirespeedError as error:
        problems.append(error.saw)
        instead: dict[Act, Act] = {"take": "hold", "return": "keep"}
        why = f"{error.saw}; {decision.why}"
        return replace(decision, act=instead.get(decision.act, decision.act), why=why)
    try:
        if decision.act == "take":
            decision = _in_its_place(site, rules, decision)
        site.told(decision)
    except WirespeedError as error:
        problems.append(error.saw)
    return decision


def _in_its_place(site: Site, rules: Rules, decision: Decision) -> Decision:
    """Of several that took at once, those beyond the limit give back."""
    if others := site.place():
        nodes = site.fleet().nodes
        if others >= most_out(rules.most_taken, nodes):
            site.give_back()
            return held(decision, rules.most_taken, Fleet(nodes=nodes, taken=("",) * others))
    return decision


def _counted(site: Site, problems: list[str]) -> Fleet | None:
    try:
        return site.fleet()
    except WirespeedError as error:
        problems.append(error.saw)
        return None


def _spread(node: str) -> float:
    """From 0 to 1, another for each node."""
    return hashlib.sha256(node.encode()).digest()[0] / 255


def _site(asked: Asked) -> Site:
    if asked.rules.purpose.startswith("slurm"):
        from wirespeed.fleet.gate.slurm import Slurm

        return Slurm(asked.node)
    from wirespeed.fleet.gate.kubernetes import Kubernetes

    return Kubernetes.here(asked.node, taint=asked.rules.taint)


# What a gate did, as a stored run: the node's facts, what is wrong with it, and the act.


_VERDICTS: dict[str, Verdict] = {"good": "READY", "bad": "NOT READY", "unknown": "UNKNOWN"}
_IDS = {
    "take": "GATE-002",
    "keep": "GATE-003",
    "return": "GATE-004",
    "hold": "GATE-005",
    "pass": "GATE-006",
}
_COULD_NOT = "GATE-007"


def finding_of(node: str, rules: Rules, decision: Decision) -> Finding | None:
    """What was done; None for a good node that is in service."""
    if decision.act == "pass" and decision.health != "unknown":
        return None
    case = "dry run" if rules.dry_run and decision.act in ("take", "return") else "done"
    return tell(
        _IDS[decision.act],
        case,
        subject=Subject("node", node),
        host=node,
        why=decision.why,
        purpose=rules.purpose,
        rule=rules.unknown,
    )


def could_not(node: str, problems: Sequence[str]) -> list[Finding]:
    """Nothing that the node is to blame for."""
    return [tell(_COULD_NOT, "failed", host=node, what=one) for one in problems]


def run_of(
    node: str,
    facts: NodeFacts,
    rules: Rules,
    decision: Decision,
    seen: Seen,
    problems: Sequence[str],
    seconds: float,
) -> str:
    """Store it; the run's id."""
    from wirespeed.runs.folder import new_id
    from wirespeed.runs.store import save

    done = finding_of(node, rules, decision)
    told = *seen.findings, *could_not(node, problems), *seen.good
    findings = (*([done] if done else []), *told)
    run = Run(
        id=new_id(),
        command="gate",
        verdict="UNKNOWN" if problems and decision.health == "good" else _VERDICTS[decision.health],
        exit_code=exit_code(
            rules, refuses=decision.refuses, health=decision.health, problems=bool(problems)
        ),
        started="",
        seconds=seconds,
        world=World(size=1, nodes=(facts,), backend="", launcher=rules.purpose.partition("-")[0]),
        versions={"wirespeed": __version__},
        config={
            "for": rules.purpose,
            "node": node,
            "unknown": rules.unknown,
            "never_take_more_than": rules.most_taken,
            "dry_run": rules.dry_run,
            "act": decision.act,
            "why": decision.why,
            "missing": list(seen.missing),
        },
        findings=findings,
    )
    save(run)
    return run.id


if __name__ == "__main__":
    main()
