"""The contract of an engine: how ranks of any command are started through somebody else's launcher.

An engine (ssh, mpirun, srun, …) is driven, never replaced: it turns a `Job` into `Piece`s, processes
to start on *this* machine, which start the ranks wherever they belong. Every rank runs inside
`rank_wrapper`, so that output, exit codes and the end of every rank look the same under each engine:
the pieces' stdout carries frames (`frames`), and `supervise` reads them. An engine knows nothing of
what the command does.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from wirespeed.records import Choice, Finding

__all__ = ["Engine", "EngineOption", "Held", "Holding", "Host", "Job", "Piece", "Prepared"]


@dataclass(frozen=True, slots=True)
class Host:
    """A node that ranks shall run on."""

    name: str
    """As the engine is told it: a host name, an address, or an alias of ssh's configuration."""
    slots: int | None = None
    """Ranks there; None: `Job.ranks_per_node`, else what the engine finds, else 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to start, and where. Nothing in it belongs to one engine but `options`."""

    command: tuple[str, ...]
    """One rank's words, passed on as data: never through a shell."""
    hosts: tuple[Host, ...] = ()
    """Empty: the engine's own allocation or cluster, or this machine."""
    nodes: int | None = None
    """How many nodes, where no hosts are named."""
    ranks: int | None = None
    """World size, where neither hosts with slots nor nodes × ranks a node tell it."""
    ranks_per_node: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every rank. Values may be secret: never on a command line, never in a dry run."""
    directory: str = ""
    """Working directory of the ranks; where it does not exist on a node, the user's home there."""
    python: str = ""
    """Interpreter on the nodes, which has wirespeed; empty: the path of this one."""
    interface: str = ""
    """Network interface for rendezvous and traffic; empty: the engine's choice."""
    token: str = ""
    """Random, one a job: what our own sockets ask for."""
    startup_s: float = 120.0
    """Bound for connecting to a node, and for the first rank to start."""
    grace_s: float = 5.0
    """What the other ranks have left once one has failed."""
    written: bool = False
    """Only to be written down: an engine that is not on this machine is no mistake."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of this engine: `--with KEY=VALUE`, checked against `Engine.options`; a bare KEY is `yes`."""

    @property
    def size(self) -> int:
        """World size: hosts' slots, else `ranks`, else nodes × ranks a node (1 where not said)."""
        each = self.ranks_per_node or 1
        if self.ranks is not None:
            return self.ranks
        if self.hosts:
            return sum(host.slots or each for host in self.hosts)
        return (self.nodes or 1) * each


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One process that is started on this machine."""

    name: str
    """A node's name, where it starts the ranks of one node; else the engine's program."""
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own environment."""
    stdin: str = ""
    """Sent at the start; stdin stays open until the piece shall end. Empty lines may follow."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that `command` names, by path, written (mode 0600) before it is started."""
    nodes: tuple[str, ...] = ()
    """Nodes that are lost with this process, for all we know: for messages."""
    look: str = ""
    """The command by which a person sees how its node is; empty: by ssh."""
    script: str = ""
    """The same as a script for the engine's own use (sbatch), which needs nothing of ours around it."""
    ends_with_stdin: bool = False
    """It ends its ranks in order when its stdin is closed, and should not be signalled before."""
    queue_s: float = 0.0
    """How long it may wait for its nodes (a scheduler's queue), beside the bound for ranks to start;
    it bounds both itself."""
    pulse_s: float = 0.0
    """Every so many seconds an empty line goes to its stdin, so that the far side knows that we
    live, also where a cut network tells nobody; 0: none."""


@dataclass(frozen=True, slots=True)
class EngineOption:
    """One key of `--with`."""

    name: str
    help: str
    flag: bool = False
    """Takes no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a look at the far side gave."""

    job: Job
    """With slots, python and directory as found."""
    findings: tuple[Finding, ...] = ()
    """One for each node that cannot be used, which is no longer in `job.hosts`."""
    choices: tuple[Choice, ...] = ()
    """What was chosen automatically, with the reason."""


class Engine(Protocol):
    """One engine. No method starts a rank; `supervise` does, from the pieces."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str:
        """One line for the help."""
        ...

    @property
    def options(self) -> tuple[EngineOption, ...]: ...

    def prepare(self, job: Job) -> Prepared:
        """Look at this machine and the nodes, within `job.startup_s`.

        UsageError where the job cannot be meant for this engine; CannotMeasure where the engine's
        program is missing (with the command that installs it).
        """
        ...

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        """Exactly what will run, from a prepared job; nothing is touched.

        `scratch` is a folder of this job alone, for `Piece.files`; it goes when the job has ended.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Held:
    """What a job runs on, as long as it is held."""

    prepared: Prepared
    """With what was found once it was there; findings that fail: nothing can run."""
    lost: Callable[[Sequence[str]], Sequence[Finding]] = lambda nodes: ()
    """Why these nodes were lost while the job ran, as far as their manager knows."""
    after: list[Finding] = field(default_factory=list)
    """Filled when it is let go: what could not be taken away."""


@runtime_checkable
class Holding(Protocol):
    """An engine that knows more of its nodes than the pieces do, or makes them for the job alone."""

    def hold(self, job: Job, say: Callable[[str], None]) -> AbstractContextManager[Held]:
        """From before the first piece starts until the last has ended. `say`: where it is.

        What it makes for the job is gone afterwards, also after an error or an Interrupted.
        """
        ...

    def around(self, job: Job, scratch: Path) -> tuple[list[Piece], list[Piece]]:
        """What is run before the pieces and after them, one by one: for `--dry-run`."""
        ...


@runtime_checkable
class Sharing(Protocol):
    """An engine whose nodes may have a folder in common."""

    def shared(self, job: Job, say: Callable[[str], None]) -> Sequence[Finding]:
        """Whether what one node of a held job writes there all others read; none: nothing to see."""
        ...
