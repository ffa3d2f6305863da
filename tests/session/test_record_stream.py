"""Rank 0's records, line by line, and what becomes of them."""

import os

import pytest

from wirespeed.errors import UsageError
from wirespeed.model.records import Finding
from wirespeed.plan import Plan
from wirespeed.session.record_stream import (
    RecordStream,
    order,
    outcome_from_json,
    read_line,
    read_order,
)
from wirespeed.watchdog import Outcome


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    written: list[bytes] = []
    real = os.write

    def write(handle: int, data: bytes) -> int:
        if handle != 1:
            return real(handle, data)
        written.append(data[:100])  # a pipe may take a part only
        return len(data[:100])

    monkeypatch.setattr(os, "write", write)
    return written


def test_what_rank_0_hears_comes_back_as_it_was(lines: list[bytes]) -> None:
    relay = RecordStream("srun said so")
    data = {"text": "é\n" * 300, "n": [1, 2.5, None]}
    relay.on_record(3, "measurement", data)
    relay.phase("waiting")
    failed = Finding(id="DIED-001", status="fail", title="rank 3 died")
    assert relay.finish(Outcome(kind="died", findings=(failed,))) == 0
    found = [read_line(line) for line in b"".join(lines).decode().split("\n")[:-1]]
    kinds = [one[0] for one in found if one]
    assert kinds == ["environment", "identity", "measurement", "phase", "outcome"]
    assert found[2] == ("measurement", data)
    outcome = outcome_from_json(found[4][1])  # type: ignore[index]
    assert (outcome.kind, outcome.findings) == ("died", (failed,))


@pytest.mark.parametrize(
    "text", ["", "hello", "\x1dwirespeed {", '\x1dwirespeed ["a"]', "\x1dwirespeed 5"]
)
def test_other_lines_are_no_records(text: str) -> None:
    assert read_line(text) is None


def test_a_plan_crosses_as_one_harmless_word() -> None:
    plan = Plan(command="check", steps=(), op_timeout_s=7.0, faults=("kill:rank=1",))
    word = order(plan, "gloo")
    assert word.isascii()
    assert word.replace("-", "").replace("_", "").replace("=", "").isalnum()
    assert read_order(word) == (plan, "gloo")


@pytest.mark.parametrize("word", ["", "abc", "####", "eJyrrgUAAXUA+Q=="])
def test_what_is_no_plan_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="WIRESPEED_JOB"):
        read_order(word)
