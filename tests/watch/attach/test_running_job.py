"""`wirespeed attach` at a real job under plain torchrun, which knows nothing of it."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[2] / "programs" / "train_told.py"


class Job:
    """Three ranks; `tell` one of them what to do in place of training."""

    def __init__(self, cli: Any, folder: Path) -> None:
        self.cli, self.folder = cli, folder
        self.folder.mkdir()
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
        words = [sys.executable, "-m", *torchrun, str(PROGRAM), str(folder)]
        self.running = cli.start_words(words, env={"OMP_NUM_THREADS": "1"})
        cli.until(lambda: len(list(folder.glob("ready-*"))) == 3)

    @property
    def launcher(self) -> int:
        return self.running.process.pid

    def tell(self, rank: int, what: str) -> None:
        (self.folder / f"rank-{rank}.new").write_text(what)
        (self.folder / f"rank-{rank}.new").replace(self.folder / f"rank-{rank}")
        time.sleep(0.5)

    def calm(self) -> None:
        for path in self.folder.glob("rank-*"):
            sleeps = path.read_text() in ("sleep", "gil")
            path.unlink()
            if sleeps:
                os.kill(self.cli.ranks()[int(path.name.removeprefix("rank-"))], signal.SIGUSR1)
        time.sleep(0.5)

    def attach(self, *pids: int, seconds: float = 1.5, options: tuple[str, ...] = ()) -> Any:
        words = [*map(str, pids or (self.launcher,)), "--seconds", str(seconds), *options]
        return self.cli("attach", *words, "-o", "json", "-q")


@pytest.fixture(scope="module")
def running(new_cli: Any) -> Iterator[Job]:
    cli = new_cli()
    job = Job(cli, cli.folder / "job")
    yield job
    cli.end_all()


@pytest.fixture
def job(running: Job) -> Iterator[Job]:
    yield running
    running.calm()


def test_a_healthy_job_progresses(job: Job, finding: Any) -> None:
    done = job.attach()
    assert (done.code, done.json["verdict"]) == (0, "PROGRESSING"), done.out
    assert finding(done.json, "WATCH-015")["status"] == "pass"
    assert done.json["world"]["launcher"] == "torchrun" and done.json["world"]["size"] == 3


def test_a_stopped_rank_is_named_with_its_stack_and_stays_stopped(job: Job, finding: Any) -> None:
    pid = job.cli.ranks()[1]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    try:
        done = job.attach()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    finally:
        os.kill(pid, signal.SIGCONT)
    one = finding(done.json, "WATCH-008")
    assert (done.code, state) == (1, "T")
    assert one["subject"] == {"kind": "rank", "name": "rank 1"}
    assert "stopped by a signal" in one["title"] and "ranks 0, 2 wait in" in one["title"]
    assert one["evidence"][0].startswith("rank 1: ") and "train_told.py" in one["evidence"][0]
    assert job.attach().code == 0, "the job goes on as before"


@pytest.mark.parametrize(
    "what, label", [("save", "writes a checkpoint"), ("evaluate", "evaluates")]
)
def test_a_rank_that_works_by_itself_is_not_accused(
    job: Job, finding: Any, what: str, label: str
) -> None:
    job.tell(0, what)
    done = job.attach()
    one = finding(done.json, "WATCH-015")
    assert done.code == 0, done.out
    assert one["subject"]["name"] == "rank 0" and label in one["title"]
    assert "waiting meanwhile: ranks 1-2" in one["title"]


def test_one_rank_alone_does_not_tell_whom_it_waits_for(job: Job, finding: Any) -> None:
    pid = job.cli.ranks()[1]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    try:
        done = job.attach(job.cli.ranks()[0])
    finally:
        os.kill(pid, signal.SIGCONT)
    one = finding(done.json, "WATCH-016")
    assert (done.code, done.json["verdict"]) == (3, "CANNOT TELL")
    assert "ranks 1-2 of the job were not looked at" in one["because"]
    assert str(job.launcher) in one["next"]


def test_a_look_is_a_stored_run(job: Job) -> None:
    done = job.attach()
    shown = job.cli("runs", "show", done.json["id"])
    assert "PROGRESSING" in shown.out and "attach" in shown.out


def test_ctrl_c_ends_it_and_leaves_the_job(job: Job) -> None:
    looking = job.cli.start("attach", str(job.launcher), "--seconds", "60")
    job.cli.until(lambda: "looking at 3 ranks" in looking.err())
    time.sleep(0.5)
    looking.signal(signal.SIGINT)
    done = looking.wait(20)
    assert done.code == 130 and "Traceback" not in done.err
    assert job.attach().code == 0


@pytest.mark.parametrize(
    "what, told", [("sleep", "does not move: load_batch"), ("gil", "does not move: hold_")]
)
def test_a_rank_that_does_nothing_is_named_with_its_line(
    job: Job, finding: Any, what: str, told: str
) -> None:
    job.tell(1, what)
    job.cli.until(lambda: job.attach(seconds=0.8).code == 1, 30)
    one = finding(job.attach(options=("--native",)).json, "WATCH-008")
    assert one["subject"]["name"] == "rank 1" and told in one["title"]
    assert "holds Python's interpreter lock" in one["saw"] or what == "sleep"
    assert "with C frames: " in one["evidence"][1] and "nanosleep" in one["evidence"][1]
