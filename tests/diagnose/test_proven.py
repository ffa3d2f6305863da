"""A rule cites what proves it, and what it cites is there; one that proves nothing says so."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from diagnose_texts import FOLDER, texts_of
from wirespeed.diagnose.derived import DERIVED, Evidence
from wirespeed.diagnose.prefix import strip
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner
from wirespeed.diagnose.sources import Source

CASES = Path(__file__).parent / "cases"
SOURCES = Path(__file__).parent / "proof_sources.txt"
LOGS = os.environ.get("WIRESPEED_TEST_LOGS")
THREAD = re.compile(r"(?<!\S)[\w.-]+/[\w.-]+#\d+\b")
MANUAL = re.compile(r"\b\w+\([1-8]\)")
REFERENCE = re.compile(r"\d reference\b|\d library reference\b|\bRFC \d+|\bdocs\.\w+\.\w+/")
"""A reference of a version ("Python 3.11 reference"), a standard, or a page of documentation."""
REPOSITORY = re.compile(r"(?<!\S)[\w.-]+/[\w.-]+ v?\d[\w.]* \S+/\S")
"""A repository with a version and a file: "NVIDIA/nccl v2.8.4 src/init.cc"."""
MADE = re.compile(r"\bon (?:an?|one) \w+")
"""A failure that was made on a machine: "torch 2.11 on an H200, two ranks"."""
OWN = re.compile(r"^wirespeed \w+")
"""A line that wirespeed itself prints."""
UNPROVEN_AT_MOST = 1 / 3


class Program(NamedTuple):
    """A program that proofs cite."""

    repository: str
    texts: tuple[str, ...]


def programs() -> dict[str, Program]:
    """Return the programs of the list beside this test, by name."""
    found = {}
    for line in SOURCES.read_text().splitlines():
        if line[:1] in ("#", ""):
            continue
        name, repository, *texts = line.split(": ")
        found[name] = Program(repository, tuple(" ".join(texts).split()))
    return found


PROGRAMS = programs()
NAMES = "|".join(re.escape(name) for name in sorted(PROGRAMS, key=len, reverse=True))
CITED = re.compile(
    rf"(?:^|(?<=[;,] )|(?<= and ))(?P<name>{NAMES}) v?(?:\d[\w.+-]*|[0-9a-f]{{7,40}})\b"
)


def cited(proof: str) -> list[str]:
    """Return the names of the programs that a proof cites with a version."""
    return [match["name"] for match in CITED.finditer(proof)]


def seen_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a case's source and the id of a rule that matches lines seen in that public thread.

    Lines that were composed for the case do not count.
    """
    rules = all_rules()
    for log in sorted(folder.glob("*.log")):
        scanner = Scanner(rules)
        label = json.loads(log.with_suffix(".json").read_text())
        if label.get("log_text") == "composed":
            continue
        evidence = Evidence()
        read = scanner.read(Source(log.name, log))
        hits = [hit for hit in read if hit.line.number not in label.get("composed_lines", ())]
        ids = {hit.rule.id for hit in hits}
        evidence.add(hits)
        evidence.ranks, evidence.hosts = scanner.ranks, scanner.hosts
        evidence.settle(rules, scanner.counts, DERIVED)
        for id in ids | set(evidence.seen):
            yield label.get("source", ""), id


@pytest.fixture(scope="module")
def of_cases() -> dict[str, set[str]]:
    """Return, by the source of a case of ours, which rules match it."""
    found = defaultdict(set)
    for source, id in seen_in(CASES):
        found[source].add(id)
    return found


@pytest.fixture(scope="module")
def seen(of_cases: dict[str, set[str]]) -> set[str]:
    ours = {id for ids in of_cases.values() for id in ids}
    return ours | ({id for _, id in seen_in(Path(LOGS))} if LOGS else set())


@pytest.mark.slow
def test_no_rule_is_called_unproven_that_a_real_log_has_matched(seen: set[str]) -> None:
    assert len(seen) > 150
    assert [rule.id for rule in all_rules() if rule.unproven and rule.id in seen] == []


def test_each_rule_cites_a_proof_or_says_that_it_has_none() -> None:
    assert [rule.id for rule in all_rules() if rule.unproven == bool(rule.proof)] == []


def test_the_listed_texts_are_there() -> None:
    names = {name for program in PROGRAMS.values() for name in program.texts}
    assert names
    assert sorted(name for name in names if not (FOLDER / name).is_file()) == []


def test_a_proof_names_a_thread_or_a_program_that_is_listed() -> None:
    """A program is listed with its repository, and a thread has a number."""
    bare = [
        (rule.id, rule.proof)
        for rule in all_rules()
        if rule.proof
        and not (
            cited(rule.proof)
            or any(
                expression.search(rule.proof)
                for expression in (THREAD, MANUAL, REFERENCE, REPOSITORY, MADE, OWN)
            )
        )
    ]
    assert bare == []


@pytest.mark.slow
def test_a_thread_of_a_case_is_matched_by_the_rule_that_cites_it(
    of_cases: dict[str, set[str]],
) -> None:
    """Where a proof cites more than that thread, the other citation may be what holds."""
    wrong = []
    for rule in all_rules():
        threads = THREAD.findall(rule.proof)
        known = [thread for thread in threads if thread in of_cases]
        alone = len(threads) == len(known) and not cited(rule.proof)
        if known and alone and not any(rule.id in of_cases[thread] for thread in known):
            wrong.append((rule.id, rule.proof))
    assert wrong == []
    threads = {thread for rule in all_rules() for thread in THREAD.findall(rule.proof)}
    assert len(threads & set(of_cases)) > 40


def test_a_message_that_is_cited_is_among_the_texts_of_its_program() -> None:
    """A rule that a program's source proves matches one of its texts, where they are kept."""
    lines = {file.name: texts_of(file).lines for file in FOLDER.glob("*.txt")}
    checked = 0
    missing = []
    for rule in all_rules():
        files = [name for program in cited(rule.proof) for name in PROGRAMS[program].texts]
        if rule.role == "fact" or not rule.pattern or not files:
            continue
        checked += 1
        if not any(knows(rule, line) for name in files for line in lines[name]):
            missing.append((rule.id, rule.proof))
    assert missing == []
    assert checked > 90


def knows(rule: Rule, line: str) -> bool:
    """Return whether the rule knows that line, as logs are read."""
    anchored = any(anchor.lower() in line.lower() for anchor in rule.anchors)
    return anchored and rule.match(strip(line).text) is not None


def test_at_most_a_third_of_the_rules_is_unproven() -> None:
    rules = all_rules()
    unproven = [rule.id for rule in rules if rule.unproven]
    assert len(unproven) <= UNPROVEN_AT_MOST * len(rules)
