"""Where no rule knows a failure, its first error is shown whole; what is only possible is suggested."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.diagnose.diagnose import Reading
from wirespeed.diagnose.rule import Rule
from wirespeed.model.records import Finding

STACK = """\
{rank}Traceback (most recent call last):
{rank}  File "/app/train.py", line 12, in <module>
{rank}    main()
{rank}  File "/usr/lib/python3.12/site-packages/acme/lanes.py", line 7, in main
{rank}    go()
{rank}{exception}
"""


def stack(exception: str, rank: int | None = None) -> str:
    return STACK.format(rank="" if rank is None else f"[rank{rank}]: ", exception=exception)


def only(reading: Reading) -> Finding:
    (finding,) = [one for one in reading.findings if one.status in ("fail", "warn")]
    return finding


@pytest.mark.parametrize(
    "exception",
    [
        "ValueError: lane 3 is too short",
        "RuntimeError: lane 3 is too short",
        "KeyError: 'lane'",
        "acme.LaneLost: lane 3 went away",
        "acme.errors.LaneError: lane 3 went away",
        "AssertionError",
    ],
)
def test_an_unknown_exception_is_shown_whatever_its_type(tmp_path: Path, exception: str) -> None:
    reading = read(tmp_path, "loading\n" + stack(exception, rank=3))
    finding = only(reading)
    assert (finding.id, finding.status, finding.subject.name) == ("LOG-002", "warn", "rank 3")
    assert (reading.verdict, reading.exit_code) == ("SYMPTOMS ONLY", 3)
    assert exception in finding.title
    assert finding.saw == "job.log:7"
    assert any("acme/lanes.py:7" in line for line in finding.evidence)
    assert any("/app/train.py:12" in line for line in finding.evidence)


def test_of_a_chain_the_innermost_counts(tmp_path: Path) -> None:
    chain = (
        stack("acme.LaneLost: lane 3 went away")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + stack("acme.TrainError: the step failed")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + stack("RuntimeError: training ended")
    )
    finding = only(read(tmp_path, chain))
    assert "lane 3 went away" in finding.title
    assert any("training ended" in line for line in finding.evidence)


def test_a_rule_that_knows_what_it_became_speaks(tmp_path: Path) -> None:
    chain = (
        stack("acme.NoRoute: nobody answers")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + stack("acme.HouseError: the river rose")
    )
    reading = read(tmp_path, chain, rules=RULES)
    assert shown(reading) == [("T-303", "fail", "likely")]


def test_a_time_stamp_between_the_lines_of_a_stack_is_no_exception(tmp_path: Path) -> None:
    lines = stack("acme.LaneLost: lane 3 went away").splitlines()
    stamped = [part for line in lines for part in ("2024-07-24 08:45:13.616", line)]
    finding = only(read(tmp_path, *stamped))
    assert "lane 3 went away" in finding.title


def test_a_stack_behind_the_words_of_a_logger_is_one(tmp_path: Path) -> None:
    before = "2025-10-31 03:11:02,475 - Acme - INFO - [rank7]: "
    lines = [before + line for line in stack("AssertionError").splitlines()]
    finding = only(read(tmp_path, *lines))
    assert (finding.id, finding.subject.name) == ("LOG-002", "rank 7")
    assert "AssertionError" in finding.title


def test_a_panic_is_shown_with_its_message(tmp_path: Path) -> None:
    log = "thread 'main' panicked at src/lane.rs:3:4:\nlane 3 went away\nstack backtrace:\n"
    finding = only(read(tmp_path, log))
    assert finding.id == "LOG-002" and "lane 3 went away" in finding.title


def test_an_exception_behind_a_loggers_prefix_is_one(tmp_path: Path) -> None:
    finding = only(read(tmp_path, "ERROR:    PermissionError: [Errno 13] lane is shut: '/lane'\n"))
    assert finding.id == "LOG-002"


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "worker.status.SUCCEEDED", "raw_error": null, "state": "SUCCEEDED"}',
        "[W socket.cpp:464] [c10d] The server socket cannot be initialized on [::]:9999 (errno: 97).",
        "W1120 10:00:00.1 12 lane.cc:4] lane could not be read",
        '[g4:10079] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages',
        "E0000 00:00:1736163964.084812 3415088 cuda_dnn.cc:8310] Unable to register cuDNN factory: "
        "Attempting to register factory for plugin cuDNN when one has already been registered",
    ],
)
def test_events_and_warnings_are_no_error(tmp_path: Path, line: str) -> None:
    findings = read(tmp_path, line).findings
    assert [one.id for one in findings if one.status in ("fail", "warn")] == []


def test_of_a_loader_the_original_counts(tmp_path: Path) -> None:
    log = stack("ValueError: Caught ValueError in DataLoader worker process 0.") + (
        "Original Traceback (most recent call last):\n"
        '  File "/app/data.py", line 40, in __getitem__\n    row = self.rows[i]\n'
        "ValueError: row 17 has no label\n"
    )
    finding = only(read(tmp_path, log))
    assert "row 17 has no label" in finding.title and "/app/data.py:40" in finding.title


def test_stacks_of_two_ranks_in_between_each_other(tmp_path: Path) -> None:
    first = stack("acme.LaneLost: lane 3 went away", rank=1).splitlines()
    second = stack("acme.LaneLost: lane 4 went away", rank=2).splitlines()
    lines = [line for pair in zip(first, second, strict=True) for line in pair]
    finding = only(read(tmp_path, *lines))
    assert finding.id == "LOG-002"
    assert "lane 3 went away" in finding.title and "rank 1" in finding.title


def test_a_message_of_several_lines_is_shown_whole(tmp_path: Path) -> None:
    finding = only(read(tmp_path, stack("acme.LaneLost: lane 3 went away\n  seen: 4\n  wanted: 5")))
    assert any("wanted: 5" in line for line in finding.evidence)


def test_who_only_reports_the_end_of_another_is_no_root(tmp_path: Path) -> None:
    reports = stack("subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.")
    finding = only(read(tmp_path, reports + stack("acme.LaneLost: lane 3 went away")))
    assert "lane 3 went away" in finding.title


def test_it_comes_before_those_who_waited(tmp_path: Path) -> None:
    waits = (
        "[rank0]:[E1120 23:59:59.1 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=26, NumelOut=26, "
        "Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
    )
    finding = only(read(tmp_path, waits + stack("acme.LaneError: lane 3 went away", rank=1)))
    assert (finding.id, finding.subject.name) == ("LOG-002", "rank 1")
    assert any("follows from it" in line for line in finding.evidence)


def test_an_exception_that_python_ignored_is_none(tmp_path: Path) -> None:
    log = "Exception ignored in: <function Acme.__del__ at 0x7f>\n" + stack("TypeError: no lane")
    assert [one.id for one in read(tmp_path, log).findings if one.status == "warn"] == []


def test_the_inner_line_of_a_container_launcher_is_the_root(tmp_path: Path) -> None:
    log = (
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis: printing contents of log file ...\n"
        "slurmstepd: error: pyxis:     acme-hook: cannot open the lane table\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
    )
    finding = read(tmp_path, log).findings[0]
    assert finding.status == "warn" and finding.saw == "job.log:3"
    assert "cannot open the lane table" in finding.title


# --- rules that suggest, and two rules of one line -------------------------------------------------

UNPROVEN = Rule(
    id="T-301",
    category="lane",
    role="cause",
    unproven=True,
    anchors=("lane lost",),
    pattern="lane lost",
    sentence="the lane is gone",
    because="lanes go",
    fix="new lane",
    next="lanes list",
)
POSSIBLE = Rule(
    id="T-302",
    category="house",
    role="cause",
    confidence="possible",
    proof="acme/acme#1",
    anchors=("house burned",),
    pattern="house burned",
    sentence="the house burned",
    fix="water",
    next="look",
)
PROVEN = Rule(
    id="T-303",
    category="river",
    role="cause",
    proof="acme/acme#2",
    anchors=("river rose",),
    pattern="river rose",
    sentence="the river rose",
    fix="dam",
)
WIDE = Rule(
    id="T-304",
    category="water",
    role="cause",
    proof="acme/acme#3",
    anchors=("rose",),
    pattern="rose",
    sentence="something rose",
    fix="wait",
    next="wait a day",
)
SIGN = Rule(
    id="T-305",
    category="sign",
    role="symptom",
    proof="acme/acme#4",
    anchors=("wet feet",),
    pattern="wet feet",
    sentence="feet are wet",
    checks=("the river",),
)
RULES = (UNPROVEN, POSSIBLE, PROVEN, WIDE, SIGN)


def known(folder: Path, *lines: str) -> Reading:
    return read(folder, *lines, rules=RULES)


def shown(reading: Reading) -> list[tuple[str, str, str]]:
    return [
        (one.id, one.status, one.confidence)
        for one in reading.findings
        if one.status in ("fail", "warn")
    ]


def test_an_unproven_rule_suggests_and_names_nothing(tmp_path: Path) -> None:
    reading = known(tmp_path, "lane lost")
    assert shown(reading) == [("T-301", "warn", "possible")]
    assert (reading.verdict, reading.exit_code) == ("SYMPTOMS ONLY", 3)
    assert reading.findings[0].next == "lanes list"


def test_suggestions_come_by_likelihood(tmp_path: Path) -> None:
    reading = known(tmp_path, "lane lost", "house burned")
    assert [id for id, _, _ in shown(reading)] == ["T-302", "T-301"]


def test_a_proven_cause_comes_first(tmp_path: Path) -> None:
    reading = known(tmp_path, "lane lost", "river rose")
    assert shown(reading) == [("T-303", "fail", "likely"), ("T-301", "warn", "possible")]
    assert reading.exit_code == 1


def test_what_is_only_possible_is_not_said_to_follow(tmp_path: Path) -> None:
    first = known(tmp_path, "lane lost", "river rose").findings[0]
    assert not any("the lane is gone" in line for line in first.evidence)


def test_an_unknown_exception_beside_a_named_cause_is_evidence(tmp_path: Path) -> None:
    reading = read(
        tmp_path,
        "RuntimeError: CUDA error: out of memory\n" + stack("acme.LaneError: shut", rank=3),
    )
    failing = [one for one in reading.findings if one.status == "fail"]
    assert len(failing) == 1 and [one.id for one in reading.findings if one.status == "warn"] == []
    assert any("acme.LaneError: shut" in line for line in failing[0].evidence)


def test_what_explains_an_exception_and_came_before_it_is_suggested_first(tmp_path: Path) -> None:
    opening = "enroot-nsenter: failed to create user namespace: No space left on device\n"
    reading = read(tmp_path, opening + stack("acme.LaneError: shut"))
    ids = [one.id for one in reading.findings if one.status == "warn"]
    assert ids == ["ERRNO-001", "LOG-002"]
    assert reading.exit_code == 3


def test_an_error_before_an_exception_is_shown_with_it(tmp_path: Path) -> None:
    finding = only(read(tmp_path, "FATAL: no usable lane\n" + stack("acme.LaneError: shut")))
    assert finding.id == "LOG-002"
    assert any("no usable lane" in line for line in finding.evidence)


def test_a_log_of_nothing_but_exceptions_is_read_to_a_bound(tmp_path: Path) -> None:
    finding = only(read(tmp_path, stack("acme.LaneError: lane 3 is shut") * 21_000))
    assert "at least" in finding.saw and finding.saw.startswith("job.log:6")


def test_lines_that_end_as_on_windows_are_read_alike(tmp_path: Path) -> None:
    finding = only(read(tmp_path, stack("acme.LaneLost: lane 3 went away").replace("\n", "\r\n")))
    assert "lane 3 went away" in finding.title and finding.saw == "job.log:6"


def test_a_symptom_would_follow_from_a_suggestion(tmp_path: Path) -> None:
    reading = known(tmp_path, "house burned", "wet feet")
    assert shown(reading) == [("T-302", "warn", "possible")]
    assert any("feet are wet" in line for line in reading.findings[0].evidence)


def test_of_two_rules_on_one_line_the_specific_one_speaks(tmp_path: Path) -> None:
    reading = known(tmp_path, "the river rose")
    assert shown(reading) == [("T-303", "fail", "likely")]
    finding = reading.findings[0]
    assert finding.next == ""
    assert not any("something rose" in line for line in finding.evidence)


def test_the_wide_one_speaks_on_lines_of_its_own(tmp_path: Path) -> None:
    reading = known(tmp_path, "the river rose", "the price rose")
    assert [id for id, _, _ in shown(reading)] == ["T-303", "T-304"]
    assert reading.findings[1].saw.startswith("job.log:2")


LEFT = (
    "[rank{rank}]:[W1127 15:47:56.8 ProcessGroupNCCL.cpp:1487] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources."
)


@pytest.mark.parametrize(("ranks", "ended"), [((0, 1), True), ((0,), False)])
def test_every_rank_that_left_its_group_came_to_its_end(
    tmp_path: Path, ranks: tuple[int, ...], ended: bool
) -> None:
    lines = ["[rank0]: step 1 done", "[rank1]: step 1 done"] * 3
    reading = read(tmp_path, *lines, *(LEFT.format(rank=rank) for rank in ranks))
    closing = next(one for one in reading.findings if one.id == "DIAG-000")
    assert (reading.verdict, reading.exit_code) == ("NOTHING KNOWN", 3)
    assert ("came to the end" in closing.title) == ended
