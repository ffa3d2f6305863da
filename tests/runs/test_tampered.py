"""Seeds of the fuzzers of tests/programs: tampered runs and damaged files are told in words of ours."""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hostile("fuzzed files")

PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.fixture
def fuzzer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.setenv("WIRESPEED_HOME", "")
    monkeypatch.chdir(tmp_path)
    yield import_module(request.param)
    os.chdir(PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fuzzer", "count"),
    [("fuzz_runs", 300), ("fuzz_inputs", 48), ("fuzz_kubectl", 48)],
    indirect=["fuzzer"],
)
def test_no_traceback_and_no_exit_of_4(
    fuzzer: Any, count: int, tmp_path: Path, count_attacks: Any
) -> None:
    codes, wrong = fuzzer.fuzz(tmp_path, count)
    count_attacks("fuzzed files", count)
    assert not wrong
    assert codes.total() == count
    assert codes[0] > count / 10, "many are still whole enough to be shown"


@pytest.mark.parametrize("fuzzer", ["fuzz_runs"], indirect=True)
@pytest.mark.parametrize("seed", [5440, 5892, 70862, 96651, 340129])
def test_seeds_of_runs_that_ended_badly_once(fuzzer: Any, seed: int, tmp_path: Path) -> None:
    assert not fuzzer.fuzz(tmp_path, 1, seed)[1]


@pytest.mark.parametrize("fuzzer", ["fuzz_inputs"], indirect=True)
@pytest.mark.parametrize("seed", [40148, 41439])
def test_seeds_of_files_that_ended_badly_once(fuzzer: Any, seed: int, tmp_path: Path) -> None:
    assert not fuzzer.fuzz(tmp_path, 1, seed)[1]
