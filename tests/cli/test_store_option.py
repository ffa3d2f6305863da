"""`--store`: which store is meant, and what is said where it is none; no server is needed."""

import sys
from typing import Any

import pytest

READING = (
    ["runs", "list"],
    ["runs", "show", "last"],
    ["runs", "export", "--parquet", "x"],
    ["compare", "a", "b"],
    ["trend"],
    ["report", "last"],
    ["baseline", "set", "last"],
    ["reference", "add", "last"],
    ["reference", "ask", "--run", "last"],
    ["predict", "last"],
    ["nodes", "list"],
)


@pytest.mark.parametrize("words", READING)
def test_what_reads_runs_takes_it(cli: Any, says_clearly: Any, words: list[str]) -> None:
    said = says_clearly(cli.here(*words, "--store", "common"), 2)
    assert "no common store is named" in said
    assert "WIRESPEED_STORE" in said


@pytest.mark.parametrize("verb", ["check", "bench", "locate", "train", "launch"])
def test_what_stores_a_run_takes_it(cli: Any, says_clearly: Any, verb: str) -> None:
    said = says_clearly(cli.here(verb, "--store", "postgresql://a:secret@db/fleet"), 2)
    assert "holds a password" in said
    assert "secret" not in said


def test_a_variable_with_a_password_is_refused_before_anything_is_measured(
    cli: Any, says_clearly: Any
) -> None:
    env = {"WIRESPEED_STORE": "postgresql://a:secret@db/fleet"}
    said = says_clearly(cli.here("check", "-l", "quick", env=env), 2)
    assert "holds a password" in said
    assert "secret" not in said
    assert cli.folders() == []


def test_without_the_libraries(
    cli: Any, says_clearly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    env = {"WIRESPEED_STORE": "postgresql:///x"}
    said = says_clearly(cli.here("runs", "list", "--store", "common", env=env), 2)
    assert "pip install 'wirespeed[store]'" in said


def test_sending_needs_a_store(cli: Any, says_clearly: Any) -> None:
    assert cli.here("runs", "send").out == "sent 0 runs\n"
    for words in (["--all"], ["last"], ["--set-up"]):
        assert "no store is named" in says_clearly(cli.here("runs", "send", *words), 2)
