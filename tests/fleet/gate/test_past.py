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
    return [one.saw or one.title for one in last_blame({"n1"}, "n1")]


def test_nothing_is_known(home: object) -> None:
    assert blames() == []


def test_a_run_blames_until_a_later_one_judged_the_same_and_named_others(
    stored: Callable[..., str],
) -> None:
    slow = [said("LOC-001", "fail")]
    stored(ago(24 * 8), "n1", "n2", verdict="NOT READY", command="locate", findings=slow)
    (told,) = blames()
    assert f"of {ago(24 * 8)[:16].replace('T', ' ')} UTC said: n1 fail" in told
    stored(ago(4), "n1", findings=[said("COL-001", "pass")])
    assert len(blames()) == 1, "another finding"
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


def test_of_several_failures_the_newest_is_told_and_each_must_be_cleared(
    stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [f"COL-{n:03}" for n in range(1, 6)]
    for hour in range(3, 12):
        slow = [said(id, "fail") for id in every]
        stored(ago(hour), "n1", "n2", verdict="NOT READY", findings=slow)
    (told,) = blames()
    assert ago(3)[11:16] in told
    stored(ago(2), "n1", "n2", findings=[said("COL-001", "pass")])
    assert len(blames()) == 1, "four others are open"
    stored(ago(1), "n1", "n2", findings=[said(id, "pass") for id in every])
    asked: list[object] = []
    read = Index.findings
    monkeypatch.setattr(
        Index, "findings", lambda *words, **more: (asked.append(more), read(*words, **more))[1]
    )
    assert blames() == []
    assert not asked, "what is over takes no longer to read"


def test_a_gate_does_not_tell_what_gates_alone_have_seen(stored: Callable[..., str]) -> None:
    flaps = [said("COUNT-001", "fail")]
    stored(ago(2), "n1", verdict="NOT READY", command="gate", findings=flaps)
    assert blames() == []
    stored(ago(1), "n1", "n2", verdict="NOT READY", findings=flaps)
    assert len(blames()) == 1


@pytest.mark.parametrize(
    "words",
    [
        {"command": "launch", "findings": [said("DIED-001", "fail")]},
        {"command": "watch", "findings": [said("WATCH-001", "fail")]},
        {"config": {"inject": "flip:rank=1"}},
        {"findings": [said("NODE-003", "fail")]},
        {"findings": [said("ENV-001", "fail")]},
        {"findings": [said("BW-001", "fail", "link", "n1 -> n2")]},
        {"findings": [said("LOC-001", "fail", "node", "n2")]},
    ],
)
def test_what_does_not_count(words: dict[str, object], stored: Callable[..., str]) -> None:
    """A user's job, a fault injected on purpose, what the gate sees itself, settings, others."""
    base: dict[str, object] = {"at": ago(1), "findings": [said("LOC-001", "fail")]}
    told = base | words
    stored(told.pop("at"), "n1", "n2", verdict="NOT READY", **told)
    assert blames() == []
