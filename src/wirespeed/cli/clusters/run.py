"""`wirespeed cluster run`: `wirespeed launch --on k8s --cluster NAME`."""

from typing import Any

import click

from wirespeed.cli.clusters import CONTEXT, file_argument
from wirespeed.cli.launch import launch_options, run_launch
from wirespeed.cli.placement import Placement, pod_options

_EPILOG = """\b
Examples:
  wirespeed cluster run mine -- python train.py --lr 0.1
  wirespeed cluster run mine --nodes 2 --ranks-per-node 4 -x NCCL_DEBUG=INFO -- python train.py
  wirespeed cluster run mine --dry-run -- python train.py

\b
Where the environment is not deployed, pods are made for this command alone, and go with it.
"""


@click.command(context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@pod_options
@launch_options
def command(**values: Any) -> int:
    """Run a command as ranks on the pods: as `wirespeed launch --on k8s --cluster NAME`.

    Ranks start in /workspace, where `wirespeed cluster sync` brings this folder. Each finds RANK,
    WORLD_SIZE, LOCAL_RANK, NODE_RANK, GROUP_RANK, MASTER_ADDR and MASTER_PORT, as under torchrun.
    """
    name = values["cluster"]
    where = Placement.take({**values, "on": None, "hostfile": None}, default="k8s")
    for option in ("hosts", "nodes", "ranks_per_node", "python", "interface", "pass_", "with_"):
        values.pop(option, None)
    return run_launch(where, values, f"wirespeed cluster run {name} -- hostname")
