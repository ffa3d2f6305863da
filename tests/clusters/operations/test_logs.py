"""Logs: whole lines, nothing that steers a terminal, nothing twice where a stream is opened again."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from wirespeed.clusters.operations.logs import Shown, whole_lines

FAKE = Path(__file__).parent / "fake_kubectl.py"


def _env(cli: Any, *pods: str) -> dict[str, str]:
    (cli.folder / "clusters").mkdir()
    (cli.folder / "clusters" / "demo.yaml").write_text(
        yaml.safe_dump({"cluster": {"name": "demo"}})
    )
    program = cli.folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    program.chmod(0o755)
    status = {"phase": "Succeeded"}
    items = [
        {"metadata": {"name": name, "uid": name}, "spec": {}, "status": status} for name in pods
    ]
    (cli.folder / "pods.json").write_text(json.dumps({"items": items}))
    path = f"{program.parent}{os.pathsep}{cli.environment()['PATH']}"
    return {"PATH": path, "FAKE_PODS": str(cli.folder / "pods.json")}


@pytest.mark.slow
def test_all_pods_are_shown_in_order_and_nothing_of_theirs_steers_the_terminal(cli: Any) -> None:
    env = _env(cli, "demo-0", "demo-1", "demo-2")
    (cli.folder / "demo-0.log").write_bytes(
        b"\x1b[31mred\x1b[0m\n\x1b]0;title\x07a\tb\n\xff\n\x9b2Jcsi\n50%\r100%\r\n\xe2\x80\xaeturned"
    )
    (cli.folder / "demo-1.log").write_bytes(b"second\n")
    done = cli("cluster", "logs", "demo", env=env)
    assert done.out.splitlines() == [
        "demo-0: red",
        "demo-0: a    b",
        "demo-0: \ufffd",
        "demo-0: \ufffd2Jcsi",
        "demo-0: 50% 100%",
        "demo-0:  turned",
        "demo-1: second",
    ]
    assert done.code == 3 and 'demo-2: Error from server (NotFound): pods "demo-2"' in done.err
    one = cli.here("cluster", "logs", "demo", "--pod", "1", env=env)
    assert (one.code, one.out) == (0, "demo-1: second\n")


@pytest.mark.slow
def test_empty_logs_say_where_the_ranks_output_is(cli: Any) -> None:
    env = _env(cli, "demo-0")
    (cli.folder / "demo-0.log").touch()
    done = cli("cluster", "logs", "demo", env=env)
    assert done.code == 0 and "wirespeed runs list" in done.err


@pytest.mark.slow
def test_following_ends_when_no_pod_can_say_more(cli: Any) -> None:
    env = _env(cli, "demo-0", "demo-1")
    for number in range(2):
        lines = "".join(f"{number}-{line}\n" for line in range(3000))
        (cli.folder / f"demo-{number}.log").write_text(lines)
    done = cli("cluster", "logs", "demo", "--follow", env=env)
    assert done.code == 0, done.err
    for number in range(2):
        mine = [one for one in done.out.splitlines() if one.startswith(f"demo-{number}: ")]
        assert mine == [f"demo-{number}: {number}-{line}" for line in range(3000)]


@pytest.mark.parametrize(
    "words", [("--since", "yesterday"), ("--since", "-5m"), ("--tail", "-1"), ("-f", "--previous")]
)
def test_wrong_options(cli: Any, says_clearly: Any, words: tuple[str, ...]) -> None:
    says_clearly(cli.here("cluster", "logs", "demo", *words, env=_env(cli, "demo-0")), 2)


def test_lines_are_whole_however_they_come() -> None:
    data = "a\nünï\n\nlast".encode()
    for size in range(1, len(data) + 1):
        stream = io.BytesIO(data)
        assert list(whole_lines(lambda _, n=size, s=stream: s.read(n))) == ["a", "ünï", "", "last"]


def test_a_line_without_end_is_shown_in_pieces() -> None:
    pieces = list(whole_lines(io.BytesIO(b"x" * 3_500_000).read))
    assert sum(map(len, pieces)) == 3_500_000 and len(pieces) > 1
    assert max(map(len, pieces)) < 1_200_000


def _stamped(number: int, text: str) -> str:
    return f"2026-11-21T21:30:00.{number:09d}Z {text}"


def test_a_stream_opened_again_repeats_nothing_and_loses_nothing() -> None:
    shown = Shown()
    assert shown.reopened() in ("--since=5s", "--since=6s")
    said = [_stamped(number, f"line {number % 3}") for number in range(10)]
    assert [shown.new(line) for line in said] == [f"line {number % 3}" for number in range(10)]
    assert shown.reopened() == "--since-time=2026-11-21T21:30:00.000000009Z"
    again = [*said[4:], _stamped(10, "line 0"), _stamped(11, ""), _stamped(12, "2026-11-21 x")]
    assert [text for line in again if (text := shown.new(line)) is not None] == [
        "line 0",
        "",
        "2026-11-21 x",
    ]
    assert shown.new("no stamp at all") == "no stamp at all"


def test_stamps_within_a_long_line_are_taken_out() -> None:
    line = _stamped(1, "a" * 16_384 + _stamped(2, "b" * 16_384 + _stamped(3, "c")))
    assert Shown().new(line) == "a" * 16_384 + "b" * 16_384 + "c"
