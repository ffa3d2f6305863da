"""Ranks under a real Slurm: four nodes, its controller, and every way in which a job ends."""

import ast
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AFTER_S = 30.0
NODE_DOWN_S = 90.0
"""slurmctld gives a silent node up after SlurmdTimeout (10 s here) and its own round."""
SHOW = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $(hostname)"
PLACES = [f"{r} 8 {r % 2} 2 node-0 node-{r // 2}" for r in range(8)]
HOLD = "import os, time; print('holds', os.environ['RANK'], flush=True); time.sleep(600)"
LINES = 10_000
WRITE = (
    "import os, sys; rank = os.environ['RANK']\n"
    f"for i in range({LINES}): sys.stdout.write(f'{{rank}} {{i}} ' + 'x' * (i % 90) + '\\n')"
)
WAYS = ([], ["--with", "batch"])
Launch = Callable[..., Any]


@pytest.fixture
def launch(slurm_lab: Any) -> Launch:
    """`launch("--nodes", "4", "--", …)`: wirespeed launch --on slurm on node-0, started."""

    def start(*words: str, env: dict[str, str] | None = None) -> Any:
        command = [sys.executable, "-m", "wirespeed", "launch", "--on", "slurm", "--no-prefix"]
        return slurm_lab.start([*command, *words], env)

    return start


def lines_of(text: str) -> list[str]:
    return sorted(text.splitlines())


def holding(running: Any, cli: Any, ranks: int = 4) -> None:
    cli.until(lambda: running.out().count("holds") == ranks)


def nothing_left(slurm: Any, cli: Any) -> None:
    cli.until(slurm.idle, AFTER_S)


@pytest.mark.parametrize("way", WAYS)
def test_ranks_know_their_places(way: list[str], launch: Launch, slurm_lab: Any, cli: Any) -> None:
    done = launch("--nodes", "4", "--ranks-per-node", "2", *way, "--", "sh", "-c", SHOW).wait()
    assert done.code == 0, done.err
    assert lines_of(done.out) == PLACES
    nothing_left(slurm_lab, cli)
    assert not list(cli.folder.glob("*.out")), "the batch job's output was only passed through"


def test_inside_an_allocation(launch: Launch, slurm_lab: Any, cli: Any) -> None:
    """Nodes and ranks come from salloc; its own step is all that runs."""
    words = [sys.executable, "-m", "wirespeed", "launch", "--on", "slurm", "--no-prefix"]
    salloc = ["salloc", "--nodes=4", "--ntasks-per-node=2", "--cpus-per-task=3", *words]
    done = slurm_lab.run([*salloc, "--", "sh", "-c", f"{SHOW} $SLURM_CPUS_PER_TASK"])
    assert done.code == 0, done.err
    assert lines_of(done.out) == [f"{place} 3" for place in PLACES]
    refused = slurm_lab.run([*salloc, "--with", "partition=train", "--", "true"])
    assert refused.code == 2
    assert "inside allocation" in refused.err
    nothing_left(slurm_lab, cli)


def test_inside_a_shell_that_is_a_step(slurm_lab: Any, cli: Any) -> None:
    """`srun --pty bash` holds the cores that ranks need: they share them."""
    words = [sys.executable, "-m", "wirespeed", "launch", "--on", "slurm", "--no-prefix"]
    shell = f"{' '.join(words)} --nodes 2 --startup-timeout 20 -- sh -c 'echo here \\$RANK'"
    pty = ["script", "-qec", f'srun --nodes=2 --ntasks=2 --pty sh -c "{shell}"', "/dev/null"]
    done = slurm_lab.run(pty)
    assert done.code == 0, done.out + done.err
    assert "here 0" in done.out
    assert "here 1" in done.out
    nothing_left(slurm_lab, cli)


def test_hosts_with_unlike_slots(launch: Launch) -> None:
    done = launch("--hosts", "node-2:3,node-0:1", "--", "sh", "-c", SHOW).wait()
    assert done.code == 0, done.err
    assert lines_of(done.out)[0] == "0 4 0 3 node-2 node-2"
    assert lines_of(done.out)[3] == "3 4 0 1 node-2 node-0"


