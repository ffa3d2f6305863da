"""torchrun's failure summary: who was first, with host and exit code."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding

LINE, RULE = "-" * 60, "=" * 60
NO_STACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def item(
    rank: int, code: int, traceback: str = NO_STACK, host: str = "node-1", at: str = "12:45:19"
) -> list[str]:
    return [
        "[0]:",
        f"  time      : 2026-11-21_{at}",
        f"  host      : {host}",
        f"  rank      : {rank} (local_rank: {rank % 2})",
        f"  exitcode  : {code} (pid: {7000 + rank})",
        "  error_file: <N/A>",
        f"  traceback : {traceback}",
    ]


def killed(rank: int, signal: int = 9, name: str = "SIGKILL") -> list[str]:
    return item(rank, -signal, f"Signal {signal} ({name}) received by PID {7000 + rank}")


def summary(root: list[str], others: list[str] | None = None) -> list[str]:
    """As torch 1.10 to 2.13 print it."""
    rest = ["Failures:", *others] if others else ["Failures:", "  <NO_OTHER_FAILURES>"]
    head = [RULE, "train.py FAILED", LINE, *rest, LINE, "Root Cause (first observed failure):"]
    return [*head, *root, RULE]


def first(folder: Path, lines: list[str]) -> Finding:
    return read(folder, *lines).findings[0]


def test_the_root_cause_is_one_item_with_rank_host_and_exit_code(tmp_path: Path) -> None:
    found = first(tmp_path, summary(killed(3)))
    assert "SIGKILL" in found.title and "(rank 3 on node-1)" in found.title
    assert found.subject.name == "rank 3"
    (line,) = (one for one in found.evidence if "exitcode" in one)
    assert line.startswith("job.log:9: Root cause: rank : 3 (local_rank: 1), host : node-1, ")
    assert "exitcode : -9 (pid: 7003)" in line and "Signal 9 (SIGKILL)" in line


def test_the_root_cause_beats_other_failures(tmp_path: Path) -> None:
    """A crash that came after it looks worse, and is none."""
    others = [*killed(0, 9), *killed(2, 11, "SIGSEGV")]
    found = first(tmp_path, summary(item(1, 1), others))
    assert found.id == "END-006" and "(rank 1 on node-1)" in found.title
    follows = [one for one in found.evidence if "names another rank as the root cause" in one]
    assert follows and "ranks 0, 2" in follows[0]
    turned = first(tmp_path, summary(killed(2, 11, "SIGSEGV"), item(1, 1)))
    assert turned.id == "END-003" and "(rank 2 on node-1)" in turned.title


def test_the_exception_under_a_root_cause_is_of_its_rank(tmp_path: Path) -> None:
    stack = item(5, 1, "Traceback (most recent call last):")
    stack += [
        '    File "train.py", line 9, in main',
        "      y = x[9]",
        "  IndexError: list index out",
    ]
    found = first(tmp_path, summary(stack, killed(6)))
    assert (found.id, found.status) == ("LOG-002", "warn")
    assert found.subject.name == "rank 5"


def test_two_nodes_summaries_interleaved_by_their_prefix(tmp_path: Path) -> None:
    one = [f"[node-0] {line}" for line in summary(item(0, 1, host="node-0", at="12:45:30"))]
    two = [f"[node-1] {line}" for line in summary(killed(3))]
    found = first(tmp_path, [line for pair in zip(one, two, strict=True) for line in pair])
    assert found.id == "END-001" and "(rank 3 on node-1)" in found.title


def test_the_format_of_torch_1_9(tmp_path: Path) -> None:
    old = [
        "*" * 40,
        "          train.py FAILED",
        "Root Cause:",
        "[0]:",
        "  time: 2021-06-01_10:00:00",
        "  rank: 1 (local_rank: 1)",
        "  exitcode: -9 (pid: 811)",
        "  error_file: <N/A>",
        '  msg: "Signal 9 (SIGKILL) received by PID 811"',
        "Other Failures:",
        "[1]:",
        "  time: 2021-06-01_10:00:09",
        "  rank: 0 (local_rank: 0)",
        "  exitcode: -11 (pid: 810)",
        "  error_file: <N/A>",
        '  msg: "Signal 11 (SIGSEGV) received by PID 810"',
    ]
    found = first(tmp_path, old)
    assert found.id == "END-001" and "(rank 1)" in found.title


def test_failures_without_a_root_cause_still_count(tmp_path: Path) -> None:
    """The log was cut before it."""
    lines = summary(killed(1), killed(4))
    found = first(tmp_path, lines[: lines.index("Root Cause (first observed failure):")])
    assert found.id == "END-001" and "(rank 4 on node-1)" in found.title


@pytest.mark.parametrize(
    "line",
    ["  exitcode  : -9 (pid: 811)", "  traceback : Signal 9 (SIGKILL) received by PID 811"],
)
def test_a_line_without_its_summary_is_read_alone(tmp_path: Path, line: str) -> None:
    assert first(tmp_path, [line]).id == "END-001"


def test_half_blocks_and_junk_do_no_harm(tmp_path: Path) -> None:
    lines = [
        "Root Cause (first observed failure):",
        "  rank      : x",
        "  exitcode  : ",
        "  msg: a",
    ]
    assert first(tmp_path, [*lines, *summary(killed(1))[5:8], "time      :"]).status in (
        "warn",
        "not_checked",
    )
