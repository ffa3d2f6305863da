"""Ranks or hosts whose logs say something else than most others' where all should say the same."""

from collections import Counter
from collections.abc import Iterable

from wirespeed.diagnose.evidence import Seen, host_of, rank_of
from wirespeed.diagnose.scan import Hit
from wirespeed.diagnose.telling import filled
from wirespeed.records import Finding, Subject

__all__ = ["disagreements"]

_FEWEST = 3
"""Writers from which on there is a majority."""
_MAJORITY = 0.6


def disagreements(facts: Iterable[Seen]) -> list[Finding]:
    """A warning for each fact in which a few writers differ from most; pure."""
    groups: dict[str, list[Seen]] = {}
    for fact in facts:
        if fact.rule.alike:
            groups.setdefault(fact.rule.category, []).append(fact)
    return [one for name, group in groups.items() if (one := _of(name, group)) is not None]


def _of(category: str, facts: Iterable[Seen]) -> Finding | None:
    said: dict[str, set[str]] = {}
    lines: dict[str, Hit] = {}
    for hit in (hit for fact in facts for hit in fact.hits):
        if who := _writer(hit):
            said.setdefault(who, set()).add(filled(hit.rule.sentence, hit))
            lines[who] = hit
    values = Counter(", ".join(sorted(texts)) for texts in said.values())
    if len(said) < _FEWEST or len(values) < 2:
        return None
    usual, times = values.most_common(1)[0]
    if times < _MAJORITY * len(said):
        return None
    odd = [who for who, texts in said.items() if ", ".join(sorted(texts)) != usual]
    told = [f"{who}: {', '.join(sorted(said[who]))}" for who in odd]
    return Finding(
        id="DIAG-002",
        status="warn",
        title=f"{', '.join(odd[:4])}: not the same {category} as on {times} of {len(said)}",
        subject=_subject(odd, lines),
        saw="; ".join(told[:4]),
        expected=f"{usual}, as most say",
        because="another image, environment or device there",
        costs="ranks that differ slow the whole job, or fail to connect",
        fix="one image and environment for all ranks; look at what that node lacks",
        next="wirespeed check --only nodes",
        evidence=tuple(f"{lines[who].line.where}: {lines[who].line.text[:200]}" for who in odd[:8]),
        category="disagreement",
        confidence="likely",
    )


def _writer(hit: Hit) -> str:
    """The host, since ranks of one share image and devices; else the rank."""
    rank = rank_of(hit)
    return host_of(hit) or ("" if rank is None else f"rank {rank}")


def _subject(odd: list[str], lines: dict[str, Hit]) -> Subject:
    if len(odd) > 1:
        return Subject("job", "job")
    return Subject("node" if host_of(lines[odd[0]]) else "rank", odd[0])
