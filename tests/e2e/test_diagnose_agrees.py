"""What `bench` says of a failing world, and what `diagnose` says of the same run's logs.

The watchdog sees processes and counters, the logs only what ranks print: so a log may say less, but
never blame somebody else. Each fault strikes one run, which all tests read.
"""

import re
import socket
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SHORT = ("bench", "all_reduce", "-b", "1K", "-f", "2", "-w", "1", "-e", "64K", "-n", "3")
FAULTY = 1
START_S = 12
"""Time enough for two ranks to import torch; the third never comes."""
AFTER_S = 20.0
"""Then the run ends: ranks get 8 s for it, and slack."""

Broken = tuple[Any, dict[str, Any], dict[str, Any]]
"""What the command ended with (its folder too), the run with the fault, the diagnosis of its logs."""


def findings(run: dict[str, Any], *statuses: str) -> list[dict[str, Any]]:
    return [one for one in run["findings"] if one["status"] in statuses]


def ranks_told(text: str) -> set[int]:
    """Ranks that a text names: `rank 1`, `ranks 0, 2`."""
    told = re.findall(r"\branks? (\d+(?:, \d+)*)", text)
    return {int(one) for names in told for one in names.split(", ")}


@pytest.fixture(scope="module")
def broken(new_cli: Any) -> Callable[..., Broken]:
    """`broken("kill:rank=1,after=2")`: of each fault there is one run."""

    @cache
    def run(fault: str, *words: str) -> Broken:
        cli = new_cli()
        done = cli(
            *SHORT, "--ranks", "3", "--timeout", "3", "--inject", fault, *words, "-q", timeout=90
        )
        seen = cli.run()
        assert done.code == seen["exit_code"] == 1, done.out
        logs = cli.here("diagnose", seen["id"], "-q", "-o", "json")
        assert logs.code in (1, 3), logs.err
        assert "Traceback" not in logs.err
        return cli, seen, logs.json

    return run


@pytest.mark.parametrize(
    ("fault", "id", "words"),
    [
        ("kill", "DIED-001", "SIGKILL"),
        ("raise", "RAISED-001", "this rank raises on purpose"),
        ("other", "HANG-003", "all_gather"),
        ("stop", "HANG-001", "stopped"),
    ],
)
def test_an_injected_fault_is_named(
    broken: Callable[..., Broken], finding: Any, fault: str, id: str, words: str
) -> None:
    _, run, _ = broken(f"{fault}:rank={FAULTY},after=2")
    found = finding(run, id)
    assert found["subject"] == {"kind": "rank", "name": "rank 1"}
    assert words in f"{found['title']} {found['saw']} {found['because']}"
    assert found["expected"]
    assert found["next"]
    assert [m["size_bytes"] for m in run["measurements"]][:2] == [1024, 2048]
    assert run["world"]["nodes"][0]["host"] == socket.gethostname()


@pytest.mark.parametrize(
    ("fault", "id"),
    [("kill", "DIED-001"), ("raise", "RAISED-001"), ("stop", "HANG-001"), ("other", "HANG-003")],
)
def test_both_blame_the_same_rank_or_the_logs_blame_nobody(
    broken: Callable[..., Broken], fault: str, id: str
) -> None:
    _, run, logs = broken(f"{fault}:rank={FAULTY},after=2")
    (seen,) = (one for one in findings(run, "fail") if one["id"] == id)
    assert seen["subject"] == {"kind": "rank", "name": f"rank {FAULTY}"}
    for told in findings(logs, "fail"):
        assert ranks_told(told["subject"]["name"]) <= {FAULTY}, told
        assert ranks_told(told["title"]) <= {FAULTY} or "mismatch" in told["title"], told


def test_what_a_rank_raised_is_in_both(broken: Callable[..., Broken]) -> None:
    cli, run, logs = broken(f"raise:rank={FAULTY},after=2")
    (seen,) = (one for one in findings(run, "fail") if one["id"] == "RAISED-001")
    told = findings(logs, "fail", "warn")[0]
    assert told["subject"] == seen["subject"]
    assert (
        "this rank raises on purpose" in seen["title"]
        and "this rank raises on purpose" in told["title"]
    )
    (folder,) = (one for one in cli.folders() if one.name.endswith(run["id"]))
    log = (folder / "logs" / f"rank-{FAULTY}.log").read_text()
    assert "Traceback" in log and "this rank raises on purpose" in log


def test_a_killed_rank_is_the_first_to_look_at(broken: Callable[..., Broken]) -> None:
    """It prints nothing; what others print says that somebody ended."""
    _, run, logs = broken(f"kill:rank={FAULTY},after=2")
    assert [one["subject"]["name"] for one in findings(run, "fail")] == [f"rank {FAULTY}"]
    assert findings(logs, "fail") == []
    for told in findings(logs, "warn"):
        assert told["confidence"] == "cannot tell"
        if told["subject"]["kind"] == "rank":  # a survivor wrote what it was told when it was ended
            assert told["subject"]["name"] == f"rank {FAULTY}"
            continue
        looked_at = told["fix"].partition("it wrote no line")[0]
        assert FAULTY in ranks_told(looked_at), told["fix"]


def test_a_rank_that_never_comes_is_named_and_not_blamed_on_others(
    broken: Callable[..., Broken],
) -> None:
    _, run, logs = broken("absent:rank=2", "--startup-timeout", f"{START_S}")
    assert run["seconds"] < START_S + AFTER_S
    assert [one for one in run["findings"] if one["id"] == "WORLD-001"] == []
    (seen,) = (one for one in findings(run, "fail") if one["id"] == "JOIN-001")
    assert seen["subject"] == {"kind": "rank", "name": "rank 2"}
    for told in findings(logs, "fail"):
        assert ranks_told(told["subject"]["name"]) <= {2}, told
