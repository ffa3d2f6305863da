"""Metaflow's flow of ours, and the names of the variables that it is told by."""

from pathlib import Path

__all__ = ["CARRY", "COMMAND", "COMPUTE", "FLOW", "FOLDER", "OWN", "PYTHON"]

FLOW = Path(__file__).parent / "ranks" / "wirespeed_ranks.py"
"""Alone in its folder: Metaflow packs a flow's whole folder for computes elsewhere."""
OWN = "WIRESPEED_METAFLOW_"
"""What these names begin with: no rank gets them."""
COMMAND = f"{OWN}COMMAND"
"""The words of one rank, as a JSON list."""
PYTHON = f"{OWN}PYTHON"
"""Interpreter of the ranks; not set: the one that runs the task."""
COMPUTE = f"{OWN}COMPUTE"
"""A decorator for the ranks' step alone, as JSON: `{"kubernetes": {"image": …}}`."""
CARRY = f"{OWN}CARRY"
"""Names of the variables that the nodes need, with commas between."""
FOLDER = f"{OWN}FOLDER"
"""Where the flow runs: Metaflow reads settings from `.metaflow` in the working directory and above,
and those of a user's project are not meant for us."""
