"""What `check` or `bench` says of a failing world, and what `diagnose` says of the same run's logs.

The watchdog sees processes and counters, the logs only what ranks print: so a log may say less, but
never blame somebody else.
"""

import re
from typing import Any

import pytest

SHORT = ("bench", "all_reduce", "-b", "1K", "-f", "2", "-w", "1", "-e", "64K", "-n", "3")
FAULTY = 1


def findings(run: dict[str, Any], *statuses: str) -> list[dict[str, Any]]:
    return [one for one in run["findings"] if one["status"] in statuses]


def ranks_told(text: str) -> set[int]:
    """Ranks that a text names: `rank 1`, `ranks 0, 2`."""
    told = re.findall(r"\branks? (\d+(?:, \d+)*)", text)
    return {int(one) for names in told for one in names.split(", ")}


def broken(cli: Any, fault: str, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run with the fault, and the diagnosis of its logs."""
    done = cli(
        *SHORT, "--ranks", "3", "--timeout", "3", "--inject", fault, *words, "-q", timeout=90
    )
    run = cli.run()
    assert done.code == run["exit_code"] == 1, done.out
    logs = cli("diagnose", run["id"], "-q", "-o", "json")
    assert logs.code in (1, 3), logs.err
    assert "Traceback" not in logs.err
    return run, logs.json


@pytest.mark.parametrize(
    ("fault", "id"),
    [("kill", "DIED-001"), ("raise", "RAISED-001"), ("stop", "HANG-001"), ("other", "HANG-003")],
)
def test_both_blame_the_same_rank_or_the_logs_blame_nobody(cli: Any, fault: str, id: str) -> None:
    run, logs = broken(cli, f"{fault}:rank={FAULTY},after=2")
    (seen,) = (one for one in findings(run, "fail") if one["id"] == id)
    assert seen["subject"] == {"kind": "rank", "name": f"rank {FAULTY}"}
    for told in findings(logs, "fail"):
        assert ranks_told(told["subject"]["name"]) <= {FAULTY}, told
        assert ranks_told(told["title"]) <= {FAULTY} or "mismatch" in told["title"], told


def test_what_a_rank_raised_is_in_both(cli: Any) -> None:
    run, logs = broken(cli, f"raise:rank={FAULTY},after=2")
    (seen,) = (one for one in findings(run, "fail") if one["id"] == "RAISED-001")
    told = findings(logs, "fail", "warn")[0]
    assert told["subject"] == seen["subject"]
    assert (
        "this rank raises on purpose" in seen["title"]
        and "this rank raises on purpose" in told["title"]
    )


def test_a_killed_rank_is_the_first_to_look_at(cli: Any) -> None:
    """It prints nothing; what others print says that somebody ended."""
    run, logs = broken(cli, f"kill:rank={FAULTY},after=2")
    assert [one["subject"]["name"] for one in findings(run, "fail")] == [f"rank {FAULTY}"]
    assert findings(logs, "fail") == []
    for told in findings(logs, "warn"):
        assert told["confidence"] == "cannot tell"
        looked_at = told["fix"].partition("it wrote no line")[0]
        assert FAULTY in ranks_told(looked_at), told["fix"]


def test_a_rank_that_never_comes_is_not_blamed_on_others(cli: Any) -> None:
    run, logs = broken(cli, "absent:rank=2", "--startup-timeout", "25")
    (seen,) = (one for one in findings(run, "fail") if one["id"] == "JOIN-001")
    assert seen["subject"]["name"] == "rank 2"
    for told in findings(logs, "fail"):
        assert ranks_told(told["subject"]["name"]) <= {2}, told
