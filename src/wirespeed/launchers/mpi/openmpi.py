"""The words of Open MPI: 4 (ORTE) and 5 (PRRTE).

Facts: https://docs.open-mpi.org/en/v4.1.x/ (mpirun), https://docs.open-mpi.org/en/v5.0.x/ (mpirun,
"The role of PMIx and PRRTE"): 5 hands `--mca` to the ranks and `--prtemca` to its daemons, and says
oversubscription as a modifier of `--map-by`. `-x NAME` takes the value from mpirun's environment.
"""

import re
from dataclasses import dataclass

from wirespeed.launchers.mpi.words import Launch

__all__ = ["FIVE", "FOUR", "OpenMPI"]


@dataclass(frozen=True, slots=True)
class OpenMPI:
    """One generation of Open MPI."""

    name: str
    title: str
    versions: str
    """Regular expression for the major version."""
    daemon: str
    """Option that sets a parameter of the daemons."""
    interface: str
    """The daemons' parameter that names the network interface."""
    ssh: str
    """The daemons' parameter with more words for ssh."""
    modifier: bool
    """Whether `--map-by` says oversubscription."""
    minds_root: bool = True
    minds_dashes: bool = False

    def recognises(self, version: str) -> bool:
        return re.search(rf"\((?:Open MPI|OpenRTE)\) (?:{self.versions})\.\d", version) is not None

    def hostfile(self, launch: Launch) -> str:
        return "".join(f"{host.name} slots={host.slots or 1}\n" for host in launch.hosts)

    def words(self, launch: Launch) -> list[str]:
        words = ["-n", str(launch.size)]
        if launch.allow_root:
            words.append("--allow-run-as-root")
        if launch.hosts:
            words += ["--hostfile", launch.hostfile]
        words += [*self._mapping(launch), "--bind-to", launch.bind_to]
        if launch.interface:
            words += ["--mca", "btl_tcp_if_include", launch.interface]
            words += [self.daemon, self.interface, launch.interface]
        if launch.ssh:
            words += [self.daemon, self.ssh, " ".join(launch.ssh)]
        return words + [word for name in sorted(launch.names) for word in ("-x", name)]

    def environment(self, launch: Launch) -> dict[str, str]:
        return {}

    def _mapping(self, launch: Launch) -> list[str]:
        if not launch.oversubscribe:
            return ["--map-by", launch.map_by] if launch.map_by else []
        if self.modifier:
            return ["--map-by", f"{launch.map_by}:OVERSUBSCRIBE"]
        return [*(["--map-by", launch.map_by] if launch.map_by else []), "--oversubscribe"]


FOUR = OpenMPI(
    name="openmpi4",
    title="Open MPI 4",
    versions="[1-4]",
    daemon="--mca",
    interface="oob_tcp_if_include",
    ssh="plm_rsh_args",
    modifier=False,
)
FIVE = OpenMPI(
    name="openmpi5",
    title="Open MPI 5",
    versions=r"[5-9]|\d\d",
    daemon="--prtemca",
    interface="prte_if_include",
    ssh="plm_ssh_args",
    modifier=True,
)
