"""Rules of many texts: proven, they stand back where another knows better, and most texts are known."""

from pathlib import Path

import pytest

from diagnose_texts import FOLDER, LEAST, judged, texts_of
from logs import read
from wirespeed.diagnose.diagnose import Reading
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rule_file import Entry
from wirespeed.diagnose.rules import all_rules

GENERAL = Entry(
    id="T-201",
    category="window",
    role="cause",
    general=True,
    texts=("window * went away", "^lane lost: *"),
    sentence="something of a kind: {what}",
    fix="look",
).rule()
OWN = Rule(
    id="T-202",
    category="own",
    role="cause",
    anchors=("window 7 went",),
    pattern="window 7 went away",
    sentence="it is window 7",
    fix="open window 7",
)
OTHER = Rule(
    id="T-203",
    category="other",
    role="cause",
    anchors=("house burned",),
    pattern="house burned",
    sentence="the house burned",
    fix="water",
)


def known(folder: Path, text: str) -> Reading:
    return read(folder, text, rules=(GENERAL, OWN, OTHER))


def causes(reading: Reading) -> list[str]:
    return [one.id for one in reading.findings if one.status == "fail"]


def test_a_star_stands_for_what_a_program_fills_in() -> None:
    assert GENERAL.match("the window 12 of rank 3 went away now") is not None
    assert GENERAL.match("a window 9 went away: 12 s") == {"what": "window 9 went away: 12 s"}
    assert GENERAL.match("window went") is None
    assert GENERAL.match("lane lost: 4") == {"what": "lane lost: 4"}
    assert GENERAL.match("a lane lost: 4") is None
    assert GENERAL.positive == ("window x1 went away", "lane lost: x1")


def test_texts_need_a_plain_part() -> None:
    with pytest.raises(ValueError, match="plain part"):
        Entry(texts=("abc * def",), id="T-204", category="x", role="cause", sentence="x").rule()


def test_a_general_rule_speaks_alone(tmp_path: Path) -> None:
    assert causes(known(tmp_path, "window 8 went away\n")) == ["T-201"]


def test_it_stands_back_on_the_same_line(tmp_path: Path) -> None:
    reading = known(tmp_path, "window 7 went away\n")
    assert causes(reading) == ["T-202"]
    assert not any("something of a kind" in line for line in reading.findings[0].evidence)


def test_it_follows_where_another_names_a_cause(tmp_path: Path) -> None:
    reading = known(tmp_path, "window 8 went away\nhouse burned\n")
    assert causes(reading) == ["T-203"]
    assert any("something of a kind" in line for line in reading.findings[0].evidence)


@pytest.mark.slow
def test_nine_of_ten_texts_that_end_a_job_are_known() -> None:
    kinds = [kind for _, said in judged(FOLDER) for kind in said.values()]
    known = sum(kind in ("own", "shared") for kind in kinds)
    assert len(kinds) > 2_000
    assert known >= LEAST * len(kinds)


def test_each_file_says_where_its_texts_are_from() -> None:
    for file in FOLDER.glob("*.txt"):
        texts = texts_of(file)
        assert texts.name and texts.source and texts.lines, file.name


def test_no_healthy_line_of_a_fact_is_a_general_trouble() -> None:
    general = [rule for rule in all_rules() if rule.general]
    facts = [line for rule in all_rules() if rule.role == "fact" for line in rule.positive]
    assert [(rule.id, line) for rule in general for line in facts if rule.match(line)] == []
