"""`check` and `diagnose` know the same of every Xid number: one table."""

from pathlib import Path

import pytest

from wirespeed.checks.gpu_faults import meaning_of
from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.rule_file import read_rules
from wirespeed.diagnose.rules import RULES
from wirespeed.diagnose.sources import Source
from wirespeed.reference.xids import LINK_BY_TEXT, XIDS, Kind

KERNEL = [
    one.rule for one in read_rules((RULES.folder / "kernel.yaml").read_bytes(), "kernel.yaml")
]
CATEGORIES = {
    "lost": "gpu-lost",
    "memory": "gpu-memory-error",
    "gsp": "gpu-gsp",
    "link": "nvlink-error",
    "failed": "gpu-failed",
    "address": "gpu-program-error",
}


def codes_of(kind: Kind) -> tuple[int, ...]:
    """The numbers of a kind, rising; of `link` also those whose text decides."""
    found = {code for code, xid in XIDS.items() if xid.kind == kind}
    return tuple(sorted(found | set(LINK_BY_TEXT) if kind == "link" else found))


def known_codes() -> tuple[int, ...]:
    """All numbers that the table or the text of the error decides."""
    return tuple(sorted({*XIDS, *LINK_BY_TEXT}))


def first(folder: Path, code: int, text: str = "x") -> tuple[str, str]:
    """Status and category of what diagnose says of one kernel line; a pass for nothing."""
    path = folder / "kernel.log"
    path.write_text(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=8, name=python, {text}\n")
    found = diagnose([Source("kernel.log", path)], KERNEL).findings[0]
    return found.status, found.category


@pytest.mark.parametrize("code", sorted(XIDS))
def test_both_say_the_same_of_each_number(tmp_path: Path, code: int) -> None:
    kind = XIDS[code].kind
    severity = meaning_of("Xid", code, "x").severity
    assert severity == XIDS[code].severity
    status, category = first(tmp_path, code)
    if kind in CATEGORIES:
        assert (status, category) == ("fail", CATEGORIES[kind])
    elif kind in ("watch", "ended"):
        assert status == "warn"  # alone: what was before is not in the log
    else:
        assert (status, severity) == ("not_checked", "ignore")


@pytest.mark.parametrize("code", LINK_BY_TEXT)
def test_where_the_text_decides(tmp_path: Path, code: int) -> None:
    for text, severity, status in (
        ("Fatal XC0", "fail", "fail"),
        ("Nonfatal XC0", "warn", "not_checked"),
    ):
        assert meaning_of("Xid", code, text).severity == severity
        assert first(tmp_path, code, text)[0] == status


def test_a_number_that_nobody_knows(tmp_path: Path) -> None:
    unknown = next(code for code in range(1, 400) if code not in known_codes())
    assert meaning_of("Xid", unknown, "x").severity == "warn"
    assert first(tmp_path, unknown) == ("warn", "gpu-failed")


def test_kinds_are_apart_and_whole() -> None:
    kinds = {xid.kind for xid in XIDS.values()}
    counted = [code for kind in kinds for code in codes_of(kind)]
    assert sorted(counted) == list(known_codes())


@pytest.mark.parametrize("code", known_codes())
def test_no_xid_follows_from_itself(tmp_path: Path, code: int) -> None:
    """Lines of one number on one GPU are one trouble, however many rules know them."""
    path = tmp_path / "kernel.log"
    line = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=8, name=python, x\n"
    path.write_text(line * 3)
    for found in diagnose([Source("kernel.log", path)]).findings:
        follows = [one for one in found.evidence if one.startswith("follows from it: ")]
        assert [one for one in follows if f"Xid {code}" in one.partition(";")[0]] == []


def test_a_gpu_that_fell_off_the_bus_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "kernel.log"
    path.write_text(
        "[  100.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=p, GPU has fallen off the bus.\n"
        "[  100.2] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n"
        "[  100.3] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x1\n"
    )
    first = diagnose([Source("kernel.log", path)]).findings[0]
    follows = [one for one in first.evidence if one.startswith("follows from it: ")]
    assert first.id == "KERN-056"
    assert len(follows) == 1 and "Xid 154" in follows[0]
