"""10,000 cluster files made from the schema, damaged, and raw: clear errors only, in bounded time."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hostile_files as hostile

pytestmark = pytest.mark.hostile("fuzzed files")

SHARES = {"files": 2000, "damaged": 3000, "texts": 2500, "raw": 2500}


def run(kind: str, check: Any, count_attacks: Any) -> dict[str, int]:
    """How many were looked at, how many were read."""
    counts = {"all": 0, "read": 0}
    strategy: st.SearchStrategy[Any] = getattr(hostile, kind)()

    @settings(
        max_examples=SHARES[kind],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def look(made: Any) -> None:
        counts["all"] += 1
        counts["read"] += check(hostile, made)

    look()
    count_attacks("fuzzed files", counts["all"])
    return counts


def _read(hostile: ModuleType, made: Any) -> bool:
    text = made if isinstance(made, str) else hostile.written(made, block=False)
    return hostile.check_text(text) is not None


def _valid(hostile: ModuleType, made: Any) -> bool:
    return hostile.check_valid(made) is not None


def test_what_the_schema_allows(count_attacks: Any) -> None:
    counts = run("files", _valid, count_attacks)
    assert counts["all"] >= SHARES["files"]
    assert counts["read"] > counts["all"] / 2, "most of these are right"


def test_damaged_files(count_attacks: Any) -> None:
    counts = run("damaged", _read, count_attacks)
    assert counts["all"] >= SHARES["damaged"]
    assert counts["all"] / 4 < counts["all"] - counts["read"], "most of these are wrong"


def test_texts_with_hostile_pieces(count_attacks: Any) -> None:
    assert run("texts", _read, count_attacks)["all"] >= SHARES["texts"]


def test_raw_text(count_attacks: Any) -> None:
    counts = run("raw", _read, count_attacks)
    assert counts["all"] >= SHARES["raw"]
    assert counts["read"] < counts["all"] / 2


def test_together_they_are_ten_thousand() -> None:
    assert sum(SHARES.values()) >= 10_000
