"""`bench --repeat`: several runs, what is said of them, and where it cannot be."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import usual
from wirespeed.cli import run as wirespeed
from wirespeed.cli.repeating import repeat
from wirespeed.errors import UsageError
from wirespeed.model.records import Run
from wirespeed.runs.named_files import set_baseline
from wirespeed.runs.store import save

CONFIG = {"ops": ["all_reduce"], "min_bytes": "1M", "output": [], "repeat": 3}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def runs_with(codes: Sequence[int], minute: int = 0, op: str = "all_reduce") -> list[Run]:
    return [
        usual.run(
            id=f"{minute:02x}{k:06x}", command="bench", exit_code=code, config=CONFIG,
            started=f"2026-11-03T10:{minute + k:02d}:00.000Z",
            measurements=(usual.measurement(half=0.01, op=op),),
        )
        for k, code in enumerate(codes)
    ]  # fmt: skip


def executed(runs: list[Run]) -> Callable[[Callable[[Run], object]], int]:
    """What stores the next of these runs each time, as `execute` does."""
    waiting = iter(runs)

    def execute(on_end: Callable[[Run], object]) -> int:
        run = next(waiting)
        save(run)
        on_end(run)
        return run.exit_code

    return execute


@pytest.mark.parametrize(
    ("codes", "made", "code"),
    [
        ([0, 0, 0], 3, 0),
        ([0, 3, 0], 3, 3),
        ([3, 1, 0], 3, 1),
        ([0, 130, 0], 2, 130),
        ([1, 130, 0], 2, 1),
        ([3, 130, 0], 2, 130),
    ],
)
def test_it_ends_with_their_joint_code_and_stops_when_interrupted(
    codes: list[int], made: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = runs_with(codes)
    assert repeat(3, executed(runs), CONFIG, quiet=False) == code
    said = capsys.readouterr().err
    assert f"run {made} of 3" in said
    assert "run 3 of 3" in said or made < 3
    kept = [run.id for run in runs[:made] if run.exit_code != 130]
    assert f"{len(kept)}{' of 3' if len(kept) < 3 else ''} runs: {' '.join(kept)}" in said


def last_line(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> str:
    repeat(len(runs), executed(runs), CONFIG, quiet=False)
    return capsys.readouterr().err.splitlines()[-1]


def test_the_next_command_decides(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (runs_with([0, 0, 0], minute) for minute in (0, 10, 20))
    ids = [" ".join(run.id for run in runs) for runs in (first, second, third)]
    assert last_line(first, capsys) == f"next: wirespeed baseline set {ids[0]}"
    sides = [one.replace(" ", ",") for one in ids]
    assert last_line(second, capsys) == f"next: wirespeed compare {sides[0]} {sides[1]}"
    set_baseline(first)
    assert last_line(third, capsys) == f"next: wirespeed compare {sides[2]} --baseline"
    others = runs_with([0, 0, 0], 30, op="broadcast")
    assert last_line(others, capsys).startswith("next: wirespeed baseline set"), "of other figures"


def test_too_few_runs_ask_for_the_missing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    again = "next: wirespeed bench all_reduce --min-bytes 1M"
    assert last_line(runs_with([0, 0]), capsys) == again
    assert last_line(runs_with([0, 130, 0], 10), capsys) == f"{again} --repeat 2"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert repeat(3, executed(runs_with([0, 0, 0])), CONFIG, quiet=True) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["all_reduce", "-o", "json"], "-o jsonl"),
        (["all_reduce", "--env", "A=1,2"], "--rounds N"),
        (["all_reduce", "--ranks", "2,4"], "one world"),
        (["gemm"], "--repeat with gemm"),
        (["--shape", "llama-8b"], "--repeat with --shape"),
        (["--replay", "x"], "--repeat with --replay"),
        (["all_reduce", "--repeat", "0"], "--repeat"),
    ],
)
def test_what_cannot_be_repeated_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wirespeed(["bench", "--repeat", "3", *words]) == 2
    assert said in capsys.readouterr().err


def test_inside_a_world_of_somebody_else_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(UsageError, match="inside a world of 2 ranks"):
        repeat(3, executed(runs_with([0, 0, 0])), CONFIG, quiet=True)
