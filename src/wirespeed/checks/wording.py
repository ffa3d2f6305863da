"""What the world and the choices of a run add to texts of findings that know neither."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from wirespeed.checks.node_health import shared_cpus
from wirespeed.model.records import Choice, Finding, World

_OTHERS = {"gloo": re.compile(r"\bNCCL_"), "nccl": re.compile(r"\bGLOO_")}
"""By backend: variables of the other library, which it does not read."""
_OF_VARIABLES = ("ENV-", "NET-002")
"""Ids of findings about variables that are set, which name them whatever the backend is."""
_CLAUSE = "; "
"""Between pieces of advice."""


def fitted(findings: Iterable[Finding], world: World, choices: Sequence[Choice]) -> list[Finding]:
    """Return the findings with advice for this backend only, and with who chose the ranks."""
    return [_for_backend(_with_origin(one, world, choices), world.backend) for one in findings]


def _for_backend(finding: Finding, backend: str) -> Finding:
    others = _OTHERS.get(backend)
    if others is None or finding.id.startswith(_OF_VARIABLES):
        return finding
    kept = [clause for clause in finding.fix.split(_CLAUSE) if not others.search(clause)]
    command = "" if others.search(finding.next) else finding.next
    # Where nothing else is advised, that remains: better than no word.
    return replace(finding, fix=_CLAUSE.join(kept) or finding.fix, next=command)


def _with_origin(finding: Finding, world: World, choices: Sequence[Choice]) -> Finding:
    if finding.id != "NODE-015" or finding.status != "not_checked":
        return finding
    ranks = next((one for one in choices if one.name == "ranks"), None)
    if ranks is None:
        return finding
    origin = "as requested" if ranks.reason == "asked for" else "default"
    return shared_cpus(world, f" ({origin})") or finding
