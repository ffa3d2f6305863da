"""Ranks as tasks of Metaflow's `@parallel`, for real: on the local datastore, two nodes."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("metaflow", reason="Requires: metaflow (pip install 'wirespeed[metaflow]')")

ON = ("--on", "metaflow", "--nodes", "2")
TELL = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $PLAIN"
STAY = "echo $$ > pid-$RANK.new; mv pid-$RANK.new pid-$RANK; exec sleep 611"
Find = Callable[[dict[str, Any], str], dict[str, Any]]


def launch(cli: Any, *command: str, more: tuple[str, ...] = ()) -> Any:
    return cli.start("launch", *ON, *more, "--", *command)


def started(cli: Any, size: int) -> dict[int, int]:
    """Pid by rank of commands that `STAY`."""
    paths = {rank: cli.folder / f"pid-{rank}" for rank in range(size)}
    cli.until(lambda: all(path.exists() for path in paths.values()))
    return {rank: int(path.read_text()) for rank, path in paths.items()}


def tasks(cli: Any) -> dict[str, int]:
    """Pids of Metaflow's processes: the runtime, the first node's task, the second one's."""
    found = {}
    for pid in cli.processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if any(word.endswith("wirespeed_ranks.py") for word in words):
            second = "--split-index" in words and words[words.index("--split-index") + 1] == "1"
            found["second" if second else "first" if "step" in words else "runtime"] = pid
    return found


def left_in(folder: Path) -> set[str]:
    """What a job may not leave in its user's home and working directory."""
    return {path.name for path in folder.iterdir() if "metaflow" in path.name.lower()}


def test_every_rank_runs_and_tells_its_place(cli: Any) -> None:
    words = ("--ranks-per-node", "2", "-x", "PLAIN=a $(b) 'c'")
    done = launch(cli, "sh", "-c", TELL, more=words).wait()
    assert done.code == 0, done.err
    lines = sorted(line.partition(": ")[2] for line in done.out.splitlines())
    at, plain = "127.0.0.1", "a $(b) 'c'"
    assert lines == [
        f"0/4 0/2 0 {at} {plain}",
        f"1/4 1/2 0 {at} {plain}",
        f"2/4 0/2 1 {at} {plain}",
        f"3/4 1/2 1 {at} {plain}",
    ]
    assert not left_in(cli.folder)
    assert not list((cli.folder / "tmp").iterdir())


def test_no_line_of_many_is_lost_cut_or_doubled(cli: Any) -> None:
    program = "for i in range(3000): print(f'line {i} ' + 'é' * (i % 700))"
    done = launch(cli, sys.executable, "-c", program, more=("--no-prefix",)).wait()
    assert done.code == 0, done.err
    wanted = [f"line {i} " + "é" * (i % 700) for i in range(3000)]
    assert sorted(done.out.splitlines()) == sorted(wanted * 2)


def test_a_secret_is_on_no_command_line(cli: Any) -> None:
    secret = "s3cr3t-of-this-test"
    running = cli.start_words(
        [sys.executable, "-m", "wirespeed", "launch", *ON, "-x", "A_TOKEN", "--", "sh", "-c", STAY],
        env={"A_TOKEN": secret},
    )
    ranks = started(cli, 2)
    for pid, environment in cli.processes().items():
        assert secret not in Path(f"/proc/{pid}/cmdline").read_text()
        if pid in ranks.values():
            assert environment["A_TOKEN"] == secret
    running.signal(signal.SIGINT)
    assert running.wait().code == 130


def test_the_first_failure_is_named(cli: Any, finding: Find) -> None:
    fails = '[ "$RANK" = 1 ] && exit 7; exec sleep 611'
    done = launch(cli, "sh", "-c", fails, more=("--grace", "1")).wait()
    assert done.code == 7, done.err
    found = finding(cli.run(), "DIED-001")
    assert "rank 1" in found["title"]
    assert "7" in found["saw"]


def test_a_killed_rank_is_named(cli: Any, finding: Find) -> None:
    running = launch(cli, "sh", "-c", STAY, more=("--grace", "1"))
    os.kill(started(cli, 2)[1], signal.SIGKILL)
    assert running.wait().code == 128 + signal.SIGKILL
    assert "rank 1" in finding(cli.run(), "DIED-001")["title"]


@pytest.mark.parametrize("who", ["runtime", "first", "second"])
def test_a_killed_task_is_a_lost_node(cli: Any, finding: Find, who: str) -> None:
    running = launch(cli, "sh", "-c", STAY, more=("--grace", "1"))
    started(cli, 2)
    os.kill(tasks(cli)[who], signal.SIGKILL)
    done = running.wait()
    assert done.code == 3, done.out + done.err
    assert "metaflow" in finding(cli.run(), "LAUNCH-007")["title"]


def test_nothing_outlives_a_killed_launcher(cli: Any) -> None:
    running = launch(cli, "sh", "-c", STAY)
    started(cli, 2)
    running.kill()
    cli.nothing_runs()


def test_ctrl_c_ends_everything(cli: Any, finding: Find) -> None:
    running = launch(cli, "sh", "-c", STAY)
    started(cli, 2)
    running.signal(signal.SIGINT)
    assert running.wait().code == 130
    finding(cli.run(), "INT-001")


def test_the_script_does_the_same_by_hand(cli: Any) -> None:
    script = cli("launch", *ON, "--dry-run", "--", "sh", "-c", TELL)
    assert script.code == 0, script.err
    path = cli.folder / "job.sh"
    path.write_text(script.out)
    done = cli.start_words(["sh", str(path)]).wait()
    assert done.code == 0, done.err
    for rank in (0, 1):
        assert f"{rank}/2 0/1 {rank} 127.0.0.1" in done.out


def test_check_is_ready(cli: Any, finding: Find) -> None:
    done = cli("check", *ON, "-l", "quick", "-q")
    assert done.code == 0, done.out + done.err
    run = cli.run()
    assert (run["verdict"], run["world"]["size"]) == ("READY", 2)
    assert finding(run, "COL-001")["status"] == "pass"


@pytest.mark.parametrize(
    ("fault", "id"), [("kill:rank=1,after=1", "DIED-001"), ("stop:rank=1,after=1", "HANG-001")]
)
def test_check_names_a_planted_failure(cli: Any, finding: Find, fault: str, id: str) -> None:
    done = cli("check", *ON, "-l", "quick", "-q", "--timeout", "5", "--inject", fault)
    assert done.code == 1, done.out + done.err
    found = finding(cli.run(), id)
    assert found["status"] == "fail"
    assert "rank 1" in found["title"] + found["subject"]["name"]
