"""Baselines: set, replaced, listed, removed; private; never half written; damage is told."""

from dataclasses import replace

import pytest

import usual
from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.model.records import Run
from wirespeed.runs.named_files import (
    baselines_home,
    list_baselines,
    load_baseline,
    remove_baseline,
    set_baseline,
)


def a_run(id: str = "7f3c0000") -> Run:
    world = usual.world(usual.node(), size=1)
    return usual.run(id=id, command="bench", world=world, config={"odd": float("inf")})


def test_what_is_set_comes_back() -> None:
    runs = (replace(a_run("a"), config={}), replace(a_run("b"), config={}))
    set_baseline(runs)
    set_baseline(runs[:1], "nightly")
    assert load_baseline().runs == runs
    assert load_baseline("nightly").runs == runs[:1]
    assert list_baselines() == ["default", "nightly"]
    set_baseline(runs[1:], "nightly")
    assert load_baseline("nightly").runs == runs[1:]


def test_only_the_owner_reads_it_and_nothing_else_is_left() -> None:
    path = set_baseline([a_run()])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_one(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    path = set_baseline([replace(a_run(), config={})])

    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_room)
    with pytest.raises(StorageError, match="No space left"):
        set_baseline([a_run("b"), a_run("c")])
    monkeypatch.undo()
    monkeypatch.setenv("WIRESPEED_HOME", str(path.parents[1]))
    assert [run.id for run in load_baseline().runs] == ["7f3c0000"]
    assert list(path.parent.iterdir()) == [path]


def test_none_of_that_name() -> None:
    set_baseline([a_run()], "nightly")
    with pytest.raises(UsageError, match="no baseline 'default'") as told:
        load_baseline()
    assert "nightly" in told.value.expected
    with pytest.raises(UsageError, match="no baseline 'other'"):
        remove_baseline("other")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a\nb"])
def test_names_that_are_none(name: str) -> None:
    for call in (load_baseline, remove_baseline, lambda n: set_baseline([a_run()], n)):
        with pytest.raises(UsageError, match="no name for a baseline"):
            call(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "wirespeed.baseline/1", "runs": []}',
        '{"schema": "wirespeed.baseline/1", "runs": {"a": 1}}',
        '{"schema": "wirespeed.baseline/1", "runs": [{"id": "a"}]}',
    ],
)
def test_damage_is_told(text: str) -> None:
    set_baseline([a_run()])
    (baselines_home() / "default.json").write_text(text)
    with pytest.raises(InputError):
        load_baseline()


def test_removed() -> None:
    path = set_baseline([a_run()])
    assert remove_baseline("default") == path
    assert list_baselines() == []
