"""Every id that a finding can have is explained, and `--only` selects by id, prefix and family."""

import re
from pathlib import Path

import pytest

import wirespeed
from wirespeed.checks.registry import CHECKS, EXPLAINED, check_id, facts_suffice, select
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import UsageError

ID = re.compile(r'"([A-Z]{2,6}-\d{3})"')


def test_every_id_in_the_source_is_explained() -> None:
    """Those of `diagnose` are rules, which explain themselves: `wirespeed diagnose --explain ID`."""
    package = Path(wirespeed.__file__).parent
    files = [file for file in package.rglob("*.py") if "diagnose" not in file.parts[-3:]]
    texts = [file.read_text() for file in files if file.name != "diagnose.py"]
    found = {id for text in texts for id in ID.findall(text)}
    assert len(found) > 20
    assert found - set(EXPLAINED) == set()


def test_each_entry_says_enough_in_one_line_and_in_full() -> None:
    for id, check in EXPLAINED.items():
        assert check.id == id
        assert 8 < len(check.title) < 90, check.title
        assert "\n" not in check.title
        assert not check.title.endswith(".")
        assert len(check.explanation) > 60


IDS = {
    "all_reduce": "COL-001 LAT-001 BW-001",
    "reduce_scatter": "COL-002 LAT-002 BW-002",
    "all_gather": "COL-003 LAT-003 BW-003",
    "all_to_all": "COL-004 LAT-004 BW-004",
    "all_to_all_v": "COL-005 LAT-005 BW-005",
    "broadcast": "COL-006 LAT-006 BW-006",
    "reduce": "COL-007 LAT-007 BW-007",
    "gather": "COL-008 LAT-008 BW-008",
    "scatter": "COL-009 LAT-009 BW-009",
    "send_recv": "COL-010 LAT-010 BW-010",
    "pair_exchange": "COL-011 LAT-011 BW-011",
    "barrier": "COL-012 LAT-012",
}
"""Promised: a collective keeps its ids for good, wherever it stands in the catalogue."""


def test_a_collective_keeps_its_ids() -> None:
    found = {
        op: " ".join(
            id for prefix in ("COL", "LAT", "BW") if (id := check_id(prefix, op)) in CHECKS
        )
        for op in CATALOGUE
    }
    assert {op: found[op] for op in IDS} == IDS
    assert len(set(found.values())) == len(CATALOGUE)
    for op, ids in found.items():
        assert all(CHECKS[id].title.startswith(op) for id in ids.split())


def test_what_only_other_verbs_give_is_explained_and_not_selected() -> None:
    others = set(EXPLAINED) - set(CHECKS)
    imported = {f"IMP-{number:03}" for number in range(1, 15)}
    trained = {f"TRAIN-{number:03}" for number in range(1, 13)}
    located = {f"LOC-{number:03}" for number in range(1, 10)}
    launched = {*(f"LAUNCH-{number:03}" for number in range(1, 11)), "SLURM-101", "SLURM-102"}
    settings = {f"SET-{number:03}" for number in range(1, 4)}
    settings |= {f"SOAK-{number:03}" for number in range(1, 8)}
    watched = {id for id in others if id.startswith("WATCH-")}
    clusters = {id for id in others if id.startswith("CLUSTER-")}
    assert len(clusters) > 30
    assert others == imported | located | trained | launched | settings | watched | clusters | {
        "RUN-001",
        *(f"GATE-{number:03}" for number in range(1, 10)),
        "GRID-001",
        "REPLAY-001",
        "SHAPE-001",
        "TIME-001",
    }
    with pytest.raises(UsageError):
        select("IMP-002")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("COL-001", {"COL-001"}),
        (" col-001 , BW-002,", {"COL-001", "BW-002"}),
        ("stragglers", {"SKEW-001"}),
        ("GPU", {f"GPU-{number:03}" for number in range(1, 14)}),
        ("CAP,CAP-001", {"CAP-001"}),
    ],
)
def test_selection(wanted: str, found: set[str]) -> None:
    assert select(wanted) == found


def test_a_family_holds_all_of_it() -> None:
    assert select("correctness") == select("COL") | {"CAP-001"}
    assert len(select("latency")) == len(CATALOGUE)


def test_an_unknown_word_lists_the_families() -> None:
    with pytest.raises(UsageError) as caught:
        select("COL-001,colectness")
    assert "'colectness'" in str(caught.value)
    assert "correctness" in caught.value.expected


def test_each_case_is_said_by_the_code_and_written_down() -> None:
    """Texts of `cases` that nobody says are as wrong as a case without texts."""
    house = Path(wirespeed.__file__).parent
    rooms = [house / name for name in ("checks", "watch", "session", "cli", "fleet")]
    code = "".join(file.read_text() for room in rooms for file in room.rglob("*.py"))
    named = {case for check in EXPLAINED.values() for case in check.cases}
    assert {case for case in named if f'"{case}"' not in code} == set()
    for id, case in re.findall(r'(?:tell|on_node)\(\s*"([A-Z]+-\d{3})",\s*"([^"]+)"[,)]', code):
        assert case in EXPLAINED[id].cases, (id, case)


def test_families_that_only_read_facts() -> None:
    for words in ("placement", "nodes", "PLACE", "GPU-001", "placement,nodes"):
        assert facts_suffice(select(words)), words


def test_whatever_else_is_selected_needs_a_world() -> None:
    for words in ("correctness", "placement,COL-001", "world", "network", "stragglers"):
        assert not facts_suffice(select(words)), words


def test_no_selection_is_everything() -> None:
    assert not facts_suffice(frozenset())
