"""Slurm: the switches above this node, where the topology plugin knows them (srun's manual).

`SLURM_TOPOLOGY_ADDR=root.cell1.leaf4.node7` with `SLURM_TOPOLOGY_ADDR_PATTERN=
switch.switch.switch.node`; without a topology the address is the node alone.
"""

import re
import socket

from wirespeed.world.placement.model import Asked, NoAnswer, Placement

__all__ = ["ask_slurm"]

_PART = re.compile(r"[\w\[\],:-]{1,255}", re.ASCII)


def ask_slurm(asked: Asked) -> Placement | None:
    """The leaf switch or block as the rack; None: not in a Slurm step. Raises NoAnswer.

    srun sets the variables on each node. A launcher that copies the environment of the first node
    to the others makes them all alike, so an address that names another node is not believed.
    """
    address = asked.environ.get("SLURM_TOPOLOGY_ADDR", "")
    if not address:
        return None
    kinds = asked.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    levels = len(kinds) - 1 if kinds[-1] == "node" else address.count(".")
    *above, node = address.split(".", levels)
    here = socket.gethostname()
    if node.partition(".")[0] != here.partition(".")[0]:
        raise NoAnswer(f"SLURM_TOPOLOGY_ADDR was not set on this node ({here}): start it with srun")
    if not above:
        raise NoAnswer("SLURM_TOPOLOGY_ADDR has no switch: no topology plugin is configured")
    if len(above) != levels or not all(_PART.fullmatch(part) for part in above):
        raise NoAnswer("SLURM_TOPOLOGY_ADDR does not fit SLURM_TOPOLOGY_ADDR_PATTERN")
    return Placement(source="slurm", rack=above[-1], reason="Slurm's topology tells no zone")