@pytest.mark.parametrize("way", WAYS)
def test_no_line_is_lost(way: list[str], launch: Launch) -> None:
    done = launch("--nodes", "4", "-q", *way, "--", sys.executable, "-c", WRITE).wait()
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 4 * LINES
    assert set(lines) == {f"{r} {i} {'x' * (i % 90)}" for r in range(4) for i in range(LINES)}


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("way", WAYS)
def test_words_are_data_and_values_are_hidden(
    way: list[str], launch: Launch, slurm_lab: Any, cli: Any
) -> None:
    """Neither the batch script nor ps nor a file in the job's folder shows the secret."""
    hostile = ["a b", "$(touch pwned)", "'; touch pwned;", "-x", "\n#SBATCH --partition=short", "é"]
    show = "import os, sys, time; print([*sys.argv[1:], os.environ['MY_TOKEN']], flush=True)"
    show += "; time.sleep(3)"
    secret = "s3cret, with=\n commas"
    words = ["-x", "MY_TOKEN", *way, "--", sys.executable, "-c", show, *hostile]
    running = launch(*words, env={"MY_TOKEN": secret})
    cli.until(lambda: running.out())
    shown = [line for node in slurm_lab.nodes for line in slurm_lab.processes(node).values()]
    assert shown
    assert not [line for line in shown if "s3cret" in line]
    done = running.wait()
    assert done.code == 0, done.err
    assert ast.literal_eval(done.out) == [*hostile, secret]
    assert not list(cli.folder.rglob("pwned"))


@pytest.mark.parametrize("way", WAYS)
def test_first_failure_is_named_and_the_rest_ended(
    way: list[str], launch: Launch, slurm_lab: Any, cli: Any, finding: Any
) -> None:
    code = "import os, sys, time; time.sleep(1)\nif os.environ['RANK'] == '2': sys.exit(7)\n"
    code += "time.sleep(600)"
    done = launch("--nodes", "4", "--grace", "1", *way, "--", sys.executable, "-c", code).wait()
    assert done.code == 7, done.err
    assert "rank 2 on node-2" in finding(cli.run(), "DIED-001")["title"]
    nothing_left(slurm_lab, cli)


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_rank(
    way: list[str], launch: Launch, slurm_lab: Any, cli: Any, finding: Any
) -> None:
    running = launch("--nodes", "4", *way, "--", sys.executable, "-c", HOLD)
    holding(running, cli)
    line = f"{sys.executable} -c {HOLD}"
    (pid,) = [pid for pid, words in slurm_lab.processes("node-3").items() if words == line]
    os.kill(pid, signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 128 + signal.SIGKILL, done.err
    assert "rank 3 on node-3" in finding(cli.run(), "DIED-001")["title"]
    nothing_left(slurm_lab, cli)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGKILL])
def test_no_job_and_no_process_is_left(
    which: signal.Signals, way: list[str], launch: Launch, slurm_lab: Any, cli: Any
) -> None:
    """After Ctrl-C, and after the death of wirespeed itself."""
    running = launch("--nodes", "4", *way, "--", sys.executable, "-c", HOLD)
    holding(running, cli)
    running.signal(which)
    code = running.wait(AFTER_S).code
    assert code == (130 if which is signal.SIGINT else -which)
    nothing_left(slurm_lab, cli)
    assert not list(cli.folder.glob("*.out"))


def test_a_killed_srun_and_a_killed_driver(launch: Launch, slurm_lab: Any, cli: Any) -> None:
    for program in ("srun ", f"{sys.executable} -P -m wirespeed.launchers.slurm.step"):
        running = launch("--nodes", "4", "--", sys.executable, "-c", HOLD)
        holding(running, cli)
        mine = slurm_lab.processes("node-0").items()
        pids = [pid for pid, words in mine if words.startswith(program)]
        os.kill(min(pids), signal.SIGKILL)
        done = running.wait(AFTER_S)
        assert done.code == 3, done.err
        nothing_left(slurm_lab, cli)


