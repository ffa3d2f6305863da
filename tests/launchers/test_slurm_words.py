"""The words for srun and sbatch, and the batch script: golden, and with hostile values."""

import os
import shlex
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Host, Job, as_sh
from wirespeed.launchers.engines.slurm import ENGINE, SlurmPrepared, allocation_of, gpus_of, sized
from wirespeed.launchers.request import read_options
from wirespeed.launchers.slurm.batch import Tail, overruling
from wirespeed.launchers.slurm.command_line import (
    OPTIONS,
    batch_script,
    refuse_together,
    request_words,
    sbatch_words,
    seconds,
    srun_words,
)

JOB = Job(
    command=("python3", "train.py", "--lr", "0.1"),
    nodes=4,
    ranks=32,
    ranks_per_node=8,
    environment={"HF_TOKEN": "s3cret", "NCCL_DEBUG": "INFO"},
    directory="/home/me/run",
    python="/opt/venv/bin/python",
    token="t",
    options={"partition": "gpu", "gres": "gpu:8", "time": "2:00:00", "exclusive": "yes"},
)
HOSTILE = (
    "a b",
    "$(touch pwned)",
    "`id`",
    "';rm -rf x;'",
    "-x",
    "\n#SBATCH --partition=evil\n",
    "é",
)
SRUN = (
    "srun --job-name=wirespeed-{name} --nodes=4 --ntasks=32 --ntasks-per-node=8 "
    "--distribution=block --partition=gpu --time=2:00:00 --gres=gpu:8 --exclusive --export=ALL "
    "--input=none --kill-on-bad-exit=0 --wait=0 --chdir=/ /opt/venv/bin/python -P -m "
    "wirespeed.launchers.rank_wrapper -- python3 train.py --lr 0.1"
)
SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=wirespeed-{name}
#SBATCH --nodes=4
#SBATCH --ntasks=32
#SBATCH --ntasks-per-node=8
#SBATCH --partition=gpu
#SBATCH --time=2:00:00
#SBATCH --gres=gpu:8
#SBATCH --exclusive
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --chdir=/
echo "wirespeed: job $SLURM_JOB_ID began on $SLURMD_NODENAME"
srun \\
  --job-name=wirespeed-{name} \\
  --nodes=4 \\
  --ntasks=32 \\
  --ntasks-per-node=8 \\
  --distribution=block \\
  --time=2:00:00 \\
  --gres=gpu:8 \\
  --export=ALL \\
  --input=none \\
  --kill-on-bad-exit=0 \\
  --wait=0 \\
  --chdir=/ \\
  /opt/venv/bin/python -P -m wirespeed.launchers.rank_wrapper -- python3 train.py --lr 0.1
code=$?
echo "wirespeed: job $SLURM_JOB_ID ended with $code"
exit "$code"
"""


def named(words: list[str]) -> str:
    return next(w for w in words if w.startswith("--job-name=wirespeed-")).rpartition("-")[2]


def test_srun_golden() -> None:
    words = srun_words(JOB, inside=False)
    assert shlex.join(words) == SRUN.format(name=named(words))


def test_script_golden() -> None:
    assert batch_script(JOB) == SCRIPT.format(name=named(srun_words(JOB, inside=False)))


def test_an_allocation_is_not_asked_for_twice() -> None:
    inside = srun_words(replace(JOB, options={**JOB.options, "jobid": "811"}), inside=True)
    assert "--jobid=811" in inside
    assert "--partition=gpu" not in inside
    assert "--exclusive" not in inside
    assert "--gres=gpu:8" in inside


@pytest.mark.parametrize("options", [{}, {"batch": "yes"}])
def test_no_value_on_any_command_line_or_file(options: dict[str, str]) -> None:
    (piece,) = SlurmPrepared(job=replace(JOB, options=options)).pieces(Path("/scratch"))
    text = " ".join([*piece.command, *piece.files.values()])
    assert "s3cret" not in text
    assert "HF_TOKEN" not in text
    assert piece.environment["HF_TOKEN"] == "s3cret"
    assert piece.ends_with_stdin
    assert piece.queue_s == 24 * 3600


def test_hostile_words_stay_words() -> None:
    """What the batch script's shell makes of its srun line is what the job said."""
    script = batch_script(replace(JOB, command=HOSTILE))
    shown = f"srun() {{ printf '%s\\0' \"$@\"; }}\n{script}"
    done = subprocess.run(["sh", "-c", shown], capture_output=True, timeout=20, check=False)
    words = done.stdout.decode().partition("\n")[2].split("\0")
    assert words[words.index("--") + 1 : -1] == list(HOSTILE)
    head = script[: script.index("echo")]
    assert "evil" not in head, "no directive of sbatch, which stops at the first command"
    assert srun_words(replace(JOB, command=HOSTILE), inside=False)[-len(HOSTILE) :] == list(HOSTILE)


