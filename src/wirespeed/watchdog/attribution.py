"""Who is to blame: from what the session knows to findings. Pure; the findings are in findings.py.

The first cause is named, never its consequences. In this order:

1. a person or signal interrupted the run, or two processes claim one rank;
2. the earliest of: a rank that died, a rank that raised something other than "the connection
   broke" or "timed out" (a dead or stuck rank makes its peers raise those);
3. a rank that never connected;
4. a rank that sends no heartbeat and does not answer (stopped, or its interpreter is stuck);
5. a rank still in an earlier phase of starting than the others;
6. ranks that gave different operations the same number;
7. a rank that has begun fewer operations than the others;
8. an exception of the kind in 2 for which there was no other explanation;
9. all wait in the same operation: nobody is to blame, the network stalls.
"""

import re
from collections import Counter
from collections.abc import Sequence

from wirespeed.model.records import Finding
from wirespeed.watchdog import findings
from wirespeed.watchdog.facts import (
    PHASES,
    STARTUP_PHASES,
    Death,
    Facts,
    Raised,
    RankStatus,
)

SAME_MOMENT_S = 0.1
"""Two ends closer than this have no order."""

_CONSEQUENCES = re.compile(
    "connection (?:reset|closed|refused|aborted|was likely closed)|communicator was aborted|"
    "broken pipe|(?:closed|reset) by peer|remote (?:process exited|error)|socket closed|end of file|"
    "timed out|timeout|no route to host|network is unreachable|session process is gone",
    re.IGNORECASE,
)
"""What Gloo (`Connection closed by peer`), NCCL (`remote process exited or there was a network
error`) and TCPStore (`recvValue failed … connection was likely closed`) say when a peer is gone."""

_STUCK_S = 2.5
"""Seconds without progress before a rank that is behind explains another's exception."""

_FOLLOWING_SIGNALS = (-15, -6)
"""SIGTERM: a launcher ends the others; SIGABRT: NCCL's watchdog or C++ on a broken connection."""


def blame(facts: Facts) -> tuple[Finding, ...]:
    """The findings, first cause first; warnings (odd exits after results, strangers) come last."""
    return (*_cause(facts), *findings.abnormal_exits(facts), *findings.strangers(facts))


def is_consequence(error: str) -> bool:
    """Whether the message only says that a peer or the network went away."""
    return _CONSEQUENCES.search(error) is not None


def _cause(facts: Facts) -> tuple[Finding, ...]:
    if facts.interrupted is not None:
        return (findings.interrupted(facts),)
    if facts.claims is not None:
        return (findings.claimed_twice(facts, *facts.claims),)
    if ended := _first_end(facts):
        return ended
    if not facts.overdue and not facts.raised:
        return ()
    return _hang(facts)


def _first_end(facts: Facts) -> tuple[Finding, ...]:
    raised = sorted(
        (one for one in facts.raised if not is_consequence(one.error)), key=lambda one: one.at
    )
    deaths = sorted(facts.deaths, key=lambda one: one.at)
    if deaths and (not raised or deaths[0].at <= raised[0].at + SAME_MOMENT_S):
        first = _first_deaths(deaths)
        return findings.died(facts, first, later=[d for d in deaths if d not in first])
    return (findings.raised(facts, raised[0]),) if raised else ()


def _first_deaths(deaths: Sequence[Death]) -> list[Death]:
    """The deaths of the first moment, without those that look like consequences of another."""
    together = [one for one in deaths if one.at <= deaths[0].at + SAME_MOMENT_S]
    causes = [one for one in together if not _may_follow(one)]
    return causes or together[:1]


def _may_follow(death: Death) -> bool:
    code = death.returncode
    return code is None or code >= 0 or code in _FOLLOWING_SIGNALS


def _hang(facts: Facts) -> tuple[Finding, ...]:
    # Those who wait for a missing rank may give up, and raise, before its own time is over.
    missing = [
        s for s in facts.statuses if not s.connected and (facts.raised or s.rank in facts.overdue)
    ]
    if missing:
        return findings.never_joined(facts, missing)
    silent = [s for s in facts.statuses if s.rank in facts.silent]
    if silent:
        return findings.silent(facts, silent)
    if late := _late_starters(facts):
        return findings.never_joined(facts, late)
    if parting := _parting(facts.statuses):
        return findings.another_operation(facts, *parting)
    return _behind(facts) or _unexplained(facts) or (findings.all_wait(facts),)


def _late_starters(facts: Facts) -> list[RankStatus]:
    """Ranks in an earlier phase of starting than the rest, when that is what is overdue."""
    if not any(s.rank in facts.overdue and s.phase in STARTUP_PHASES for s in facts.statuses):
        return []
    order = {s.rank: PHASES.index(s.phase) for s in facts.statuses}
    lowest = min(order.values())
    late = [s for s in facts.statuses if order[s.rank] == lowest]
    return late if len(late) < len(facts.statuses) else []


def _parting(statuses: Sequence[RankStatus]) -> tuple[int, dict[str, list[RankStatus]]] | None:
    """The first operation number to which ranks gave different labels, and who gave which."""
    labels: dict[int, dict[str, list[RankStatus]]] = {}
    for status in statuses:
        known = dict(status.recent)
        if status.sequence:
            known[status.sequence] = status.op
        for number, label in known.items():
            labels.setdefault(number, {}).setdefault(label, []).append(status)
    return next(((n, labels[n]) for n in sorted(labels) if len(labels[n]) > 1), None)


def _behind(facts: Facts) -> tuple[Finding, ...]:
    """Ranks at the earliest place; or, where most are there, those few that are ahead."""
    places = {s.rank: (s.sequence, s.phase == "finished") for s in facts.statuses}
    counts = Counter(places.values())
    if len(counts) < 2:
        return ()
    lowest = min(counts)
    low = [s for s in facts.statuses if places[s.rank] == lowest]
    if any(s.phase == "failed" or (facts.raised and s.since < _STUCK_S) for s in low):
        return ()
    if len(low) * 2 <= len(facts.statuses):
        return findings.behind(facts, low)
    return findings.ahead(facts, [s for s in facts.statuses if places[s.rank] != lowest])


def _unexplained(facts: Facts) -> tuple[Finding, ...]:
    """No other cause was found for an exception that looked like a consequence."""
    first: Raised | None = min(facts.raised, key=lambda one: one.at, default=None)
    return (findings.raised(facts, first),) if first else ()
