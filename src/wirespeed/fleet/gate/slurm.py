"""Slurm's side of a gate: how the node stands, how many are out, drained with a reason, and given back.

A reason of ours begins with a sum of its own text, `wirespeed[3f2a9c]: …`: who edits it takes the
node over, and nothing has to be remembered to know that. Slurm's own `Prolog error` and `Epilog
error` are ours where this node's gate has refused just before.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from wirespeed.errors import CannotMeasure, UsageError, harmless
from wirespeed.fleet.gate.decision import Decision, Fleet, Memory, Standing
from wirespeed.launchers.slurm import ask

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_ALL = ("all", "default")
"""Words that scontrol takes for every node."""
_OURS = re.compile(r"wirespeed\[([0-9a-f]{6})\]: (.*)", re.DOTALL)
_BY_EXIT_CODE = re.compile(r"(?:prolog|epilog) (?:error|failed)", re.IGNORECASE)
_MOST_LETTERS = 200
_SOON_S = 600.0
"""Between a gate's exit code and the reason that Slurm gives for it, at most."""
_CALL_S = 2.0
"""For one answer of the controller: whoever starts a job waits for the gate."""
_FORMAT = "%N|%T|%H|%E"


def checked_name(name: str) -> str:
    """One node's name; UsageError for what Slurm would take for several, or for options."""
    if _NAME.fullmatch(name) and name.lower() not in _ALL:
        return name
    raise UsageError(
        f"{harmless(name)[:80]!r} is no node's name",
        expected="letters, digits, `.`, `-` and `_`: one node, neither a list nor ALL",
        next="scontrol show hostnames",
    )


def reason_of(text: str) -> str:
    """What is written as the node's reason."""
    clean = " ".join(harmless(text).split())[:_MOST_LETTERS].strip() or "no reason told"
    return f"wirespeed[{_sum(clean)}]: {clean}"


def is_ours(reason: str) -> bool:
    """Whether a gate wrote it, and nobody has changed it since."""
    found = _OURS.fullmatch(reason.strip())
    return found is not None and found[1] == _sum(found[2])


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


@dataclass(frozen=True, slots=True)
class _Row:
    """A node as sinfo shows it."""

    name: str
    state: str
    since: str
    """Of the reason, in local time; `Unknown` where there is none."""
    reason: str

    @property
    def out(self) -> bool:
        return any(word in self.state for word in ("drain", "drng", "down", "fail"))

    @property
    def by_gate(self) -> bool:
        return "dr" in self.state and (
            is_ours(self.reason) or bool(_BY_EXIT_CODE.match(self.reason))
        )


def _rows(*words: str) -> list[_Row]:
    every = ("sinfo", "--noheader", "--Node", f"--format={_FORMAT}", *words)
    done = ask(*every, seconds=_CALL_S)
    if done.returncode != 0:
        raise CannotMeasure(
            f"sinfo: {_said(done.stderr)}", expected="an answer of slurmctld", next="scontrol ping"
        )
    found = {}
    for line in done.stdout.splitlines():
        if line.count("|") < _FORMAT.count("|"):
            continue
        name, state, since, reason = line.split("|", 3)
        found[name] = _Row(name, state.lower(), since, "" if reason == "none" else reason)
    return list(found.values())


class Slurm:
    """One node of the cluster that this machine's Slurm belongs to. All calls are bounded."""

    def __init__(self, node: str) -> None:
        self.node = checked_name(node)

    def standing(self, memory: Memory) -> Standing:
        """CannotMeasure where the controller does not answer, or does not know the node."""
        row = self._own(_rows(f"--nodes={self.node}"))
        ours = is_ours(row.reason) or (
            _BY_EXIT_CODE.match(row.reason) is not None and _refused(memory, row.since)
        )
        ours = ours and "dr" in row.state
        unnamed = ours and not is_ours(row.reason)
        return Standing(out=row.out, ours=ours, unnamed=unnamed, reason=row.reason)

    def fleet(self) -> Fleet:
        """All nodes, and the others that gates have taken, the first taken first.

        CannotMeasure where this node is not among them: such an answer counts nobody.
        """
        rows = _rows()
        self._own(rows)
        taken = sorted((one.since, one.name) for one in rows if one.by_gate)
        others = tuple(name for _, name in taken if name != self.node)
        return Fleet(nodes=len(rows), taken=others)

    def place(self) -> int:
        """How many others were taken before this node."""
        taken = sorted((one.since, one.name) for one in _rows() if one.by_gate)
        return next((n for n, (_, name) in enumerate(taken) if name == self.node), 0)

    def take(self, why: str) -> None:
        self._update("State=DRAIN", f"Reason={reason_of(why)}")

    def give_back(self) -> None:
        self._update("State=UNDRAIN")

    def told(self, decision: Decision) -> None:
        """Slurm has no place for it but the reason."""

    def _own(self, rows: list[_Row]) -> _Row:
        for one in rows:
            if one.name == self.node:
                return one
        raise CannotMeasure(
            f"Slurm knows no node {self.node}",
            expected="the name in slurm.conf, as SLURMD_NODENAME has it",
            next="sinfo -N",
        )

    def _update(self, *words: str) -> None:
        every = ("scontrol", "update", f"NodeName={self.node}", *words)
        done = ask(*every, seconds=_CALL_S)
        if done.returncode != 0 or "error" in done.stderr:
            raise CannotMeasure(
                f"scontrol may not change {self.node}: {_said(done.stderr)}",
                expected="root or SlurmUser, as HealthCheckProgram runs on a node",
                next=f"scontrol show node {self.node}",
            )


def _said(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return harmless(lines[-1])[:200] if lines else "no answer"


def _refused(memory: Memory, since: str) -> bool:
    """Whether this node's gate refused just before that reason was given."""
    try:
        at = datetime.fromisoformat(since).timestamp()
    except ValueError:
        return False
    return any(-_SOON_S <= at - one <= _SOON_S for one in memory.takes)