@pytest.mark.parametrize("way", WAYS)
def test_a_node_is_cut_off(
    way: list[str], launch: Launch, slurm_lab: Any, cli: Any, finding: Any
) -> None:
    running = launch("--nodes", "4", *way, "--", sys.executable, "-c", HOLD)
    holding(running, cli)
    slurm_lab.cut("node-3")
    done = running.wait(NODE_DOWN_S)
    assert done.code == 3, done.err
    assert "node-3" in finding(cli.run(), "SLURM-030")["title"], done.err
    for node in slurm_lab.nodes[:3]:
        cli.until(lambda here=node: not slurm_lab.processes(here), AFTER_S)


@pytest.mark.parametrize("way", WAYS)
def test_time_limit(way: list[str], launch: Launch, slurm_lab: Any, cli: Any, finding: Any) -> None:
    """Slurm counts minutes; the controller is told to make it end now."""
    running = launch("--nodes", "2", "--with", "time=1", *way, "--", sys.executable, "-c", HOLD)
    holding(running, cli, 2)
    job = slurm_lab.jobs()[0].split()[0]
    slurm_lab.slurm("scontrol", "update", f"jobid={job}", "endtime=now")
    done = running.wait(150.0)
    assert done.code == 3, done.err
    assert finding(cli.run(), "SLURM-002")
    nothing_left(slurm_lab, cli)


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_waits(way: list[str], launch: Launch, slurm_lab: Any, cli: Any) -> None:
    """Its reason is told, and the wait is bounded."""
    holder = slurm_lab.start(["srun", "--nodes=4", "--exclusive", "sleep", "600"])
    cli.until(lambda: any("RUNNING" in line for line in slurm_lab.jobs()))
    done = launch("--nodes", "2", "--with", "wait=4s", *way, "--", "true").wait(AFTER_S)
    assert done.code == 3, done.err
    assert "is pending: Resources" in done.err
    assert "still pending after" in done.err
    assert len(slurm_lab.jobs()) == 1, "only the holder's"
    slurm_lab.slurm("scancel", "--user=root")
    holder.wait()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--with", "partition=nope"], "Invalid partition name"),
        (["--with", "gres=gpu:9"], "Requested node configuration is not available"),
        (["--with", "gres=tpu:1"], "Invalid generic resource"),
        (["--with", "mem=99999"], "Requested node configuration is not available"),
        (["--nodes", "9"], "Node count specification invalid"),
        (["--with", "reservation=none"], "Requested reservation is invalid"),
        (["--with", "container-image=/a.sqsh"], "has no --container-image"),
        (["--with", "segment=2"], "has no --segment"),
    ],
)
def test_wrong_requests(
    words: list[str], expected: str, launch: Launch, slurm_lab: Any, says_clearly: Any
) -> None:
    assert expected in says_clearly(launch(*words, "--", "true").wait(), 2)
    assert slurm_lab.jobs() == []


def test_a_controller_that_is_gone(slurm_lab: Any, launch: Launch, says_clearly: Any) -> None:
    text = slurm_lab.config.read_text().replace(
        "ClusterName=lab", "ClusterName=lab\nSlurmctldPort=1"
    )
    (slurm_lab.folder / "wrong.conf").write_text(text)
    done = launch("--", "true", env={"SLURM_CONF": str(slurm_lab.folder / "wrong.conf")}).wait()
    assert "Slurm's controller cannot be asked" in says_clearly(done, 3)


def test_a_node_that_is_down(slurm_lab: Any, launch: Launch, cli: Any, finding: Any) -> None:
    slurm_lab.slurm("scontrol", "update", "nodename=node-3", "state=drain", "reason=bad GPU")
    done = launch("--hosts", "node-2,node-3,node-9", "--", "true").wait()
    assert done.code == 3
    assert "bad GPU" in finding(cli.run(), "SLURM-102")["saw"]
    assert "node-9" in finding(cli.run(), "SLURM-101")["title"]


def test_a_folder_that_nodes_do_not_share(launch: Launch, slurm_lab: Any, cli: Any) -> None:
    """The job's output goes to a file that is not the one that we follow: said, and cancelled."""
    hidden = slurm_lab.folder / "mine"
    hidden.mkdir()
    command = [sys.executable, "-m", "wirespeed", "launch", "--on", "slurm", "--with", "batch"]
    command += ["--startup-timeout", "4", "--with", f"output={hidden}", "--", "sleep", "60"]
    apart = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]
    done = slurm_lab.run([*apart, *command])
    assert done.code == 3, done.err
    assert "is that folder shared" in done.err
    nothing_left(slurm_lab, cli)


