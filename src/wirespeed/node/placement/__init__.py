"""Where a node stands: region, availability zone, placement group, rack and physical host.

The environment, the metadata services of AWS, Azure and Google Cloud, Kubernetes node labels and
Slurm's topology are asked at once and within one second. Nothing here raises, and a source that
gives no clear answer becomes a reason, never a value. `gather` is imported where it is used: checks
and with them the CLI need the record only.
"""

from wirespeed.node.placement.located import Placement

__all__ = ["Placement"]
