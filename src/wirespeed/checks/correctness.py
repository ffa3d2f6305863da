"""Findings about data: of each operation, what the backend cannot do, and of what was trained."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wirespeed.checks.registry import check_id, tell
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import Finding, Subject, Verification, WrongData
from wirespeed.model.units import counted, format_size, listed

_MOST_EVIDENCE = 12
_EXACT, _ALL_WAIT = (
    "every element equal to the oracle, 0 ulp",
    "no rank passes before all have come",
)


def correctness_findings(verifications: Sequence[Verification]) -> list[Finding]:
    """One finding for each operation that was tried, and CAP-001 for each reason of refusal."""
    tried = {op: [v for v in verifications if v.op == op] for op in CATALOGUE}
    found = [_of_operation(op, known) for op, known in tried.items() if known]
    return found + _refusals(verifications)


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
        expected=_EXACT if _has_data(op) else _ALL_WAIT,
    )


def _good(op: str, checked: Sequence[Verification]) -> str:
    if not _has_data(op):
        return _ALL_WAIT
    dtypes = sorted({v.dtype for v in checked})
    kinds = dtypes[0] if len(dtypes) == 1 else f"{len(dtypes)} dtypes"
    return f"data exact in {counted(len(checked), 'configuration')} ({kinds})"


def _has_data(op: str) -> bool:
    return CATALOGUE[op].has_data


def _wrong(op: str, bad: Sequence[Verification], checked: int) -> Finding:
    errors = [error for verification in bad for error in verification.errors]
    subject = _suspect(errors)
    return Finding(
        id=check_id("COL", op),
        status="fail",
        title=_accusation(op, errors, subject),
        subject=subject,
        saw=_saw(bad[0], errors[0] if errors else None),
        expected=_EXACT if _has_data(op) else _ALL_WAIT,
        because=_because(errors) if _has_data(op) else "",
        costs=f"whatever was computed with {op} here; "
        f"{len(bad)} of {counted(checked, 'data check')} failed",
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
    return f"{op} delivers wrong data on {where}{f', caused by {subject.name}' if blamed else ''}"


def _suspect(errors: Sequence[WrongData]) -> Subject:
    """The rank that the guesses agree on; else the only rank with wrong data; else the job."""
    suspects, ranks = {error.suspect for error in errors}, {error.rank for error in errors}
    one = suspects if len(suspects) == 1 and -1 not in suspects else ranks
    return Subject("rank", f"rank {min(one)}") if len(one) == 1 else Subject("job", "job")


def _saw(bad: Verification, first: WrongData | None) -> str:
    if first is None:
        return f"{counted(bad.wrong or 0, 'passage')} that did not wait for every rank"
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
    hidden = len(lines) - _MOST_EVIDENCE
    return lines[:_MOST_EVIDENCE] + ([f"and {hidden} more"] if hidden > 0 else [])


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
            title=counted(len(cases), "configuration") + " not checked",
            because=reason,
            evidence=tuple(dict.fromkeys(cases)),
        )
        for reason, cases in reasons.items()
    ]


def proof_findings(proofs: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """One failing finding a strategy that trains differently; one passing for the others."""
    right = [proof for proof in proofs if proof["equal"]]
    found = [_differs(proof) for proof in proofs if not proof["equal"]]
    if right:
        names = ", ".join(dict.fromkeys(proof["label"] for proof in right))
        found.append(tell("TRAIN-001", "equal", names=names, proof=right[0]))
    return found


def _differs(proof: Mapping[str, Any]) -> Finding:
    return tell("TRAIN-001", "differs", which=listed(proof["names"], 3), proof=proof)


def trouble_finding(data: Mapping[str, Any]) -> Finding:
    """A strategy that could not be measured to its end, as a rank told it."""
    rank = data.get("rank", -1)
    said = {
        name: data[name] for name in ("saw", "expected", "because", "fix", "next") if name in data
    }
    return Finding(
        id=data["id"],
        status=data["status"],
        title=data["title"],
        subject=Subject("rank", f"rank {rank}") if rank >= 0 else Subject("job", "job"),
        **said,
    )