def test_out_of_memory(slurm_memory_lab: Any, cli: Any, finding: Any) -> None:
    """Held by a cgroup, a rank that takes more than --mem is killed, and Slurm says why."""
    eat = "import time; kept = bytearray(400 << 20); time.sleep(30)"
    words = [sys.executable, "-m", "wirespeed", "launch", "--on", "slurm", "--nodes", "2"]
    done = slurm_memory_lab.run([*words, "--with", "mem=150M", "--", sys.executable, "-c", eat])
    assert done.code == 128 + signal.SIGKILL, done.err
    assert finding(cli.run(), "DIED-001")
    assert finding(cli.run(), "SLURM-020")
    cli.until(slurm_memory_lab.idle, AFTER_S)


def test_gpus_make_ranks(launch: Launch) -> None:
    words = ["--nodes", "2", "--with", "gres=gpu:2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    done = launch(*words).wait()
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["0,1"] * 4


def test_a_kept_output(launch: Launch, slurm_lab: Any, cli: Any) -> None:
    """For its owner only, under a name that is no pattern of Slurm's."""
    folder = cli.folder / "100%j mine"
    folder.mkdir()
    done = launch("--with", "batch", "--with", f"output={folder}", "--", "echo", "kept").wait()
    assert done.code == 0, done.err
    (kept,) = folder.iterdir()
    assert "kept" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    nothing_left(slurm_lab, cli)


def test_within_a_bound(launch: Launch, slurm_lab: Any, cli: Any) -> None:
    """Ranks that do not start: their Python is not there."""
    began = time.monotonic()
    done = launch("--nodes", "2", "--python", str(Path("/nowhere/python")), "--", "true").wait()
    assert done.code == 3, done.err
    assert "SLURM-012" in done.err
    assert time.monotonic() - began < AFTER_S
    nothing_left(slurm_lab, cli)


# Verbs.

QUICK = ("check", "-l", "quick", "--only", "correctness")
SLOW = (
    "bench",
    "all_reduce",
    "-b",
    "1K",
    "-e",
    "16M",
    "-f",
    "2",
    "-w",
    "1",
    "--time-per-size",
    "1",
)
SLOW = (*SLOW, "--timeout", "5", "--precision", "0.1")


def verb(slurm: Any, *words: str, nodes: int = 2) -> Any:
    own = {"GLOO_SOCKET_IFNAME": "eth0"}
    command = [sys.executable, "-m", "wirespeed", *words, "--on", "slurm", "--nodes", str(nodes)]
    return slurm.start(command, own)


@pytest.mark.parametrize("way", WAYS)
def test_a_check_passes(way: list[str], slurm_lab: Any, cli: Any) -> None:
    done = verb(slurm_lab, *QUICK, *way, nodes=3).wait()
    assert done.code == 0, done.out + done.err
    run = cli.run()
    assert run["verdict"] == "PASSED"
    assert [node["host"] for node in run["world"]["nodes"]] == ["node-0", "node-1", "node-2"]
    nothing_left(slurm_lab, cli)


def test_check_finds_a_flipped_bit(slurm_lab: Any, cli: Any, finding: Any) -> None:
    """What a check says is the same either way, which the test before shows."""
    done = verb(slurm_lab, *QUICK, "--inject", "flip:rank=1").wait()
    assert done.code == 1, done.out + done.err
    assert "rank 1" in finding(cli.run(), "COL-001")["saw"]
    nothing_left(slurm_lab, cli)


@pytest.mark.parametrize("way", WAYS)
def test_bench_names_a_killed_rank(way: list[str], slurm_lab: Any, cli: Any, finding: Any) -> None:
    running = verb(slurm_lab, *SLOW, *way)
    cli.until(lambda: cli.stored("measurement"))
    line = f"{sys.executable} -P -m wirespeed.session.rank_program"
    (pid,) = [pid for pid, words in slurm_lab.processes("node-1").items() if words == line]
    os.kill(pid, signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 1, done.out + done.err
    run = cli.run()
    assert finding(run, "DIED-001")["subject"] == {"kind": "rank", "name": "rank 1"}
    assert run["measurements"]
    nothing_left(slurm_lab, cli)
