"""May this node take work, must it be taken out, or may it come back? Pure: no clock, no file.

A *lasting* fault (an uncorrected ECC error, a GPU off the bus) counts at once. A *passing* one
(clocks lowered, errors of a link in one moment) counts once it was seen at three looks within an
hour, each half a minute after the one before: eight jobs that end together look eight times.
Whoever was taken out comes back after ten minutes of good looks, twice as long each further time
within a day, and after the third only by a person's hand. What could not be looked at is neither
good nor bad: the site's rule says what follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from wirespeed.model.records import Finding

Purpose = Literal["slurm-prolog", "slurm-epilog", "slurm-health", "k8s", "k8s-node"]
Health = Literal["good", "bad", "unknown"]
Act = Literal["pass", "take", "keep", "return", "hold"]
"""keep: it is out and stays out; hold: it is bad and not taken, since too many are out."""

PASSING = frozenset({"GPU-004", "GPU-010", "GPU-011", "GPU-012", "NODE-014", "NODE-016"})
"""Findings that may be gone at the next look; so are all of error counters (COUNT-…)."""
OFTEN, OFTEN_S, APART_S = 3, 3600.0, 30.0
GOOD_S, GOOD_LOOKS = 600.0, 3
MOST_TAKES, TAKES_S = 3, 86_400.0
_KEPT = 64
_ON_ITS_WAY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the site has decided."""

    purpose: Purpose
    unknown: Literal["pass", "fail"] = "pass"
    most_taken: float = 0.05
    """Share of the fleet's nodes that may be out by gates; one node always may."""
    allow: frozenset[str] = frozenset()
    """Ids of findings that do not count."""
    dry_run: bool = False
    taint: bool = False
    """On Kubernetes: bad nodes get a taint, beside their condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look."""

    at: float
    """Seconds since 1970."""
    findings: "tuple[Finding, ...]" = ()
    """What is wrong with the node, `fail` and `warn`."""
    good: "tuple[Finding, ...]" = ()
    """What was looked at and is good."""
    passing: tuple[str, ...] = ()
    """Ids of those among them that count as passing at this look, beside PASSING."""
    missing: tuple[str, ...] = ()
    """What could not be looked at, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One look, as it is kept; or several in a row at which nothing failed."""

    at: float
    """Of the last of them."""
    health: Health
    ids: tuple[str, ...] = ()
    """Of what failed then."""
    first: float = 0.0
    """When the first of them was."""
    looks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a node's gate knows from its earlier calls."""

    looks: tuple[Remembered, ...] = ()
    """Oldest first."""
    takes: tuple[float, ...] = ()
    """When a gate took it out, or refused work for it."""
    told: str = ""
    """What the last call said, so that the same is not stored again each minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the node stands with its scheduler."""

    out: bool = False
    ours: bool = False
    """It is out because a gate took it."""
    unnamed: bool = False
    """So it is, and the scheduler has no reason of ours for it yet."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many nodes there are, and which others are out by gates."""

    nodes: int
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    act: Act
    health: Health
    why: str
    """One sentence; what is said of a good node is empty."""
    counted: "tuple[Finding, ...]" = ()
    """The findings that decided."""
    memory: Memory = field(default_factory=Memory)

    @property
    def refuses(self) -> bool:
        """Whether the node shall not have work now."""
        return self.act in ("take", "keep")


def most_out(share: float, nodes: int) -> int:
    """Nodes that may be out by gates: the share rounded down, and at least one."""
    return max(1, int(share * nodes + 1e-9))


def decide(rules: Rules, seen: Seen, memory: Memory, standing: Standing) -> Decision:
    """What to do, were the others of the fleet all in service; `held` looks at these."""
    looks = tuple(one for one in memory.looks if one.at <= seen.at)[-_KEPT + 1 :]
    takes = tuple(one for one in memory.takes if seen.at - TAKES_S < one <= seen.at)
    if takes and not standing.out and rules.purpose in ("slurm-health", "k8s-node"):
        # A person has brought it back, which is trusted; what was refused just now is on its way out.
        takes = tuple(one for one in takes if one > seen.at - _ON_ITS_WAY_S)
    failed = tuple(
        one for one in seen.findings if one.status == "fail" and one.id not in rules.allow
    )
    counted = tuple(
        one for one in failed if one.id not in lightly(seen) or often(one.id, seen.at, looks)
    )
    health: Health = "bad" if counted else "unknown" if seen.missing else "good"
    now = Remembered(
        at=seen.at, health=health, ids=tuple(sorted({one.id for one in failed})), first=seen.at
    )
    kept = replace(memory, looks=_joined(looks, now), takes=takes)
    act, why = _act(rules, seen, kept, standing, counted)
    return Decision(act=act, health=health, why=why, counted=counted, memory=kept)


