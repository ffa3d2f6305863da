"""The contract of an engine: how ranks of any command are started through somebody else's launcher.

An engine (ssh, mpirun, srun, …) is driven, never replaced: it makes a `Job` `Prepared`, which gives
`Piece`s, processes to start on *this* machine, which start the ranks wherever they belong. Every rank
runs inside `rank_wrapper`, so that output, exit codes and the end of every rank look the same under
each engine: the pieces' stdout carries frames (`process.frames`), and `supervise` reads them. An
engine knows nothing of what the command does.

What a job runs, as text: a shell script that does the same by hand, or YAML for other programs.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wirespeed.errors import CannotMeasure
from wirespeed.launchers.texts import EngineOption, engine_texts
from wirespeed.model.records import Choice, Finding


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job after a look at the far side; each engine has its own, with what it found there.

    `dataclasses.replace` gives it another job: the command and the environment are known later.
    """

    job: Job
    """With slots, python and directory as found."""
    findings: tuple[Finding, ...] = ()
    """One for each node that cannot be used, which is no longer in `job.hosts`."""
    choices: tuple[Choice, ...] = ()
    """What was chosen automatically, with the reason."""
    notes: tuple[str, ...] = ()
    """Of a job that is only written down: what is decided elsewhere, and what stands for it here."""

    def pieces(self, scratch: Path) -> list[Piece]:
        """Exactly what will run; nothing is touched. CannotMeasure where nothing can.

        `scratch` is a folder of this job alone, for `Piece.files`; it goes when the job has ended.
        """
        raise CannotMeasure("no node can be used", expected="one that ranks can run on")

    def check_command(self) -> None:
        """Raise CommandProblem where this machine knows that the command cannot be started.

        Where ranks run elsewhere, only their nodes know: they report it by exit code 127 or 126.
        """

    def hold(self, say: Callable[[str], None]) -> AbstractContextManager["Held"]:
        """From before the first piece starts until the last has ended. `say`: where it is.

        What it makes for the job is gone afterwards, also after an error or an Interrupted. Most
        engines hold nothing.
        """
        return nullcontext(Held(prepared=replace(self, findings=(), choices=())))

    def around(self, scratch: Path) -> tuple[list[Piece], list[Piece]]:
        """What is run before the pieces and after them, one by one: for `--dry-run`."""
        return [], []

    def shared(self, say: Callable[[str], None]) -> Sequence[Finding]:
        """Whether what one node of a held job writes there all others read; none: nothing to see."""
        return ()


@dataclass(slots=True, kw_only=True)
class Held:
    """What a job runs on, as long as it is held."""

    prepared: Prepared
    """With what was found once it was there; findings that fail: nothing can run."""
    lost: Callable[[Sequence[str]], Sequence[Finding]] = lambda nodes: ()
    """Why these nodes were lost while the job ran, as far as their manager knows."""
    after: list[Finding] = field(default_factory=list)
    """Filled when it is let go: what could not be taken away."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. It starts no rank; `supervise` does, from the pieces."""

    name: str
    look: Callable[[Job], Prepared]
    """At this machine and the nodes, for a job whose options have been checked."""

    @property
    def summary(self) -> str:
        """One line for the help."""
        return engine_texts(self.name).summary

    @property
    def options(self) -> tuple[EngineOption, ...]:
        return engine_texts(self.name).options

    def prepare(self, job: Job) -> Prepared:
        """Look at this machine and the nodes, within `job.startup_s`.

        UsageError where the job cannot be meant for this engine; CannotMeasure where the engine's
        program is missing (with the command that installs it).
        """
        self.check(job.options)
        return self.look(job)

    def check(self, options: Mapping[str, str]) -> None:
        """UsageError for a value that an option does not take."""
        for option in self.options:
            if option.name in options:
                option.check(options[option.name])