def test_a_dry_run_is_a_script() -> None:
    pieces = SlurmPrepared(job=replace(JOB, options={"batch": "yes"})).pieces(Path("folder"))
    done = subprocess.run(["sh", "-n"], input=as_sh(pieces, "t").encode(), timeout=20, check=False)
    assert done.returncode == 0


def checked(options: dict[str, str]) -> None:
    ENGINE.check(options)
    refuse_together(options)


@pytest.mark.parametrize("name", [name for name, one in OPTIONS.items() if one.pattern])
def test_option_values(name: str) -> None:
    option = OPTIONS[name]
    needed = {"batch": "yes"} if name == "output" else {}
    checked({name: option.sample, **needed})
    for bad in ("", "a\nb", "x\0", "\x1b[1m", "--mem=1\n"):
        with pytest.raises(UsageError, match=name):
            checked({name: bad, **needed})
    if "allocation" in option.of:
        for bad in ("a b", "$(id)", "`id`", "'", '"', ";id", "-x", "#"):
            with pytest.raises(UsageError, match=name):
                checked({name: bad})


@pytest.mark.parametrize(
    "options",
    [
        {"gres": "gpu:8", "gpus-per-node": "8"},
        {"output": "/shared"},
        {"time": "1 day"},
        {"wait": "soon"},
        {"output": "relative", "batch": "yes"},
    ],
)
def test_options_that_cannot_be(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        checked(options)


def test_an_option_that_is_none() -> None:
    with pytest.raises(UsageError, match="unknown"):
        read_options(ENGINE, ["unknown=1"])


def test_output_names_are_not_patterns() -> None:
    assert "--output=/a/100%%j.out" in sbatch_words(Path("s"), Path("/a/100%j.out"))
    assert sbatch_words(Path("s")) == ["sbatch", "--test-only", "s"]


def test_variables_that_would_overrule_the_script() -> None:
    names = overruling(batch_script(replace(JOB, options={"time": "1", "mem": "0", "qos": "a"})))
    assert {"SBATCH_TIMELIMIT", "SBATCH_MEM_PER_NODE", "SBATCH_QOS", "SBATCH_EXPORT"} <= set(names)
    assert {"SBATCH_NO_REQUEUE", "SBATCH_REQUEUE", "SBATCH_OPEN_MODE"} <= set(names)
    assert "SBATCH_PARTITION" not in names, "nobody said another"


# Sizes.


@pytest.mark.parametrize(
    ("job", "nodes", "size", "each"),
    [
        (Job(command=()), 1, 1, 1),
        (Job(command=(), nodes=3, ranks_per_node=2), 3, 6, 2),
        (Job(command=(), nodes=3, ranks=6), 3, 6, 2),
        (Job(command=(), nodes=2, options={"gres": "gpu:h100:8"}), 2, 16, 8),
        (Job(command=(), nodes=2, options={"gpus-per-node": "4"}), 2, 8, 4),
        (Job(command=(), hosts=(Host("a", 2), Host("b", 1))), 2, 3, None),
        (Job(command=(), hosts=(Host("a"), Host("b")), ranks=4), 2, 4, 2),
    ],
)
def test_sizes(job: Job, nodes: int, size: int, each: int | None) -> None:
    found, _ = sized(job)
    assert (found.nodes, found.size, found.ranks_per_node) == (nodes, size, each)


@pytest.mark.parametrize(
    "job",
    [
        Job(command=(), nodes=2, ranks=5),
        Job(command=(), nodes=2, ranks=6, ranks_per_node=2),
        Job(command=(), hosts=(Host("a"), Host("b")), ranks=3),
        Job(command=(), hosts=(Host("a", 2), Host("b", 2)), nodes=3),
        Job(command=(), hosts=(Host("a", 2), Host("b", 2)), ranks=3),
    ],
)
def test_sizes_that_do_not_come_out(job: Job) -> None:
    with pytest.raises(UsageError):
        sized(job)


def test_unlike_slots_go_by_a_file() -> None:
    job, _ = sized(
        replace(JOB, hosts=(Host("b", 2), Host("a", 1)), nodes=None, ranks=None, options={})
    )
    (piece,) = SlurmPrepared(job=job).pieces(Path("/scratch"))
    assert piece.files == {"/scratch/slurm-hosts": "b\nb\na\n"}
    assert piece.environment["SLURM_HOSTFILE"] == "/scratch/slurm-hosts"
    assert "--distribution=arbitrary" in piece.command
    assert "--nodelist=b,a" in request_words(job)
    with pytest.raises(UsageError, match="batch"):
        SlurmPrepared(job=replace(job, options={"batch": "yes"})).pieces(Path("/scratch"))


@pytest.mark.parametrize(
    ("gres", "gpus"), [("gpu:8", 8), ("gpu:a100:4", 4), ("nic:2,gpu:2", 2), ("nic:2", None)]
)
def test_gpus(gres: str, gpus: int | None) -> None:
    assert gpus_of({"gres": gres}) == gpus


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("30m", 1800), ("2d", 172800)]
)
def test_wait(text: str, value: float) -> None:
    assert seconds(text) == value


