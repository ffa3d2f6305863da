"""Who the others wait for, where only some steps are known: of traces, and of sampled steps on GPUs.

In each step the rank that let the others wait longest is known from the collectives; that it is the
same one in k of m steps has the chance of a binomial tail, were all ranks alike.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

from wirespeed.checks.registry import tell
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import format_duration
from wirespeed.watch.own_work import Matrix

LEAST_STEPS = 3
_SHARE = 0.05
"""Of a step: who lets others wait less is not named."""
_CHANCE = 0.05
"""Above it the finding is a warning."""


def late_rank(caused: Matrix, hosts: Sequence[str], step_s: float) -> list[Finding]:
    """At most one finding. caused: [ranks, steps], seconds for which a rank let the others wait, NaN
    where not known; step_s: of a step.
    """
    columns = np.nonzero((~np.isnan(caused)).sum(axis=0) >= 2)[0]
    ranks = np.nonzero((~np.isnan(caused)).any(axis=1))[0]
    if len(columns) < LEAST_STEPS:
        return []
    waits = np.nan_to_num(caused[np.ix_(ranks, columns)])
    counts = np.bincount(np.argmax(waits, axis=0), minlength=len(ranks))
    most = int(np.argmax(counts))
    count, steps = int(counts[most]), len(columns)
    delay = float(np.median(waits[most]))
    if count * 2 <= steps or not delay >= _SHARE * step_s > 0:
        return []
    chance = len(ranks) * _tail(steps, count, 1 / len(ranks))
    rank = int(ranks[most])
    host = hosts[rank] if rank < len(hosts) else ""
    return [
        tell(
            "WATCH-001",
            "unknown",
            status="fail" if chance < _CHANCE else "warn",
            subject=Subject("rank", f"rank {rank}"),
            who=f"rank {rank} on {host}" if host else f"rank {rank}",
            delay=format_duration(delay),
            when=f"in {count} of {steps} steps",
            saw=f"the others wait {format_duration(delay)} of a step of {format_duration(step_s)} "
            f"until it comes to their collectives (median); chance {min(1.0, chance):.2g}",
            cost=f"the job is up to {step_s / max(step_s - delay, step_s / 100):.2f} times slower "
            "for it",
        )
    ]


def _tail(n: int, k: int, chance: float) -> float:
    """Of k or more of n."""
    return sum(comb(n, i) * chance**i * (1 - chance) ** (n - i) for i in range(k, n + 1))
