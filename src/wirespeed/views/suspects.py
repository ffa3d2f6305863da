"""Which nodes, links and rails the findings of a run name, so that a picture can mark them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirespeed.records import Finding

__all__ = ["Suspects", "suspects_of"]

_CULPRIT = "LOC-"
_COMPUTES = "LOC-007"
"""Slow without any traffic: nothing is wrong with the figures of its pairs."""
_GROUP = "uplink of "
_ADAPTER = re.compile(r"rail (\d+) of (.+)", re.DOTALL)
_RAIL = re.compile(r"rail (\d+)")
_BETWEEN = " <-> "
_MORE = re.compile(r" and \d+ more$")


@dataclass(frozen=True, slots=True)
class Suspects:
    """Names as in `Located.nodes`; `links` are pairs of them."""

    nodes: tuple[str, ...] = ()
    """Their own traffic is slow: the whole row and column is theirs."""
    members: tuple[str, ...] = ()
    """Part of a slow group, the end of a slow link, or slow at computing only."""
    links: tuple[tuple[str, str], ...] = ()
    rails: tuple[int, ...] = ()
    partial: bool = False
    """A finding names a group by its first nodes only (`a, b, c, d and 12 more`)."""

    @property
    def named(self) -> tuple[str, ...]:
        """Every node that a finding names, once."""
        return tuple(dict.fromkeys((*self.nodes, *self.members)))


def suspects_of(findings: Iterable[Finding], nodes: Sequence[str]) -> Suspects:
    """What the culprits' findings name; names that are none of `nodes` are left out.

    A finding names at most four nodes of a group in its subject; `partial` tells that there are more.
    """
    known = frozenset(nodes)
    whole: list[str] = []
    members: list[str] = []
    links: list[tuple[str, str]] = []
    rails: list[int] = []
    culprits = [one for one in findings if _is_culprit(one)]
    for finding in culprits:
        kind, name = finding.subject.kind, finding.subject.name
        if kind == "rail":
            number, host = _rail(name)
            rails += number
            whole += [one for one in host if one in known]
        elif kind == "link" and _BETWEEN in name:
            links += [pair for pair in [_ends(name)] if known.issuperset(pair)]
        elif kind == "link":
            members += _listed(name.removeprefix(_GROUP), known)
        elif kind in ("node", "rank"):
            (members if finding.id == _COMPUTES else whole).extend(_listed(name, known))
    members += [end for pair in links for end in pair]
    partial = any(_MORE.search(finding.subject.name) for finding in culprits)
    return Suspects(_once(whole), _once(members), tuple(links), tuple(sorted(set(rails))), partial)


def _is_culprit(finding: Finding) -> bool:
    return finding.status in ("fail", "warn") and finding.id.startswith(_CULPRIT)


def _rail(name: str) -> tuple[list[int], list[str]]:
    """`rail 1` and `rail 1 of node-3`: the rail's number, and the node if it is of one only."""
    if found := _ADAPTER.fullmatch(name):
        return [int(found[1])], [found[2]]
    found = _RAIL.fullmatch(name)
    return ([int(found[1])] if found else []), []


def _ends(name: str) -> tuple[str, str]:
    first, _, second = name.partition(_BETWEEN)
    return first, second


def _listed(name: str, known: frozenset[str]) -> list[str]:
    """`a, b and 2 more` as names; a name that holds such words itself is taken whole."""
    if name in known:
        return [name]
    return [part for part in _MORE.sub("", name).split(", ") if part in known]


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