# Allocations.


def test_facts_of_an_allocation() -> None:
    environ = {"SLURM_JOB_ID": "811", "SLURM_NNODES": "4", "SLURM_GPUS_PER_NODE": "h100:8"}
    found = allocation_of({**environ, "SLURM_CPUS_PER_TASK": "12", "SLURM_PTY_PORT": "1"}, {})
    assert found is not None
    assert (found.job, found.nodes, found.ranks_per_node) == ("811", 4, 8)
    options = {name: value for name, (value, _) in found.options({}).items()}
    assert options == {"jobid": "811", "cpus-per-task": "12", "overlap": "yes"}
    assert found.options({"cpus-per-task": "1", "jobid": "811", "overlap": "yes"}) == {}
    assert allocation_of({}, {}) is None
    assert found.sized(Job(command=(), ranks=4)).ranks_per_node is None


# A fake Slurm: what prepare says when the real one is odd.


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`programs(srun="exit 1")`: shell scripts that stand for Slurm's commands."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)

    def make(**bodies: str) -> None:
        for name, body in bodies.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{plain}")

    plain = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    return make


def test_no_slurm_here(programs: Any) -> None:
    with pytest.raises(CannotMeasure, match=r"srun.* not found") as told:
        ENGINE.prepare(JOB)
    assert "slurm-client" in told.value.next


HELP = "echo --partition --gres --time --exclusive --job-name"


def test_prepared(programs: Any) -> None:
    words = f'case "$*" in *help*) {HELP};; *test-only*) exit 0;; esac'
    programs(srun=words, squeue="", scancel="", sinfo="")
    seen = ENGINE.prepare(replace(JOB, ranks=None, nodes=2, ranks_per_node=None, python=""))
    assert (seen.job.size, seen.job.ranks_per_node) == (16, 8)
    assert {choice.name for choice in seen.choices} == {"ranks per node", "python"}
    assert not seen.findings


