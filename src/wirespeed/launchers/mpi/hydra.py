"""The words of Hydra, the launcher of MPICH (and MVAPICH) and of Intel MPI.

Facts: https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md;
Intel's "MPI Library Developer Reference for Linux" (mpiexec.hydra, Hydra environment variables).
Hydra knows no slots to run out of: it starts as many ranks as it is told. `-genvlist` takes values
from its own environment, and keeps it from handing on all of that (which is the default).
"""

import re
from dataclasses import dataclass

from wirespeed.launchers.mpi.words import Launch, per_node

__all__ = ["INTEL", "MPICH", "Hydra"]


@dataclass(frozen=True, slots=True)
class Hydra:
    """One of the two families."""

    name: str
    title: str
    pattern: str
    """Of what `mpirun --version` prints."""
    hosts: str
    """Option that names the file with hosts and the number of ranks of each."""
    ssh: str
    """Variable with more words for ssh."""
    minds_dashes: bool
    minds_root: bool = False

    def recognises(self, version: str) -> bool:
        return re.search(self.pattern, version) is not None

    def hostfile(self, launch: Launch) -> str:
        if per_node(launch.map_by) is not None:  # counts would win over -ppn in Intel's
            return "".join(f"{host.name}\n" for host in launch.hosts)
        return "".join(f"{host.name}:{host.slots or 1}\n" for host in launch.hosts)

    def words(self, launch: Launch) -> list[str]:
        words = ["-n", str(launch.size)]
        each = per_node(launch.map_by)
        if launch.hosts:
            words += [self.hosts if each is None else "-f", launch.hostfile]
        if each is not None:
            words += ["-ppn", str(each)]
        if self.name == "mpich" and launch.bind_to != "none":
            words += ["-bind-to", launch.bind_to]
        if launch.interface:
            words += ["-iface", launch.interface]
        return [*words, "-genvlist", ",".join(sorted(launch.names))]

    def environment(self, launch: Launch) -> dict[str, str]:
        settings = {self.ssh: " ".join(launch.ssh)} if launch.ssh else {}
        if self.name == "intel":
            pin = {"I_MPI_PIN": "0"} if launch.bind_to == "none" else {}
            domain = {"I_MPI_PIN_DOMAIN": launch.bind_to} if launch.bind_to != "none" else {}
            return {**settings, **pin, **domain}
        return settings


MPICH = Hydra(
    name="mpich",
    title="MPICH's Hydra",
    pattern=r"HYDRA build details",
    hosts="-f",
    ssh="HYDRA_LAUNCHER_EXTRA_ARGS",
    minds_dashes=False,
)
INTEL = Hydra(
    name="intel",
    title="Intel MPI",
    pattern=r"Intel\(R\) MPI Library",
    hosts="-machinefile",
    ssh="I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
    minds_dashes=True,  # seen with 2021.18: a last word `-configfile` ends it
)
