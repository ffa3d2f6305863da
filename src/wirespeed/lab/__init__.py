"""A small cluster on one machine whose network can be broken on purpose.

Network namespaces are the nodes, a bridge is the switch. `python -m wirespeed.lab --help`.
"""

from wirespeed.lab.lab import Lab
from wirespeed.lab.run import NodeResult, Running
from wirespeed.lab.spec import LabSpec

__all__ = ["Lab", "LabSpec", "NodeResult", "Running"]
