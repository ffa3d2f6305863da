"""Findings about data: of each operation, what the backend cannot do, and of what was trained."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wirespeed.checks.registry import by_reason, check_id, first_lines, tell
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import Finding, Subject, Verification, WrongData
from wirespeed.model.units import counted, format_size, listed


def correctness_findings(verifications: Sequence[Verification]) -> list[Finding]:
    """One finding for each operation that was tried, and CAP-001 for each reason of refusal."""
    tried = {op: [v for v in verifications if v.op == op] for op in CATALOGUE}
    found = [_of_operation(op, known) for op, known in tried.items() if known]
    return found + _refusals(verifications)


def _of_operation(op: str, tried: Sequence[Verification]) -> Finding:
    id, bad = check_id("COL", op), [v for v in tried if v.wrong]
    checked = [v for v in tried if v.wrong is not None]
    if bad:
        return _wrong(id, op, bad, len(checked))
    if not checked:
        return tell(id, "not checked", op=op, reason=tried[0].reason)
    dtypes = sorted({v.dtype for v in checked})
    return tell(
        id,
        "good",
        op=op,
        configurations=counted(len(checked), "configuration"),
        kinds=dtypes[0] if len(dtypes) == 1 else f"{len(dtypes)} dtypes",
        elements=sum(v.elements for v in checked),
    )


def _wrong(id: str, op: str, bad: Sequence[Verification], checked: int) -> Finding:
    errors = [error for verification in bad for error in verification.errors]
    subject = _suspect(errors)
    return tell(
        id,
        "wrong",
        subject=subject,
        evidence=_evidence(bad),
        op=op,
        name=id,
        where=_where(errors, subject),
        saw=_saw(bad[0], errors[0] if errors else None),
        because=_because(errors) if CATALOGUE[op].has_data else "",
        failed=len(bad),
        checks=counted(checked, "data check"),
        suspect=f" of {subject.name}" if subject.kind == "rank" else "",
    )


def _where(errors: Sequence[WrongData], subject: Subject) -> str:
    """On whom data is wrong; and who is blamed for it, where that is another rank."""
    ranks = sorted({error.rank for error in errors})
    if not ranks:
        return ""
    where = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    blamed = subject.kind == "rank" and subject.name != where
    return f" on {where}" + (f", caused by {subject.name}" if blamed else "")


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


def _evidence(bad: Sequence[Verification]) -> Iterable[str]:
    return first_lines(
        f"{_configuration(v)}: rank {e.rank}: {e.wrong} wrong, {e.guess}, "
        f"bytes {e.first_byte} to {e.last_byte}, {e.chunk}"
        for v in bad
        for e in v.errors
    )


def _configuration(v: Verification) -> str:
    parts = [v.op, v.dtype, v.redop if v.redop != "none" else "", format_size(v.size_bytes)]
    parts += ["in place" if v.in_place else "", f"root {v.root}" if v.root > 0 else ""]
    return " ".join(filter(None, parts))


def _refusals(verifications: Sequence[Verification]) -> list[Finding]:
    """One `not checked` for each reason; operations that were never checked have their own."""
    done = {v.op for v in verifications if v.wrong is not None}
    refused = by_reason(
        (v.reason, f"{v.op} {v.dtype} {v.redop}")
        for v in verifications
        if v.wrong is None and v.op in done
    )
    return [
        tell(
            "CAP-001",
            "not checked",
            evidence=dict.fromkeys(cases),
            configurations=counted(len(cases), "configuration"),
            reason=reason,
        )
        for reason, cases in refused.items()
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
