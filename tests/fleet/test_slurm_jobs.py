"""What sacct and sacctmgr print."""

import random
from datetime import datetime

import pytest

from wirespeed.errors import InputError
from wirespeed.fleet.slurm_jobs import hosts_of, read_accounting, with_culprits

SACCT = """\
JobIDRaw|User|Partition|State|Start|End|NodeList|JobName
100|ann|train|COMPLETED|2026-11-01T10:00:00|2026-11-01T12:00:00|gpu[001-003],login|llm
100.batch||train|COMPLETED|2026-11-01T10:00:00|2026-11-01T12:00:00|gpu001|batch
101|ann|train|FAILED|2026-11-01T10:00:00|2026-11-01T11:00:00|gpu001|a|b
102|bob|train|NODE_FAIL|2026-11-01T10:00:00|2026-11-01T11:00:00|gpu[004-005]|x
103|bob|train|CANCELLED by 1000|2026-11-01T10:00:00|2026-11-01T11:00:00|gpu006|x
104|bob|train|RUNNING|2026-11-01T10:00:00|Unknown|gpu006|x
105|bob|train|PENDING|Unknown|Unknown|None assigned|x
106|bob|train|TIMEOUT|1793527200|1793530800|gpu006|x
107|bob|train|FAILED|yesterday|2026-11-01T11:00:00|gpu006|x
108|bob|train|FAILED|2026-11-01T10:00:00|2026-11-01T11:00:00|gpu[6-|x
"""
EVENTS = """\
NodeName|TimeStart|TimeEnd|State
gpu004|2026-11-01T11:02:00|2026-11-01T15:00:00|DOWN*
gpu005|2026-11-01T11:02:00|2026-11-01T15:00:00|DRAIN
gpu005|2026-11-02T11:02:00|Unknown|DOWN
|2026-11-02T11:02:00|Unknown|
"""


def test_jobs_that_have_ended_are_read() -> None:
    told = read_accounting(SACCT, "jobs.txt")
    assert [(one.job, one.how, one.nodes) for one in told.jobs] == [
        ("100", "good", ("gpu001", "gpu002", "gpu003", "login")),
        ("101", "failed", ("gpu001",)),
        ("102", "node", ("gpu004", "gpu005")),
        ("103", "good", ("gpu006",)),
        ("106", "good", ("gpu006",)),
    ]
    assert (told.unended, told.unread) == (2, 2)
    assert (told.jobs[1].workload, told.jobs[1].group) == ("ann/a|b", "train")
    assert told.jobs[1].end_s == datetime(2026, 11, 1, 11).timestamp()
    assert told.jobs[4].end_s - told.jobs[4].start_s == 3600


def test_the_node_that_went_down_ended_the_job() -> None:
    jobs, events = read_accounting(SACCT, "jobs.txt"), read_accounting(EVENTS, "down.txt")
    assert [one.node for one in events.downs] == ["gpu004", "gpu005"]
    named = {one.job: one.culprit for one in with_culprits(jobs.jobs, events.downs)}
    assert named == {"100": "", "101": "", "102": "gpu004", "103": "", "106": ""}


def test_where_both_went_down_nobody_is_named() -> None:
    events = read_accounting(EVENTS.replace("DRAIN", "DOWN"), "down.txt")
    jobs = read_accounting(SACCT, "jobs.txt").jobs
    assert not any(one.culprit for one in with_culprits(jobs, events.downs))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a,b-1", ("a", "b-1")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]n[1,3]-ib", ("r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib")),
        ("a,a", ("a",)),
    ],
)
def test_lists_of_hosts(text: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(text) == hosts


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize(
    "text", ["a[", "a]", "a[1-", "a[3-1]", "a[x]", "n[0-99999999]", "n[1-400]" * 4, "a,,b", ","]
)
def test_lists_that_are_none_or_too_long(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        hosts_of(text)


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0b", "\x1e"])
def test_a_name_of_a_job_is_no_other_job(end: str) -> None:
    forged = f"a{end}200|bob|train|NODE_FAIL|2026-11-01T10:00:00|2026-11-01T11:00:00|gpu001|x"
    told = read_accounting(SACCT.replace("|a|b", f"|{forged}"), "jobs.txt")
    assert [one.job for one in told.jobs] == ["100", "101", "102", "103", "106"]


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("end", ["9" * 12, "9" * 20, "9" * 400, "9999-12-31T23:59:59"])
def test_a_time_that_no_job_has_is_not_read(end: str) -> None:
    told = read_accounting(SACCT.replace("2026-11-01T12:00:00", end), "jobs.txt")
    assert [one.job for one in told.jobs] == ["101", "102", "103", "106"]
    assert told.unread == 3


def test_lines_may_end_as_on_windows() -> None:
    told = read_accounting(SACCT.replace("\n", "\r\n"), "jobs.txt")
    assert told.jobs == read_accounting(SACCT, "jobs.txt").jobs


def test_something_else_is_told_to_be_so() -> None:
    for text in ("", "hello\n", "JobID State\n1 COMPLETED\n", "State|Start|End|NodeList\n"):
        with pytest.raises(InputError, match=r"jobs\.txt is no output of sacct"):
            read_accounting(text, "jobs.txt")


@pytest.mark.hostile("fuzzed files")
def test_lines_cut_and_changed_anywhere(count_attacks) -> None:
    rng = random.Random(4)
    for _ in range(300):
        text = list(SACCT)
        for _ in range(rng.randint(1, 20)):
            text[rng.randrange(60, len(text))] = chr(rng.choice((0, 10, 45, 91, 93, 124, 0x202E)))
        read_accounting("".join(text[: rng.randrange(60, len(text))]), "jobs.txt")
    count_attacks("fuzzed files", 300)
