"""Findings about the data: one for each operation, one for what the backend cannot do."""

from collections.abc import Iterable, Sequence

from wirespeed.checks.registry import check_id
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import Finding, Subject, Verification, WrongData
from wirespeed.model.units import format_size

MOST_EVIDENCE = 12


def correctness_findings(verifications: Sequence[Verification]) -> list[Finding]:
    """One finding for each operation that was tried, and CAP-001 for each reason of refusal."""
    findings = []
    for op in CATALOGUE:
        tried = [v for v in verifications if v.op == op]
        if tried:
            findings.append(_of_operation(op, tried))
    return findings + _refusals(verifications)


def _of_operation(op: str, tried: Sequence[Verification]) -> Finding:
    bad = [v for v in tried if v.wrong]
    checked = [v for v in tried if v.wrong is not None]
    if bad:
        return _wrong(op, bad, len(checked))
    if not checked:
        return Finding(
            id=check_id("COL", op),
            status="not_checked",
            title=f"{op}: data not checked",
            because=tried[0].reason,
        )
    return Finding(
        id=check_id("COL", op),
        status="pass",
        title=f"{op}: {_good(op, checked)}",
        saw=f"0 of {sum(v.elements for v in checked):,} elements wrong" if _has_data(op) else "",
        expected=_expected(op),
    )


def _good(op: str, checked: Sequence[Verification]) -> str:
    if not _has_data(op):
        return "no rank passes before all have come"
    dtypes = sorted({v.dtype for v in checked})
    kinds = dtypes[0] if len(dtypes) == 1 else f"{len(dtypes)} dtypes"
    return f"data exact in {_count(len(checked), 'configuration')} ({kinds})"


def _expected(op: str) -> str:
    if not _has_data(op):
        return "no rank passes before all have come"
    return "every element equal to the oracle, 0 ulp"


def _has_data(op: str) -> bool:
    return CATALOGUE[op].has_data


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _wrong(op: str, bad: Sequence[Verification], checked: int) -> Finding:
    errors = [error for verification in bad for error in verification.errors]
    subject = _suspect(errors)
    return Finding(
        id=check_id("COL", op),
        status="fail",
        title=_accusation(op, errors, subject),
        subject=subject,
        saw=_saw(bad[0], errors[0] if errors else None),
        expected=_expected(op),
        because=_because(errors) if _has_data(op) else "",
        costs=f"whatever was computed with {op} here; "
        f"{len(bad)} of {_count(checked, 'data check')} failed",
        fix=_fix(subject),
        next=f"wirespeed check --only {check_id('COL', op)} -v",
        evidence=tuple(_evidence(bad)),
    )


def _accusation(op: str, errors: Sequence[WrongData], subject: Subject) -> str:
    """What is wrong, where; and who is blamed for it, where that is another rank."""
    if not _has_data(op):
        return f"{op} lets ranks pass before all have come"
    ranks = sorted({error.rank for error in errors})
    if not ranks:
        return f"{op} delivers wrong data"
    where = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    blamed = subject.kind == "rank" and subject.name != where
    return f"{op} delivers wrong data on {where}" + (
        f", caused by {subject.name}" if blamed else ""
    )


def _suspect(errors: Sequence[WrongData]) -> Subject:
    """The rank that the guesses agree on; else the only rank with wrong data; else the job."""
    suspects = {error.suspect for error in errors}
    if len(suspects) == 1 and -1 not in suspects:
        return Subject("rank", f"rank {suspects.pop()}")
    ranks = {error.rank for error in errors}
    return Subject("rank", f"rank {ranks.pop()}") if len(ranks) == 1 else Subject("job", "job")


def _saw(bad: Verification, first: WrongData | None) -> str:
    if first is None:
        return f"{_count(bad.wrong or 0, 'passage')} that did not wait for every rank"
    return (
        f"{first.wrong} of {first.elements} elements wrong on rank {first.rank} ({first.host}); "
        f"{first.example}"
    )


def _because(errors: Sequence[WrongData]) -> str:
    guesses = sorted({error.guess for error in errors})
    if not guesses or guesses == ["unexplained"]:
        return "no known pattern: not stale, shifted, swapped, partial or a single bit"
    return "pattern of the wrong elements: " + "; ".join(guess for guess in guesses if guess)


def _fix(subject: Subject) -> str:
    where = f" of {subject.name}" if subject.kind == "rank" else ""
    return (
        f"look for ECC errors and in the kernel log{where}; try another version of NCCL or torch, "
        "and NCCL without plugins or offload (NCCL_NET_PLUGIN=none, NCCL_COLLNET_ENABLE=0)"
    )


def _evidence(bad: Sequence[Verification]) -> Iterable[str]:
    lines = [
        f"{_configuration(v)}: rank {e.rank}: {e.wrong} wrong, {e.guess}, "
        f"bytes {e.first_byte} to {e.last_byte}, {e.chunk}"
        for v in bad
        for e in v.errors
    ]
    hidden = len(lines) - MOST_EVIDENCE
    return lines[:MOST_EVIDENCE] + ([f"and {hidden} more"] if hidden > 0 else [])


def _configuration(v: Verification) -> str:
    parts = [v.op, v.dtype, v.redop if v.redop != "none" else "", format_size(v.size_bytes)]
    parts += ["in place" if v.in_place else "", f"root {v.root}" if v.root > 0 else ""]
    return " ".join(filter(None, parts))


def _refusals(verifications: Sequence[Verification]) -> list[Finding]:
    """One `not checked` for each reason; operations that were never checked have their own."""
    done = {v.op for v in verifications if v.wrong is not None}
    reasons: dict[str, list[str]] = {}
    for v in verifications:
        if v.wrong is None and v.op in done:
            reasons.setdefault(v.reason, []).append(f"{v.op} {v.dtype} {v.redop}")
    return [
        Finding(
            id="CAP-001",
            status="not_checked",
            title=_count(len(cases), "configuration") + " not checked",
            because=reason,
            evidence=tuple(dict.fromkeys(cases)),
        )
        for reason, cases in reasons.items()
    ]
