"""Ranks that do not come further than importing torch; the torch here is one of ours that misbehaves."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUICK = ("bench", "barrier", "-n", "3", "--ranks", "2", "-q")
HANGS = """
import os, pathlib, time
pathlib.Path(os.environ["IMPORTING"]).write_text(str(os.getpid()))
time.sleep(600)
"""
AFTER_S = 20.0

Find = Callable[[dict[str, Any], str], dict[str, Any]]


@pytest.fixture
def torch(cli: Any) -> Callable[[str], dict[str, str]]:
    """`torch(source)`: the environment in which `import torch` runs that."""

    def write(source: str) -> dict[str, str]:
        package = cli.folder / "modules" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        return {"PYTHONPATH": str(package.parent), "IMPORTING": str(cli.folder / "importing")}

    return write


def importing(cli: Any) -> int:
    """Wait until torch is being imported; the pid of who does."""
    mark = Path(cli.folder / "importing")
    return int(cli.until(lambda: mark.exists() and mark.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(cli: Any, torch: Any, number: signal.Signals) -> None:
    running = cli.start(*QUICK, env=torch(HANGS))
    importing(cli)
    running.signal(number)
    running.signal(number)
    done = running.wait(AFTER_S)
    assert done.code == 130
    assert "Traceback" not in done.err
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("INTERRUPTED", 130)
    cli.nothing_runs()


@pytest.mark.slow
def test_nothing_outlives_a_command_that_is_killed(cli: Any, torch: Any) -> None:
    running = cli.start(*QUICK, env=torch(HANGS))
    os.kill(importing(cli), signal.SIGSTOP)  # it could not end by itself
    running.signal(signal.SIGKILL)
    running.wait(AFTER_S)
    cli.nothing_runs()


@pytest.mark.slow
def test_the_bound_holds_and_a_stack_says_where_it_stands(
    cli: Any, finding: Find, torch: Any
) -> None:
    done = cli(*QUICK, "--startup-timeout", "10", env=torch(HANGS))
    assert done.code == 1, done.out
    found = finding(cli.run(), "JOIN-001")
    assert found["subject"]["name"] == "rank 0"
    assert "torch" in found["because"]
    assert any("torch/__init__.py" in line for line in found["evidence"]), found["evidence"]


@pytest.mark.slow
def test_its_death_by_a_signal_is_named(cli: Any, finding: Find, torch: Any) -> None:
    done = cli(*QUICK, env=torch("import os, signal; os.kill(os.getpid(), signal.SIGILL)"))
    assert done.code == 1, done.out
    run = cli.run()
    assert "SIGILL" in finding(run, "LAUNCH-007")["title"]
    assert "SIGILL" in finding(run, "DIED-001")["title"]


@pytest.mark.slow
def test_each_rank_tells_why_it_cannot(cli: Any, finding: Find, torch: Any) -> None:
    """Where an import fails each rank is started anew, and what it then raises is its own."""
    done = cli(
        *QUICK, env=torch("raise ImportError('libnothing.so: cannot open shared object file')")
    )
    assert done.code == 1, done.out
    found = finding(cli.run(), "RAISED-001")
    assert "libnothing.so" in found["title"]
    assert "and so did rank" in found["title"]
    (folder,) = cli.folders()
    for rank in range(2):
        assert "libnothing.so" in (folder / "logs" / f"rank-{rank}.log").read_text()
