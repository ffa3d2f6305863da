"""Command lines of mpirun: what is asked of it, for Open MPI 4 (ORTE) and 5 (PRRTE), MPICH, Intel MPI.

Facts of Open MPI: https://docs.open-mpi.org/en/v4.1.x/ (mpirun), https://docs.open-mpi.org/en/v5.0.x/
(mpirun, "The role of PMIx and PRRTE"): 5 hands `--mca` to the ranks and `--prtemca` to its daemons, and
says oversubscription as a modifier of `--map-by`. `-x NAME` takes the value from mpirun's environment.

Hydra is the launcher of MPICH (and MVAPICH) and of Intel MPI:
https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md;
Intel's "MPI Library Developer Reference for Linux" (mpiexec.hydra, Hydra environment variables).
It knows no slots to run out of: it starts as many ranks as it is told. `-genvlist` takes values
from its own environment, and keeps it from handing on all of that (which is the default).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host
from wirespeed.launchers.texts import make_error

_HOST = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_](?:[\w.-]*\w)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAPPING = re.compile(r"slot|node|ppr:[1-9]\d{0,5}:node")
_PLAIN = re.compile(r"[\w./=,@%+-][\w./=,@%+:-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is asked of an mpirun, in nobody's syntax."""

    size: int
    """World size."""
    hosts: tuple[Host, ...] = ()
    """Each with slots; empty: mpirun's own allocation, or this machine."""
    hostfile: str = ""
    """Path of the file that will hold `Flavour.hostfile`."""
    names: tuple[str, ...] = ()
    """Variables of our environment that the ranks shall have."""
    map_by: str = ""
    """`slot`, `node` or `ppr:N:node`; empty: mpirun's choice (slot)."""
    bind_to: str = "none"
    oversubscribe: bool = False
    allow_root: bool = False
    interface: str = ""
    ssh: tuple[str, ...] = ()
    """Words for every ssh that mpirun starts; none holds white space."""

    def __post_init__(self) -> None:
        check_hosts(self.hosts)
        for name in self.names:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"{name!r} is no name of a variable", expected="-x NAME")
        if self.map_by and not _MAPPING.fullmatch(self.map_by):
            raise UsageError(
                f"--with map-by={self.map_by}", expected="map-by=slot, node or ppr:N:node"
            )
        _refuse_strange("bind-to", self.bind_to)
        _refuse_strange("interface", self.interface)
        for word in self.ssh:
            if len(word.split()) != 1:
                raise make_error("mpi_ssh_words", word=word)


def check_hosts(hosts: Sequence[Host]) -> None:
    """UsageError for a name that a hostfile could take for anything else (IPv6 has colons)."""
    for host in hosts:
        if not _HOST.fullmatch(host.name):
            raise make_error("mpi_host", host=host)


def per_node(map_by: str) -> int | None:
    """N of `ppr:N:node`, 1 of `node`; None of `slot`."""
    if map_by == "node":
        return 1
    return int(map_by.split(":")[1]) if map_by.startswith("ppr:") else None


def passes(words: Sequence[str], flavour: "Flavour") -> bool:
    """Whether a program's words reach it unchanged: a bare `:` begins another program for all."""
    dashed = flavour.minds_dashes and any(word.startswith("-") for word in words)
    return ":" not in words and not dashed


def _refuse_strange(what: str, value: str) -> None:
    if value and (not _PLAIN.fullmatch(value) or value.startswith("-")):
        raise UsageError(f"{what} {value!r} is none", expected="a plain name")


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
    """It refuses to run as root unless it is told to."""
    minds_dashes: bool = False
    """It looks for options of its own even behind the program."""

    def recognises(self, version: str) -> bool:
        """Whether `mpirun --version` printed this."""
        return re.search(rf"\((?:Open MPI|OpenRTE)\) (?:{self.versions})\.\d", version) is not None

    def hostfile(self, launch: Launch) -> str:
        return "".join(f"{host.name} slots={host.slots or 1}\n" for host in launch.hosts)

    def words(self, launch: Launch) -> list[str]:
        """Everything between `mpirun` and the program."""
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
        """Settings that it takes from the environment only."""
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

Flavour = OpenMPI | Hydra
"""One make of mpirun."""
