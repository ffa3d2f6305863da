"""`wirespeed launch` and `--on` as a user starts them, with real ranks of this machine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TORCH = (
    "import os, torch, torch.distributed as dist\n"
    "dist.init_process_group('gloo')\n"
    "x = torch.ones(1) * dist.get_rank()\n"
    "dist.all_reduce(x)\n"
    "os.write(1, f'sum {x.item():.0f} of {dist.get_world_size()}\\n'.encode())\n"
    "dist.destroy_process_group()\n"
)
QUICK = ("check", "--only", "COL-001", "--ranks", "2", "-q")


@pytest.mark.slow
def test_any_command_as_ranks_with_its_output_in_order(cli: Any) -> None:
    done = cli("launch", "--ranks", "3", "--", "sh", "-c", 'echo "a $RANK"; echo "b $RANK" >&2')
    assert done.code == 0
    node = os.uname().nodename
    assert sorted(done.out.splitlines()) == [f"{node}/rank-{r}: a {r}" for r in range(3)]
    assert {f"{node}/rank-{r}: b {r}" for r in range(3)} <= set(done.err.splitlines())
    assert "3 of 3 ranks on 1 node ended with 0" in done.err
    run = cli.run()
    assert (run["command"], run["exit_code"], run["world"]["size"]) == ("launch", 0, 3)
    logs = cli.folders()[0] / "logs"
    assert {p.name for p in logs.iterdir()} == {f"rank-{r}.log" for r in range(3)}
    assert sorted((logs / "rank-2.log").read_text().split("\n")) == ["", "a 2", "b 2"]


@pytest.mark.slow
def test_torch_finds_its_world(cli: Any) -> None:
    done = cli("launch", "--ranks", "2", "--no-prefix", "-q", "--", sys.executable, "-c", TORCH)
    assert (done.code, done.out, done.err) == (0, "sum 1 of 2\n" * 2, "")


def test_the_first_failure_is_named_and_its_code_is_ours(cli: Any) -> None:
    script = "if [ $RANK = 1 ]; then echo oh no; exit 7; fi; sleep 300"
    done = cli("launch", "--ranks", "3", "--grace", "0.2", "--", "sh", "-c", script)
    assert done.code == 7
    assert "rank 1 on" in done.err
    assert "failed first: ended with exit code 7" in done.err
    assert "LAUNCH-007" not in done.err
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("JOB FAILED", 7)
    assert run["findings"][0]["id"] == "DIED-001"


@pytest.mark.parametrize("options", [(), ("--ranks", "2"), ("--watch",)])
@pytest.mark.parametrize(("program", "code"), [("nosuchprog", 127), ("/etc/passwd", 126)])
def test_a_command_that_is_not_there_starts_nothing(
    cli: Any, program: str, code: int, options: tuple[str, ...]
) -> None:
    done = cli.here("launch", *options, "--", program, "word")
    assert (done.code, done.out) == (code, "")
    assert program in done.err.splitlines()[0]
    assert "Traceback" not in done.err
    assert cli.folders() == []


def test_path_of_the_ranks_counts(cli: Any, tmp_path: Path) -> None:
    program = tmp_path / "theirs"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    assert cli("launch", "-x", path, "--", "theirs").code == 0
    assert cli.here("launch", "--", "theirs").code == 127


@pytest.mark.slow
@pytest.mark.parametrize("torchrun", ["yes", "no"])
def test_a_far_node_reports_the_missing_command(cli: Any, tmp_path: Path, torchrun: str) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    words = (
        "--on",
        "ssh",
        "--hosts",
        "node-1:2",
        *(("--with", "torchrun=no") * (torchrun == "no")),
    )
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = cli("launch", "--watch", *words, "--", "nosuchprog", "word", env=path)
    assert done.code == 127
    assert f"command not found on {os.uname().nodename}: nosuchprog" in done.err
    assert "Traceback" not in done.err
    found = [(one["id"], one["subject"]["kind"]) for one in cli.run()["findings"]]
    assert found == [("LAUNCH-010", "job")]
    assert cli.run()["findings"][0]["next"].endswith("""-- sh -c 'echo "$PATH"'""")


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(cli: Any) -> None:
    running = cli.start("launch", "--ranks", "2", "--", "sh", "-c", "echo up; sleep 300")
    wait_for_lines(running, 2)
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.code == 130
    assert cli.run()["exit_code"] == 130


@pytest.mark.slow
def test_when_the_launching_process_is_killed_the_ranks_end(cli: Any) -> None:
    running = cli.start("launch", "--ranks", "2", "--", "sh", "-c", "echo $$; sleep 300")
    lines = wait_for_lines(running, 2)
    running.signal(signal.SIGKILL)
    running.wait()
    for line in lines:
        wait_until_gone(int(line.rpartition(" ")[2]))


def wait_for_lines(running: Any, count: int) -> list[str]:
    deadline = time.monotonic() + 30
    while len(running.out().splitlines()) < count:
        assert time.monotonic() < deadline, "no output within the bound"
        time.sleep(0.05)
    lines: list[str] = running.out().splitlines()
    return lines


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def test_a_dry_run_is_a_script_that_does_the_same(cli: Any, tmp_path: Path) -> None:
    words = ("--ranks", "2", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE; exit $RANK")
    done = cli.here("launch", "--dry-run", *words, env={"HF_TOKEN": "very-secret"})
    assert (done.code, done.err) == (0, "")
    ran = subprocess.run(
        ["sh", "-c", done.out], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, sorted(ran.stdout.splitlines())) == (1, ["0 of 2", "1 of 2"])
    written = cli.here(
        "launch", "-o", "yaml", "-x", "HF_TOKEN", *words, env={"HF_TOKEN": "very-secret"}
    )
    assert "HF_TOKEN" in written.out
    assert "very-secret" not in written.out
    assert not (cli.home / "runs").exists()


def test_the_engines_and_their_options_are_listed(cli: Any) -> None:
    done = cli.here("launch", "--list")
    assert done.code == 0
    assert all(f"\n{name} " in f"\n{done.out}" for name in ("local", "ssh", "mpi", "slurm", "ray"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("launch",), "no command to run"),
        (("launch", "--on", "pbs", "--", "true"), "pbs"),
        (("launch", "--hosts", "-oX=1", "--on", "ssh", "--", "true"), "no host name"),
        (("launch", "--hostfile", "/no/such/file", "--on", "mpi", "--", "true"), "cannot be read"),
        (("launch", "--with", "zzz=1", "--", "true"), "no option 'zzz'"),
        (("launch", "-x", "NOT_SET_ANYWHERE", "--", "true"), "it is not set here"),
        (("launch", "--nodes", "2", "--", "true"), "this machine only"),
        (("check", "--hosts", "a,b"), "says nothing without --on"),
        (("check", "--dry-run"), "says nothing without --on"),
    ],
)
def test_mistakes_are_explained(cli: Any, words: tuple[str, ...], message: str) -> None:
    done = cli.here(*words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_check_through_an_engine_is_a_run_like_any_other(cli: Any, finding: Any) -> None:
    done = cli(*QUICK, "--on", "local", "-o", "json", env={"NCCL_DEBUG": "WARN"})
    assert done.code == 0, done.err
    run = cli.run()
    assert done.json["id"] == run["id"]
    world = run["world"]
    assert (run["verdict"], world["launcher"], world["size"]) == ("PASSED", "local", 2)
    assert run["environment"]["NCCL_DEBUG"] == "WARN"
    assert finding(run, "COL-001")["status"] == "pass"
    assert run["verifications"]


@pytest.mark.slow
def test_wrong_data_through_an_engine_is_found(cli: Any, finding: Any) -> None:
    done = cli(*QUICK, "--on", "local", "--inject", "flip:rank=1")
    assert done.code == 1
    assert "rank 1" in finding(cli.run(), "COL-001")["saw"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.slow
def test_a_killed_rank_is_named_with_its_signal(cli: Any, finding: Any, rank: int) -> None:
    """Also rank 0, which holds the session: then what launched the job names it."""
    done = cli(
        "check",
        "-l",
        "quick",
        "--ranks",
        "2",
        "-q",
        "--on",
        "local",
        "--inject",
        f"kill:rank={rank},after=3",
    )
    assert done.code == 1, done.err
    died = finding(cli.run(), "DIED-001")
    assert died["subject"]["name"] == f"rank {rank}"
    assert "SIGKILL" in died["title"]
    assert cli.run()["verifications"], "what was measured before is kept"


@pytest.mark.slow
def test_a_hang_through_an_engine_is_found(cli: Any, finding: Any) -> None:
    done = cli(*QUICK, "--on", "local", "--timeout", "2", "--inject", "stop:rank=1")
    assert done.code == 1
    assert finding(cli.run(), "HANG-001")["subject"]["name"] == "rank 1"


def test_inside_a_world_an_engine_is_refused(cli: Any) -> None:
    done = cli.here(
        *QUICK, "--on", "local", env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}
    )
    assert done.code == 2
    assert "inside a world" in done.err


@pytest.mark.slow
def test_an_odd_end_after_the_results_is_a_warning(cli: Any, finding: Any) -> None:
    done = cli(*QUICK, "--on", "local", "--inject", "abort:rank=1")
    assert done.code == 0, done.err
    odd = finding(cli.run(), "EXIT-001")
    assert (odd["status"], odd["subject"]["name"]) == ("warn", "rank 1")


def test_a_secret_of_the_command_reaches_the_rank_and_nobody_else(cli: Any) -> None:
    words = ("launch", "--ranks", "1", "-q", "--", "sh", "-c", '[ "$1" = --token=abc-1 ]')
    assert cli(*words, "sh", "--token=abc-1", "--password", "abc-2").code == 0
    assert cli.run()["config"]["command"][4:] == ["--token=***", "--password", "***"]
    kept = [path.read_bytes() for path in cli.home.rglob("*") if path.is_file()]
    assert not any(b"abc-" in text for text in kept)
    shown = cli.here(*words[:4], "-o", "sh", "--", "prog", "--token=abc-1")
    assert "abc-1" not in shown.out
    assert "# *** stands for a secret that was taken out: put it back" in shown.out
