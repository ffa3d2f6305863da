"""Where no rule knows a cause, the first line that looks wrong is told; healthy lines never are."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.diagnose.rules import all_rules
from wirespeed.model.records import Finding

CASES = Path(__file__).parent / "cases"
HEALTHY = """\
epoch 3: 0 errors, 12 warnings
errors: none
link errors=0 discards=0
error: 0
no error was found
finished without errors
validation error = 0.0312
mean squared error: 1.2e-04
max error: 5e-07
abs error 0.03, relative error 0.001
+ export NCCL_ASYNC_ERROR_HANDLING=1
TORCH_NCCL_ASYNC_ERROR_HANDLING: 1
writing stderr to /logs/rank-3.err
"failed": 0, "succeeded": 64
INFO checkpoint not found, starting at step 0
node-1:12:34 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
UserWarning: lr_scheduler failed to find a value, using default
connection refused, retrying in 5 s
could not load libfoo.so, falling back to the plain copy
Unable to find hostfile, will proceed with training with local resources only.
[WARNING] optional package apex not found
DEBUG cannot open /sys/class/foo
on_error: abort
exception handling enabled
computing reconstruction error for layer 3
error-feedback compression on
Failed to detect the name of this notebook, you can set it manually with the WANDB_NOTEBOOK_NAME variable
W1120 09:00:02.123456 12345 timer.cc:82] Delay kernel timed out: measured time has sub-optimal accuracy.
set error_policy to abort
"""
WRONG = (
    ("ERROR: the shard index disagrees with its manifest", True),
    ("fatal: no usable lane left", True),
    ("terminate called after throwing an instance of 'acme::Gone'", True),
    ("acmed[12]: could not map the window of peer 3", False),
    ("storage.cpp:88 failed to commit block 12", False),
    ("2026-11-20 10:00:00 ERROR acme.loader - lost the shard", True),
    ("panic: runtime index out of range", True),
    ("acme: symbol lookup: undefined symbol: acme_open", True),
)


def told(folder: Path, text: str, name: str = "job.log") -> list[Finding]:
    return list(read(folder, text, name=name).findings)


def suspects(folder: Path, text: str) -> list[Finding]:
    return [one for one in told(folder, text) if one.id.startswith("LOG-")]


def test_what_healthy_jobs_print_is_no_suspect(tmp_path: Path) -> None:
    assert suspects(tmp_path, HEALTHY) == []


@pytest.mark.parametrize("line", [line for line, _ in WRONG])
def test_a_line_that_looks_wrong_is_shown(tmp_path: Path, line: str) -> None:
    (found,) = suspects(tmp_path, f"step 1\nstep 2\n{line}\nstep 3\n")
    assert found.status == "warn" and found.saw == "job.log:3"
    assert "just before: step 2" in found.evidence


def test_sure_words_come_before_weak_ones(tmp_path: Path) -> None:
    text = "acme: could not open lane 1\nstep 2\nERROR: the lanes are gone\n"
    (found,) = suspects(tmp_path, text)
    assert found.saw == "job.log:3"
    assert "ERROR: the lanes are gone" in found.title


def test_it_says_whose_it_is(tmp_path: Path) -> None:
    (found,) = suspects(tmp_path, "[rank3]: ring.cpp:41 failed to commit the window\n")
    assert "rank 3" in found.title and "ring.cpp:41" in found.title
    assert (found.subject.kind, found.subject.name) == ("rank", "rank 3")


def test_a_stack_is_told_by_its_last_line(tmp_path: Path) -> None:
    text = (
        "[rank1]: loading\n[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/app/train.py", line 12, in <module>\n[rank1]:     main()\n'
        '[rank1]:   File "/app/lanes.py", line 7, in main\n[rank1]:     go()\n'
        "[rank1]: acme.LaneLost: lane 3 went away\n"
    )
    (found,) = suspects(tmp_path, text)
    assert found.id == "LOG-002"
    assert "acme.LaneLost: lane 3 went away" in found.title
    assert "/app/lanes.py:7" in found.title and "rank 1" in found.title


def test_an_exception_of_cpp_is_told_by_what_it_says(tmp_path: Path) -> None:
    text = (
        "terminate called after throwing an instance of 'acme::Gone'\n  what():  lane 3 went away\n"
    )
    (found,) = suspects(tmp_path, text)
    assert found.id == "LOG-002" and "lane 3 went away" in found.title


def test_the_level_of_glog_counts(tmp_path: Path) -> None:
    text = (
        "E1120 09:05:02.113456 12399 agent.cc:649] Failed to reach the lane service\n"
        "F1120 09:05:02.120456 12399 client.h:80] fatal error: leaving\n"
    )
    (found,) = suspects(tmp_path, text)
    assert found.saw == "job.log:1"


def test_nothing_else_is_said_beside_a_suspect(tmp_path: Path) -> None:
    assert [one.id for one in told(tmp_path, "acme: could not open lane 1\n")] == ["LOG-001"]


def test_what_a_rule_names_leaves_no_suspect(tmp_path: Path) -> None:
    text = (
        "acme: could not open lane 1\nRuntimeError: CUDA error: out of memory\nValueError: boom\n"
    )
    assert suspects(tmp_path, text) == []


def test_beside_a_symptom_only_what_came_before_it(tmp_path: Path) -> None:
    before = "acme: could not open lane 1\nexit status 3\n"
    after = "exit status 3\nacme: could not open lane 1\n"
    assert [one.saw for one in suspects(tmp_path, before)] == ["job.log:1"]
    assert suspects(tmp_path, after) == []


def test_lines_across_blocks_are_before_it(tmp_path: Path) -> None:
    filler = "x" * 99 + "\n"
    text = filler * 50_000 + "the last calm line\nacme: could not open lane 1\n"
    (found,) = suspects(tmp_path, text)
    assert "just before: the last calm line" in found.evidence


def test_healthy_cases_and_facts_have_none(tmp_path: Path) -> None:
    healthy = [log.read_text() for log in CASES.glob("*healthy*.log")]
    lines = [line for rule in all_rules() if rule.role == "fact" for line in rule.positive]
    assert suspects(tmp_path, "\n".join([*healthy, *lines]) + "\n") == []
