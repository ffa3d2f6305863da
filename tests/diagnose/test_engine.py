"""From lines to an answer, with small rules of the tests' own."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirespeed.diagnose.diagnose import Reading, diagnose
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.sources import Source

DISK = Rule(
    id="T-001",
    category="disk",
    role="cause",
    stage="setup",
    anchors=("disk full",),
    pattern=r"disk full on (?P<disk>\w+)",
    sentence="disk {disk} is full",
    fix="make room on {disk}",
    explains=("T-003",),
)
KILLED = Rule(
    id="T-002",
    category="killed",
    role="cause",
    stage="machine",
    anchors=("was killed",),
    pattern=r"was killed",
    sentence="a process was killed",
    fix="more memory",
)
TIMEOUT = Rule(
    id="T-003",
    category="timeout",
    role="symptom",
    stage="wait",
    anchors=("timed out",),
    pattern=r"timed out",
    sentence="a wait timed out",
    checks=("the slowest rank", "the network"),
)
RESET = Rule(
    id="T-004",
    category="reset",
    role="consequence",
    stage="aftermath",
    anchors=("connection reset",),
    pattern=r"connection reset",
    sentence="a peer went away",
)
VERSION = Rule(
    id="T-005",
    category="version",
    role="fact",
    anchors=("library version",),
    pattern=r"library version (?P<version>\S+)",
    sentence="library {version}",
)
BOTH = Rule(
    id="T-006",
    category="both",
    role="cause",
    stage="setup",
    needs=("T-003", "T-005"),
    absent=("T-001", "T-002"),
    sentence="version {version} times out",
    fix="another version",
)
RULES = (DISK, KILLED, TIMEOUT, RESET, VERSION)


def read(folder: Path, *logs: str, rules: tuple[Rule, ...] = RULES) -> Reading:
    sources = []
    for number, text in enumerate(logs):
        path = folder / f"{number}.log"
        path.write_text(text)
        sources.append(Source(path.name, path))
    return diagnose(sources, rules)


def told(reading: Reading) -> list[tuple[str, str]]:
    return [(one.id, one.status) for one in reading.findings]


def test_a_cause_comes_first_and_the_rest_follows(tmp_path: Path) -> None:
    reading = read(
        tmp_path, "[rank1]: timed out\n[rank0]: disk full on sda\n[rank2]: connection reset\n"
    )
    (finding,) = reading.findings
    assert (finding.id, finding.status, finding.category) == ("T-001", "fail", "disk")
    assert finding.title == "disk sda is full (rank 0)"
    assert finding.subject.name == "rank 0"
    assert finding.evidence[0] == "0.log:2: disk full on sda"
    assert [line.partition(";")[0] for line in finding.evidence[1:]] == [
        "follows from it: a wait timed out (rank 1)",
        "follows from it: a peer went away (rank 2)",
    ]


def test_only_a_symptom_is_no_cause(tmp_path: Path) -> None:
    (finding,) = read(tmp_path, "timed out\n").findings
    assert (finding.status, finding.confidence) == ("warn", "cannot tell")
    assert finding.fix == "check in this order: 1. the slowest rank; 2. the network"


def test_a_healthy_log_says_what_it_shows(tmp_path: Path) -> None:
    reading = read(tmp_path, "[rank0]: library version 2.1\n[rank1]: library version 2.1\n")
    open_end, finding = sorted(reading.findings, key=lambda one: one.id)
    assert (open_end.id, reading.verdict, reading.exit_code) == ("DIAG-000", "NOTHING KNOWN", 3)
    assert finding.status == "pass"
    assert "2 ranks: version: library 2.1" in finding.title


def test_an_unknown_log_is_not_healthy(tmp_path: Path) -> None:
    assert told(read(tmp_path, "epoch 1\nepoch 2\n")) == [("DIAG-000", "not_checked")]


def test_of_two_beginnings_the_earlier_is_first(tmp_path: Path) -> None:
    """A kill long after the disk was full is what a launcher does, not the cause."""
    late = "2024-01-01 10:00:00 disk full on sda\n2024-01-01 10:00:30 was killed\n"
    assert told(read(tmp_path, late))[0] == ("T-001", "fail")
    near = "2024-01-01 10:00:00 disk full on sda\n2024-01-01 10:00:01 was killed\n"
    assert told(read(tmp_path, near))[0] == ("T-002", "fail")


def test_several_causes_are_several_answers(tmp_path: Path) -> None:
    reading = read(tmp_path, "disk full on sda\nwas killed\ntimed out\n")
    assert told(reading) == [("T-002", "fail"), ("T-001", "fail")]
    # the wait follows from what says that it explains it
    assert any("a wait timed out" in line for line in reading.findings[1].evidence)


def test_rules_that_need_others(tmp_path: Path) -> None:
    rules = (*RULES, BOTH)
    reading = read(tmp_path, "library version 9\n", "timed out\n", rules=rules)
    assert told(reading)[0] == ("T-006", "fail")
    assert reading.findings[0].title == "version 9 times out"
    without = read(tmp_path, "library version 9\n", "timed out\nwas killed\n", rules=rules)
    assert told(without)[0] == ("T-002", "fail")


def test_line_numbers_are_right_in_the_middle_of_much_else(tmp_path: Path) -> None:
    noise = [f"step {number} loss 0.5" for number in range(60_000)]
    noise[45_677] = "disk full on nvme0"
    reading = read(tmp_path, "\n".join(noise))
    assert reading.findings[0].saw == "0.log:45678"
    assert reading.lines in (59_999, 60_000)


def planted(ranks: int, seed: int) -> list[str]:
    """Many ranks' lines, interleaved: one planted cause, then everybody's consequences, shuffled."""
    rng = random.Random(seed)
    lines = [f"[rank{rank}]: step {step}" for step in range(20) for rank in range(ranks)]
    rng.shuffle(lines)
    lines.append(f"[rank{ranks // 3}]: was killed")
    after = [f"[rank{rank}]: timed out" for rank in range(ranks)] * 5
    after += [f"[rank{rank}]: connection reset by peer" for rank in range(ranks)] * 10
    rng.shuffle(after)
    return lines + after


def test_one_cause_among_thousands_of_consequences(tmp_path: Path) -> None:
    reading = read(tmp_path, "\n".join(planted(256, 7)))
    (finding,) = reading.findings
    assert (finding.id, finding.subject.name) == ("T-002", "rank 85")
    assert any("1,280 lines" in line for line in finding.evidence)


@pytest.mark.parametrize("seed", range(3))
def test_logs_in_any_order_give_the_same_cause(tmp_path: Path, seed: int) -> None:
    lines = planted(32, seed)
    by_rank = {r: "\n".join(x for x in lines if x.startswith(f"[rank{r}]")) for r in range(32)}
    logs = list(by_rank.values())
    random.Random(seed).shuffle(logs)
    (finding,) = read(tmp_path, *logs).findings
    assert (finding.id, finding.subject.name) == ("T-002", "rank 10")


def test_who_says_nothing_of_the_failure_is_looked_at_first(tmp_path: Path) -> None:
    steps = "".join(f"[rank{rank}]: step 1\n" for rank in (0, 1, 2)) * 3
    waits = "[rank0]: timed out\n[rank2]: timed out\n"
    (finding,) = read(tmp_path, steps + waits).findings
    assert "1. rank 1: it wrote no line of the failure" in finding.fix


@pytest.mark.parametrize("line", ["[rank{}]: disk full on sda", "[1,{}]<stderr>:disk full on sda"])
def test_more_digits_than_a_number_has_are_none(tmp_path: Path, line: str) -> None:
    (found,) = (
        one for one in read(tmp_path, line.format("7" * 5001)).findings if one.id == "T-001"
    )
    assert found.title == "disk sda is full"


def test_the_ranks_log_may_be_missing(tmp_path: Path) -> None:
    lines = [line for line in planted(32, 1) if not line.startswith("[rank10]")]
    (finding,) = read(tmp_path, "\n".join(lines)).findings
    assert (finding.id, finding.status) == ("T-003", "warn")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=30))
def test_junk_raises_nothing(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    """Binary, half lines, invalid UTF-8, colours, between real messages of every rule."""
    real = [line.encode() for rule in all_rules() for line in rule.positive]
    mixed = b"." + b"".join(
        piece + real[(number * 37) % len(real)][: len(piece) * 3]
        for number, piece in enumerate(pieces)
    )
    path = tmp_path_factory.mktemp("junk") / "junk.log"
    path.write_bytes(mixed)
    reading = diagnose([Source("junk.log", path)])
    assert reading.bytes == len(mixed)
    assert all(one.title for one in reading.findings)
