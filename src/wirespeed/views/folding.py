"""The default table tells each family in a line or two; -v, `wide` and the JSON tell each finding.

What passed, and what was not checked for one and the same reason, is folded into one line. Warnings and
failures stay whole; failures that repeat the first one's cause are named in one line after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from wirespeed.records import Finding, Run
from wirespeed.views.findings import family, sorted_by_family

__all__ = ["folded"]

_ASIDE = ("nodes", "gpu", "world", "stragglers")
"""Families that `bench` shows only when they warn or fail."""
_TOO_UNCERTAIN = "too uncertain"


def folded(run: Run) -> list[Finding]:
    """The findings as the default table shows them; only for showing."""
    groups: dict[str, list[Finding]] = {}
    for finding in sorted_by_family(run.findings):
        groups.setdefault(family(finding), []).append(finding)
    shown = []
    for name, members in groups.items():
        for part in _by_kind(members):
            if run.command == "bench" and name in _ASIDE and part[0].status not in ("warn", "fail"):
                continue
            shown += _one_line(name, part, run)
    return shown


def _by_kind(members: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that may share a line: passed ones, and unchecked or failed ones of one cause."""
    kinds: dict[object, list[Finding]] = {}
    for finding in members:
        kinds.setdefault(_kind(finding), []).append(finding)
    return list(kinds.values())


def _kind(finding: Finding) -> object:
    if finding.status == "pass":
        return "pass"
    reason = _TOO_UNCERTAIN if _TOO_UNCERTAIN in finding.because else finding.because
    if finding.status == "fail":
        return finding.status, finding.id.partition("-")[0], finding.subject, reason
    return (finding.status, reason) if finding.status == "not_checked" else id(finding)


def _one_line(name: str, part: Sequence[Finding], run: Run) -> list[Finding]:
    first = part[0]
    if len(part) == 1:
        return list(part)
    if first.status == "fail":
        titles = ", ".join(_subject(finding) for finding in part[1:])
        more = f"the same in {len(part) - 1} more: {titles} (-v shows each)"
        rest = Finding(id=_ids(part[1:]), status="fail", title=more, subject=first.subject)
        return [first, rest]
    if first.status == "not_checked":
        return [_unchecked(part)]
    tell = _PASSED.get(name, _passed)
    return [Finding(id=_ids(part), status="pass", title=tell(part, run))]


def _ids(part: Sequence[Finding]) -> str:
    ids = list(dict.fromkeys(finding.id for finding in part))
    if len(ids) <= 2:
        return ", ".join(ids)
    return f"{ids[0]} … {ids[-1].partition('-')[2]}"


def _subject(finding: Finding) -> str:
    """What the title is about: the operation, or what comes before `not checked`."""
    title = finding.title.partition(": ")[0]
    for words in (" not compared", " not checked", " delivers"):
        title = title.partition(words)[0]
    return title


def _unchecked(part: Sequence[Finding]) -> Finding:
    first, subjects = part[0], ", ".join(_subject(finding) for finding in part)
    if _TOO_UNCERTAIN in first.because:
        title = f"too uncertain for a verdict on a machine as noisy as now: {subjects}"
        return Finding(id=_ids(part), status="not_checked", title=f"not checked, {title}")
    compared = "not compared" in first.title
    said = f"{subjects} {'not compared between nodes' if compared else 'not checked'}"
    return replace(first, id=_ids(part), title=said, evidence=())


Tell = Callable[[Sequence[Finding], Run], str]


def _passed(part: Sequence[Finding], _: Run) -> str:
    return "; ".join(finding.title for finding in part[:3]) + (
        f"; and {len(part) - 3} more" if len(part) > 3 else ""
    )


def _exact(part: Sequence[Finding], run: Run) -> str:
    checked = sum(v.wrong is not None for v in run.verifications)
    return f"{len(part)} operations deliver exact data, in {checked} configurations"


def _timed(part: Sequence[Finding], _: Run) -> str:
    unknown = all(finding.expected.startswith("no reference") for finding in part)
    told = f"{len(part)} operations, with their intervals below"
    return told + ("; no reference is known for this hardware" if unknown else ", as expected")


_PASSED: dict[str, Tell] = {"correctness": _exact, "latency": _timed, "bandwidth": _timed}
