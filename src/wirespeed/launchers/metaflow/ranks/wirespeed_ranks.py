# mypy: ignore-errors
# Metaflow makes its decorators and `current.parallel` at run time, where no type can follow.
"""Ranks of any command on Metaflow's compute: what `wirespeed launch --on metaflow` runs.

`python wirespeed_ranks.py run --nodes 2 --ranks-per-node 8`. What shall run stands in the
environment (see `launchers.metaflow`), which local compute inherits and which `@environment` carries
to others.
"""

import json
import os
import sys

from wirespeed.launchers.metaflow import (
    CARRY,
    COMMAND,
    COMPUTE,
    OWN,
    PARENT,
    PYTHON,
    begin,
    node_ended,
    other_tasks,
)

if __name__ == "__main__":
    begin()

import metaflow
from metaflow import FlowSpec, Parameter, current, environment, step

from wirespeed.launchers.node.ranks import Place, run_ranks


def compute(function):
    """The step on the compute that was asked for; on this machine where none was."""
    names = [name for name in os.environ.get(CARRY, "").split(",") if name in os.environ]
    for name, attributes in json.loads(os.environ.get(COMPUTE, "{}")).items():
        function = getattr(metaflow, name)(**attributes)(function)
        function = environment(vars={name: os.environ[name] for name in names})(function)
    return function


class WirespeedRanks(FlowSpec):
    nodes = Parameter("nodes", type=int, default=1, help="How many nodes.")
    ranks_per_node = Parameter("ranks-per-node", type=int, default=1, help="Ranks on each.")

    @step
    def start(self):
        self.next(self.ranks, num_parallel=self.nodes)

    @compute
    @metaflow.parallel
    @step
    def ranks(self):
        """One task a node, all at once."""
        here = current.parallel
        place = Place(here.node_index, here.num_nodes, self.ranks_per_node, here.main_ip)
        command = json.loads(os.environ[COMMAND])
        environ = {k: v for k, v in os.environ.items() if not k.startswith(OWN) and k != PARENT}
        python = os.environ.get(PYTHON, "")
        self.codes = run_ranks(command, place, environ, python=python, peers=other_tasks())
        if any(self.codes.values()):
            sys.exit(max(self.codes.values()))
        node_ended(here.node_index)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.codes = {rank: code for one in inputs for rank, code in one.codes.items()}
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    WirespeedRanks()
