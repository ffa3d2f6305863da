"""`wirespeed cluster run` and `nccl-tests`: work on the pods."""

from typing import Any

import click

from wirespeed.cli.cluster import deployment_options, file_argument
from wirespeed.cli.launch import launch_options, run_launch
from wirespeed.cli.options import argument, command, flag, option
from wirespeed.cli.run_options import Placement, pod_options

# `wirespeed cluster run`


@command()
@file_argument
@pod_options
@launch_options
def run(**values: Any) -> int:
    """Run a command as ranks on the pods: as `wirespeed launch --on k8s --cluster NAME`.

    Ranks start in /workspace, where `wirespeed cluster sync` brings this folder. Each finds RANK,
    WORLD_SIZE, LOCAL_RANK, NODE_RANK, GROUP_RANK, MASTER_ADDR and MASTER_PORT, as under torchrun.

    \f
    Examples:
      wirespeed cluster run mine -- python train.py --lr 0.1
      wirespeed cluster run mine --nodes 2 --ranks-per-node 4 -x NCCL_DEBUG=INFO -- python train.py
      wirespeed cluster run mine --dry-run -- python train.py

    Where the environment is not deployed, pods are made for this command alone, and go with it.
    """
    name = values["cluster"]
    where = Placement.take(values | {"on": None, "hostfile": None}, default="k8s")
    return run_launch(where, values, f"wirespeed cluster run {name} -- hostname")


# `wirespeed cluster nccl-tests`


@command("nccl-tests")
@file_argument
@deployment_options
@option("--op OP", "What to test.", default="all_reduce", show_default=True)
@option("--program PATH", "The program in the image.  [default: OP_perf on its PATH]")
@option(
    "--start-within start_s S",
    "Seconds for the launcher to start.",
    click.FloatRange(1, 86_400),
    default=600.0,
    show_default=True,
)
@option(
    "--within within_s S",
    "Seconds for the whole.",
    click.FloatRange(1, 86_400),
    default=3600.0,
    show_default=True,
)
@flag("--dry-run", "Print the manifests and stop; no cluster is asked.")
@flag("-q --quiet", "No progress, and none of the launcher's lines.")
@argument("arguments [-- ARGUMENTS …]", type=click.UNPROCESSED, nargs=-1)
def nccl_tests(**values: Any) -> int:
    """Run nccl-tests on the cluster's GPUs as an MPIJob, and keep its figures as a run.

    The job is one of its own beside a deployed environment, and takes GPUs of its own: one that holds
    all of them has to be cleaned first. Nothing of it is left, also after Ctrl-C.

    \f
    Examples:
      wirespeed cluster nccl-tests mine
      wirespeed cluster nccl-tests mine --op all_gather --nodes 4 -- -b 1M -e 8G -f 2 -g 1 -w 5 -n 20
      wirespeed cluster nccl-tests mine --dry-run | kubectl create --dry-run=server -f -

    The image needs mpirun, sshd and the programs of nccl-tests (images/ builds one), the cluster the
    MPI operator. Last comes whether its best figure is normal for such nodes. Exit code: 0 it ran and
    its data was right; 1 a finding, or a low figure; 3 it could not be measured.
    """
    from wirespeed.cli.cluster.nccl_tests import run_nccl_tests

    return run_nccl_tests(values)