def _joined(looks: tuple[Remembered, ...], now: Remembered) -> tuple[Remembered, ...]:
    """With this look; good ones in a row are one, so that an hour of them needs no more room."""
    last = looks[-1] if looks else now
    if any((one.health, one.ids) != ("good", ()) for one in (last, now)) or last is now:
        return (*looks, now)
    return (*looks[:-1], replace(now, first=last.first, looks=last.looks + 1))


def lightly(seen: Seen) -> set[str]:
    """Ids of the findings of this look that may be gone at the next."""
    ids = {one.id for one in seen.findings}
    return {id for id in ids if id in PASSING or id in seen.passing or id.startswith("COUNT-")}


def often(id: str, now: float, looks: Sequence[Remembered]) -> bool:
    """Whether a failure that is seen now was seen often enough lately."""
    times, last = 1, now
    for look in reversed(looks):
        if id in look.ids and now - OFTEN_S < look.at <= last - APART_S:
            times, last = times + 1, look.at
    return times >= OFTEN


def _act(
    rules: Rules, seen: Seen, memory: Memory, standing: Standing, counted: "Sequence[Finding]"
) -> tuple[Act, str]:
    health = memory.looks[-1].health
    bad = health == "bad" or (health == "unknown" and rules.unknown == "fail")
    if counted:
        why = "; ".join(dict.fromkeys(f"{one.id} {one.title}" for one in counted))
    else:
        why = "; ".join(seen.missing)
    if not standing.out:
        return ("take", why) if bad else ("pass", why)
    if not standing.ours:
        return "pass", f"out by others, which is left alone: {standing.reason or 'no reason given'}"
    if health != "good":
        return "keep", why
    return _return(memory)


def _return(memory: Memory) -> tuple[Act, str]:
    """Whether a node that is good now has been so for long enough."""
    if len(memory.takes) >= MOST_TAKES:
        return "keep", f"taken {len(memory.takes)} times within a day: a person must bring it back"
    since: list[Remembered] = []
    for look in reversed(memory.looks):
        if look.health != "good":
            break
        since.append(look)
    needed = GOOD_S * 2 ** max(0, len(memory.takes) - 1)
    good, looks = since[0].at - since[-1].first, sum(one.looks for one in since)
    if looks >= GOOD_LOOKS and good >= needed:
        return "return", f"good for {good:.0f} s and {looks} looks"
    return "keep", f"good for {good:.0f} of {needed:.0f} s"


def held(decision: Decision, share: float, fleet: Fleet | None) -> Decision:
    """The decision as the rest of the fleet allows it; None: the fleet could not be counted.

    Whoever cannot count takes nothing; nor where no node was counted, though ours is one.
    """
    if decision.act != "take":
        return decision
    if fleet is None or not fleet.nodes:
        why = "not taken, since nobody could count how many are out"
    elif len(fleet.taken) < (most := most_out(share, fleet.nodes)):
        return decision
    else:
        why = f"not taken: {len(fleet.taken)} of {fleet.nodes} nodes are out, at most {most} may be"
    return replace(decision, act="hold", why=f"{why}; {decision.why}")


def acts_by_exit_code(purpose: str) -> bool:
    """Whether nothing is told to the scheduler but the exit code."""
    return purpose not in ("slurm-health", "k8s-node")


def exit_code(rules: Rules, *, refuses: bool, health: str, problems: bool) -> int:
    """1 takes the node from its job where the exit code acts; nothing else does there."""
    if rules.dry_run:
        return 0
    if acts_by_exit_code(rules.purpose):
        return 1 if refuses else 0
    if problems:
        return 3
    return {"good": 0, "bad": 1, "unknown": 3}[health]