def lacking(job: Job, check: Callable[[], object]) -> tuple[str, ...]:
    """Run a check of programs and far sides; return what is missing as notes of a dry run.

    Raises what `check` raises, unless the job is only written down: that needs none of them.
    """
    try:
        check()
    except CannotMeasure as error:
        if not job.written:
            raise
        return (f"not checked here: {error.saw}",)
    return ()


SCRATCH = Path("wirespeed-launch")
"""Folder for the files of a job that is only written down, below the working directory."""


def as_sh(
    pieces: Sequence[Piece],
    title: str,
    hidden: Sequence[str] = (),
    before: Sequence[Piece] = (),
    after: Sequence[Piece] = (),
) -> str:
    """A POSIX shell script; `hidden`: names of variables that it expects to be set.

    `before` and `after`: pieces that are run one by one, these however the script ends.
    """
    unset = "to be set by you: its value is not written here"
    lines = ["#!/bin/sh", f"# {_comment(title)}", "set -eu"]
    lines += [f': "${{{name}:?{unset}}}"' for name in hidden]
    lines += _files([*before, *pieces, *after])
    if after:
        lines += ["over() {", *(line for one in after for line in _alone(one)), "}"]
        lines += ["trap over EXIT", "trap 'exit 130' INT", "trap 'exit 143' TERM"]
    lines += [line for one in before for line in _alone(one)]
    if len(pieces) == 1 and not pieces[0].stdin and not after:
        return "\n".join([*lines, f"exec {_words(pieces[0])}"]) + "\n"
    lines += ["pids="]
    for piece in pieces:
        lines += [f"# {_comment(piece.name)}", f"{_with_stdin(piece)} &", 'pids="$pids $!"']
    lines += ["code=0", 'for pid in $pids; do wait "$pid" || code=$?; done', 'exit "$code"']
    return "\n".join(lines) + "\n"


def as_yaml(
    pieces: Sequence[Piece],
    title: str,
    hidden: Sequence[str] = (),
    before: Sequence[Piece] = (),
    after: Sequence[Piece] = (),
) -> str:
    """The same as data: commands as lists of words, environment, files and stdin."""
    import yaml

    data: dict[str, Any] = {"title": title, "expects": list(hidden)}
    for name, some in (("before", before), ("processes", pieces), ("after", after)):
        if some or some is pieces:
            data[name] = [_as_data(piece) for piece in some]
    text: str = yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)
    return text


def _as_data(piece: Piece) -> dict[str, Any]:
    parts = {
        "environment": dict(sorted(piece.environment.items())),
        "files": dict(piece.files),
        "stdin": piece.stdin,
    }
    told = {name: part for name, part in parts.items() if part}
    return {"name": piece.name, "command": list(piece.command), **told}


def _alone(piece: Piece) -> list[str]:
    return [f"# {_comment(piece.name)}", f"{_words(piece)} < /dev/null"]


def _files(pieces: Sequence[Piece]) -> list[str]:
    files: dict[str, str] = {}
    for piece in pieces:
        files.update(piece.files)
    lines = ["umask 077", f"mkdir -p {SCRATCH}"] if files else []
    quote = shlex.quote
    return lines + [f"printf '%s' {quote(text)} > {quote(p)}" for p, text in files.items()]


def _words(piece: Piece) -> str:
    settings = [f"{name}={value}" for name, value in sorted(piece.environment.items())]
    return _broken(["env", *settings, *piece.command] if settings else piece.command)


def _broken(words: Sequence[str]) -> str:
    """Quoted, some words a line, so that a reader can follow."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > 92:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return " \\\n  ".join([*lines, line])


def _with_stdin(piece: Piece) -> str:
    """Its stdin stays open as long as the script and it run: its end would tell it to stop.

    Empty lines follow, so that the shell notices when nobody reads any more.
    """
    if not piece.stdin:
        return f"{_words(piece)} < /dev/null"
    hold = 'while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null'
    return f"{{ printf '%s' {shlex.quote(piece.stdin)}; {hold}; }} |\n  {_words(piece)}"


def _comment(text: str) -> str:
    return " ".join(text.split())
