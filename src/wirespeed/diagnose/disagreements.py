"""Ranks or hosts whose logs say something else than others' where all should say the same.

The odd ones are named; where no more than half say one thing, both sides are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from wirespeed.diagnose.evidence import Seen, host_of, rank_of
from wirespeed.diagnose.scan import Hit
from wirespeed.diagnose.telling import filled
from wirespeed.records import Finding, Subject

__all__ = ["disagreements"]

_SHOWN = 4
_ONE_ONLY = ("number of channels",)
"""What differs by communicator: who says several things is of several, and is not compared."""
_Said = Mapping[str, frozenset[str]]


def disagreements(facts: Iterable[Seen]) -> list[Finding]:
    """A warning for each fact in which writers differ; pure."""
    groups: dict[str, list[Seen]] = {}
    for fact in facts:
        if fact.rule.alike:
            groups.setdefault(fact.rule.category, []).append(fact)
    return [one for name, group in groups.items() if (one := _of(name, group)) is not None]


def _of(category: str, facts: Iterable[Seen]) -> Finding | None:
    hits = [hit for fact in facts for hit in fact.hits]
    said = _said(hits)
    if category in _ONE_ONLY:
        said = {who: texts for who, texts in said.items() if len(texts) == 1}
    values = Counter(said.values())
    if len(values) < 2:
        return None
    usual, times = values.most_common(1)[0]
    most = 2 * times > len(said)
    odd = [who for who, texts in said.items() if texts != usual]
    sides = {value: [who for who, texts in said.items() if texts == value] for value in values}
    told = [f"{_some(who)}: {_words(value)}" for value, who in sides.items()]
    shown = odd if most else list(said)
    lines = {_name(hit): hit.line for hit in hits}
    lines |= {seat: hit.line for hit in hits if (seat := _seat(hit)) in said}
    return Finding(
        id="DIAG-002",
        status="warn",
        title=f"{_some(odd)}: not the same {category} as on {times} of {len(said)}"
        if most
        else f"not the same {category} everywhere: {'; '.join(told[:_SHOWN])}",
        subject=_subject(odd, hits) if most else Subject("job", "job"),
        saw="; ".join(f"{who}: {_words(said[who])}" for who in shown[:_SHOWN]),
        expected=f"{_words(usual)}, as most say" if most else "the same on every rank",
        because="another image, environment or device there",
        costs="ranks that differ slow the whole job, or fail to connect",
        fix="one image and environment for all ranks; look at what that node lacks",
        next="wirespeed check --only nodes",
        evidence=tuple(
            f"{lines[who].where}: {lines[who].text[:200]}" for who in shown[:8] if who in lines
        ),
        category="disagreement",
        confidence="likely",
    )


def _said(hits: Iterable[Hit]) -> dict[str, frozenset[str]]:
    """By host where all of its processes say the same, else by process."""
    seats: dict[tuple[str, str], set[str]] = {}
    for hit in hits:
        seats.setdefault((_name(hit), _seat(hit)), set()).add(filled(hit.rule.sentence, hit))
    within: dict[str, set[frozenset[str]]] = {}
    for (name, _), texts in seats.items():
        within.setdefault(name, set()).add(frozenset(texts))
    told: dict[str, frozenset[str]] = {}
    for (name, seat), texts in seats.items():
        told[seat if len(within[name]) > 1 else name] = frozenset(texts)
    return told


def _name(hit: Hit) -> str:
    """The host, since ranks of one share image and devices; else the rank; else the log."""
    rank = rank_of(hit)
    return host_of(hit) or (hit.line.source if rank is None else f"rank {rank}")


def _seat(hit: Hit) -> str:
    """The process: its rank or its GPU."""
    rank, host = rank_of(hit), host_of(hit)
    if rank is not None:
        return f"rank {rank}"
    return _name(hit) if hit.line.gpu is None else f"{host or hit.line.source} GPU {hit.line.gpu}"


def _words(texts: frozenset[str]) -> str:
    return " and ".join(sorted(texts))


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _subject(odd: list[str], hits: Iterable[Hit]) -> Subject:
    """The one rank or host; a process is told by its host."""
    if len(odd) > 1:
        return Subject("job", "job")
    hit = next(hit for hit in hits if odd[0] in (_name(hit), _seat(hit)))
    if odd[0].startswith("rank "):
        return Subject("rank", odd[0])
    host = host_of(hit)
    return Subject("node", host) if host else Subject("job", "job")
