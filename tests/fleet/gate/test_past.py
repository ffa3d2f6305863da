"""What earlier runs say of a node, from a real index."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from wirespeed.fleet.gate.past import last_blame
from wirespeed.model.records import Finding, Subject
from wirespeed.runs.index import Index

NOW = time.time()


def ago(hours: float) -> str:
    return (
        datetime.fromtimestamp(NOW - 3600 * hours, UTC).isoformat(timespec="milliseconds")[:23]
        + "Z"
    )


def said(id: str, status: str, kind: str = "node", name: str = "n1") -> Finding:
    who = Subject(kind, name) if status == "fail" else Subject("job", "job")  # type: ignore[arg-type]
    return Finding(id=id, status=status, title=f"{name} {status}", subject=who)  # type: ignore[arg-type]


def blames() -> list[str]:
    return [one.saw or one.title for one in last_blame({"n1"}, "n1", NOW)]


def test_nothing_is_known(home: object) -> None:
    assert blames() == []


def test_a_check_blames_and_a_later_one_of_that_family_clears(stored: Callable[..., str]) -> None:
    slow = [said("LOC-001", "fail")]
    stored(ago(5), "n1", "n2", verdict="NOT READY", command="locate", findings=slow)
    (told,) = blames()
    assert f"of {ago(5)[:16].replace('T', ' ')} UTC said: n1 fail" in told
    stored(ago(4), "n1", findings=[said("COL-001", "pass")])
    assert len(blames()) == 1, "another family"
    stored(ago(3), "n2", "n3", findings=[said("LOC-001", "pass")])
    assert len(blames()) == 1, "without it"
    stored(ago(2), "n1", "n3", command="locate", findings=[said("LOC-001", "pass")])
    assert blames() == []


def test_a_device_that_multiplied_wrong_is_blamed_until_it_is_right(
    stored: Callable[..., str],
) -> None:
    wrong = [said("COMP-001", "fail"), said("COL-001", "pass")]
    stored(ago(5), "n1", "n2", verdict="NOT READY", findings=wrong)
    stored(ago(4), "n1", "n2", findings=[said("COL-001", "pass")])
    assert len(blames()) == 1
    stored(ago(3), "n1", "n2", findings=[said("COMP-001", "pass")])
    assert blames() == []


def test_a_week_of_blame_that_is_over_takes_no_longer_to_read(
    stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest blame of a family is looked at: what clears it clears all before it."""
    for hour in range(2, 12):
        slow = [said(f"COL-{n:03}", "fail") for n in range(1, 6)]
        stored(ago(hour), "n1", "n2", verdict="NOT READY", findings=slow)
    (told,) = blames()
    assert ago(2)[11:16] in told
    stored(ago(1), "n1", "n2", findings=[said("COL-001", "pass")])
    asked: list[object] = []
    read = Index.findings
    monkeypatch.setattr(
        Index, "findings", lambda *words, **more: (asked.append(more), read(*words, **more))[1]
    )
    assert blames() == []
    assert len(asked) == 2, "who was blamed, and what came after the last time"


@pytest.mark.parametrize(
    "words",
    [
        {"at": ago(24 * 8)},
        {"command": "watch"},
        {"config": {"inject": "flip:rank=1"}},
        {"findings": [said("NODE-003", "fail")]},
        {"findings": [said("ENV-001", "fail")]},
        {"findings": [said("BW-001", "fail", "link", "n1 -> n2")]},
        {"findings": [said("LOC-001", "fail", "node", "n2")]},
    ],
)
def test_what_does_not_count(words: dict[str, object], stored: Callable[..., str]) -> None:
    """Too long ago, a user's job, a fault acted out, what the gate sees itself, settings, others."""
    base: dict[str, object] = {"at": ago(1), "findings": [said("LOC-001", "fail")]}
    told = base | words
    stored(told.pop("at"), "n1", "n2", verdict="NOT READY", **told)
    assert blames() == []