def test_prepared_in_an_allocation(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(srun="echo --jobid --container-workdir", squeue="", scancel="", sinfo="")
    programs(sbatch="", scontrol="")
    monkeypatch.setenv("SLURM_JOB_ID", "811")
    monkeypatch.setenv("SLURM_NNODES", "2")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    job = Job(command=("true",), options={"container-workdir": "/work"})
    seen = ENGINE.prepare(job)
    assert (seen.job.nodes, seen.job.size) == (2, 8)
    assert [choice.name for choice in seen.choices] == ["jobid", "ranks per node", "python"]
    assert seen.job.environment["WIRESPEED_DIRECTORY"] == "/work"
    (piece,) = seen.pieces(Path("/scratch"))
    assert piece.queue_s == 0.0
    for wrong in ({"batch": "yes"}, {"partition": "gpu"}):
        with pytest.raises(UsageError, match="inside allocation 811"):
            ENGINE.prepare(replace(job, options=wrong))


def test_refusals_carry_slurms_words(programs: Any) -> None:
    said = "echo srun: error: Unable to allocate resources: No partition >&2; exit 1"
    words = f'case "$*" in *help*) {HELP};; *) {said};; esac'
    programs(srun=words, squeue="", scancel="", sinfo="")
    with pytest.raises(UsageError, match="refuses the request: Unable to allocate"):
        ENGINE.prepare(JOB)
    with pytest.raises(UsageError, match="has no --container-image"):
        ENGINE.prepare(replace(JOB, options={"container-image": "/a.sqsh"}))
    with pytest.raises(UsageError, match="no node of Slurm"):
        ENGINE.prepare(replace(JOB, hosts=(Host("node-[0-3]"),), nodes=None, ranks=None))
    with pytest.raises(UsageError, match="is no program"):
        ENGINE.prepare(replace(JOB, python="-c"))


def test_hosts_that_cannot_be_used(programs: Any) -> None:
    lines = "echo 'a|idle|none'; echo 'b|drained|bad GPU'; echo 'c|down*|Not responding'"
    programs(srun=HELP, squeue="", scancel="", sinfo=lines)
    hosts = tuple(Host(name, 2) for name in "abcd")
    job = replace(JOB, hosts=hosts, nodes=4, ranks=8, ranks_per_node=None)
    seen = ENGINE.prepare(job)
    assert [host.name for host in seen.job.hosts] == ["a"]
    assert (seen.job.nodes, seen.job.size) == (1, 2)
    assert [one.id for one in seen.findings] == ["SLURM-102", "SLURM-102", "SLURM-101"]
    assert "bad GPU" in seen.findings[0].saw
    with pytest.raises(CannotMeasure, match="none of the hosts"):
        ENGINE.prepare(replace(job, hosts=hosts[1:], nodes=3, ranks=6))


# The output of a batch job.


def test_tail(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = Tail(path, "81")
    assert tail.read() == b""
    path.write_bytes(
        b"one\n  wirespeed: job 81 ended with 3\nwirespeed: job 811 ended with 4\nwire"
    )
    assert tail.read().startswith(b"one\n")
    assert tail.code is None, "another line, another job"
    with path.open("ab") as file:
        file.write(b"speed: job 81 ended with 5\n")
    assert tail.read() == b"speed: job 81 ended with 5\n"
    assert tail.code == 5


def test_a_job_is_written_down_where_there_is_no_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a laptop, to be submitted elsewhere: then the script needs nothing of ours around it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    options = {**JOB.options, "batch": "yes"}
    with pytest.raises(CannotMeasure, match="sbatch"):
        ENGINE.prepare(replace(JOB, options=options))
    job = replace(JOB, options=options, written=True, environment={"NCCL_ALGO": "Ring'$(id)"})
    (piece,) = ENGINE.prepare(job).pieces(Path("scratch"))
    lines = piece.script.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert "#SBATCH --partition=gpu" in lines
    assert "#SBATCH --output=/home/me/run/slurm-%j.out" in lines
    assert lines.index("""export NCCL_ALGO='Ring'"'"'$(id)'""") > lines.index("#SBATCH --chdir=/")
    assert "slurm.batch" not in piece.script
    assert "NCCL_ALGO" not in "".join(piece.files.values())


def test_what_asks_slurm_ends_with_who_asked(tmp_path: Path) -> None:
    """A controller that hangs holds sinfo for minutes; a gate may be ended meanwhile."""
    asks = f"""
from wirespeed.launchers.slurm import ask
ask("sh", "-c", "echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 60")
"""
    asker = subprocess.Popen([sys.executable, "-c", asks])
    end = time.monotonic() + 30
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    asker.terminate()
    asker.wait()
    asked = Path("/proc") / (tmp_path / "pid").read_text().strip()
    while asked.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
