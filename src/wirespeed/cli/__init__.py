"""The command line. Verbs are imported when they are called, so help is quick."""

import errno
import os
import signal
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from wirespeed import __version__
from wirespeed.errors import (
    COMMAND_LINE,
    CannotMeasure,
    Interrupted,
    WirespeedError,
    WorldError,
    harmless_lines,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from wirespeed.typed_command import CommandLine


_VERBS = {
    "check": "Is this cluster ready? Data, speed and nodes; a verdict.",
    "bench": "How fast is each collective?",
    "locate": "Which node, link or rail is slow? Pairs in rounds, and the culprit.",
    "train": "Which strategy is fastest, what does communication cost, how does it scale?",
    "launch": "Run any command as ranks: ssh, mpirun, srun, deepspeed, Ray, Metaflow.",
    "cluster": "Training environments on Kubernetes and OpenShift: deploy, status, sync, clean.",
    "predict": "Collectives and steps on more nodes, from measured runs, with intervals.",
    "watch": "Which rank holds your own job up, since when, and why? From its traces.",
    "attach": "Is a running job alive, slow or hung, and which rank is it? From outside, read-only.",
    "diagnose": "Why did this job fail, hang or crawl? Reads logs.",
    "gate": "May this node take work? For Slurm's prolog, epilog and health program, and Kubernetes.",
    "topo": "Nodes, GPUs, NICs, RDMA devices, links and zones, as found.",
    "compare": "Better, worse or noise? Runs against runs, or against a baseline.",
    "baseline": "Runs that are good, kept by a name: set, show, list, rm.",
    "trend": "One figure over many runs, and when its level changed.",
    "report": "Stored runs as one offline page; also Markdown, JUnit, Prometheus text, CSV.",
    "serve": "The fleet as pages for a browser: nodes, runs, trends, jobs that run.",
    "reference": "Is this number normal? Expected figures, with their sources; your own.",
    "runs": "The stored runs: list, show, import, remove.",
    "nodes": "Each node's past, and which nodes fail jobs more often than chance explains.",
    "fleet": "Regular checks: which idle nodes to check together, and when; as jobs of low priority.",
    "config": "Whether a wirespeed.yaml found here may choose what is run: trust, untrust.",
    "completion": "The script for bash, zsh or fish that completes all of this.",
}

_EPILOG = """\b
Examples:
  wirespeed check                       this machine: all GPUs, else 4 gloo ranks
  wirespeed check -l quick --ranks 2    in a few seconds
  wirespeed bench all_reduce -b 1K -e 16M -f 4
  torchrun --nnodes 2 --nproc-per-node 8 ... -m wirespeed check
  torchrun --nnodes 4 --nproc-per-node 1 ... -m wirespeed locate
  wirespeed runs show last -o md

\b
Exit codes: 0 good, 1 a finding or a regression, 2 wrong usage, 3 could not measure,
4 a bug of ours, 5 nothing ran, 130 interrupted.
"""


_EXHAUSTED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""No room: nobody's bug, wherever it shows (the output itself, a temporary file)."""


_RANK_0_SPEAKS_S = 3.0
_STORE = "WIRESPEED_STORE"
_HASTY = {"gate", "completion", "--help", "-h", "--version", "send"}
"""Words of commands that send nothing at their end: others wait for these, or they do it themselves."""


class LazyGroup(click.Group):
    """Knows the verbs' one-line help by heart and imports a verb only to run it."""

    verbs: Mapping[str, str] = _VERBS
    homes: Mapping[str, str] = {"baseline": "compare.baseline", "trend": "compare.trend"}
    """MODULE.NAME in this package, of the verbs that do not live in a module of their name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        module, _, name = self.homes.get(cmd_name, f"{cmd_name}.{cmd_name}").rpartition(".")
        command: click.Command = getattr(import_module(f"wirespeed.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.verbs.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        from wirespeed.cli.completion import offered

        return offered(self.verbs.items(), incomplete) or click.Command.shell_complete(
            self, ctx, incomplete
        )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(__version__, message="wirespeed %(version)s")
@click.option("--local_rank", "--local-rank", hidden=True, expose_value=False, type=int)
@click.option(
    "--config",
    type=click.Path(),
    envvar="WIRESPEED_CONFIG",
    metavar="FILE",
    help="Options from this file, in place of the wirespeed.yaml of the working directory.",
)
@click.pass_context
def _cli(ctx: click.Context, config: str | None) -> None:
    """Is my training cluster ready, how close to wire speed is it, and which machine is to blame?"""
    # deepspeed's launcher hands every rank --local_rank=N; the variable LOCAL_RANK says it too.
    from wirespeed.cli.config import read_config

    verb = str(ctx.invoked_subcommand)
    if verb == "config":
        return
    found = read_config(_VERBS, config)
    found.refuse_wrong(ctx, verb)
    found.refuse_untrusted(ctx, verb)
    ctx.default_map = dict(found.options)
    if store := os.environ.get(_STORE) or found.store:
        from wirespeed.runs.unsent import checked_address

        os.environ[_STORE] = checked_address(store)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and give its exit code; nothing is raised."""
    code = _ended(arguments)
    if os.environ.get(_STORE) and code != Interrupted.exit_code and not _HASTY & {*arguments}:
        from wirespeed.fleet.common_store.sending import send_at_end

        send_at_end()
    return code


def _ended(arguments: Sequence[str]) -> int:
    if "_WIRESPEED_COMPLETE" in os.environ:
        from wirespeed.cli.completion import answer

        return answer(_cli, os.environ)
    _without_relative_places(os.environ)
    COMMAND_LINE[:] = [partial(_command_line, arguments)]
    try:
        returned: Any = _cli.main(list(arguments), prog_name="wirespeed", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return _complain("interrupted", 130)
    except click.ClickException as error:
        return _refuse(error)
    except WorldError as error:
        return _complain(str(error), error.exit_code, always=True)
    except WirespeedError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        forget_stdout()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _EXHAUSTED:
            return _own_bug(error)
        forget_stdout()
        place = error.filename or "the output"
        return _complain(f"cannot write {place}: {error.strerror}", CannotMeasure.exit_code)
    except Exception as error:
        return _own_bug(error)
    return returned if isinstance(returned, int) else 0


def _command_line(arguments: Sequence[str]) -> "CommandLine":
    """Return the command line as it may be shown, with the options of its verb."""
    from wirespeed.node.redact import TAKEN_OUT, redact_words
    from wirespeed.typed_command import CommandLine, Option

    words = ["wirespeed", *arguments]
    shown = redact_words(words)
    command: click.Command | None = _cli
    context = click.Context(_cli, info_name="wirespeed")
    options: dict[str, Option] = {}
    for word in words[1:]:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(context, word) or command
    for parameter in command.params if command is not None else ():
        names = frozenset({*parameter.opts, *parameter.secondary_opts})
        takes_value = not (isinstance(parameter, click.Option) and parameter.is_flag)
        option = Option(names, takes_value, getattr(parameter, "multiple", False))
        options |= dict.fromkeys(names, option)
    return CommandLine(shown, "" if shown == words else TAKEN_OUT, options)


def _without_relative_places(environ: MutableMapping[str, str]) -> None:
    """No program that we start is found in the working directory (`.` or nothing in PATH)."""
    places = environ.get("PATH", os.defpath).split(os.pathsep)
    if not all(map(os.path.isabs, places)):
        environ["PATH"] = os.pathsep.join(filter(os.path.isabs, places))


def _refuse(error: click.ClickException) -> int:
    """What click cannot make out, told as our own errors are."""
    from wirespeed.cli.completion import in_our_form

    if isinstance(error, click.UsageError) and (told := in_our_form(error)):
        return _complain(str(told), told.exit_code)
    if _speaks():
        error.show()
    return error.exit_code


def _complain(message: str, code: int, *, always: bool = False) -> int:
    """always: rank 0 cannot speak for this rank, since the two do not share a world."""
    if always or _speaks():
        click.echo(f"wirespeed: {harmless_lines(message)}", err=True)
    return code


def _speaks() -> bool:
    """Whether this process is the one of its world that prints: global rank 0, or no rank at all."""
    from wirespeed.node.identity import detect

    try:
        identity = detect(os.environ)
    except WirespeedError:
        return True
    if identity is None or identity.rank == 0:
        return True
    # A launcher ends all ranks at the first that fails: that must not be before rank 0 has spoken.
    time.sleep(_RANK_0_SPEAKS_S)
    return False


def _own_bug(error: Exception) -> int:
    """Exit code 4, with the traceback, since only we can do something about it."""
    import traceback

    told = harmless_lines("".join(traceback.format_exception(error)))
    click.echo(told, err=True, nl=False)
    return _complain("this is a bug of wirespeed; please report the lines above", 4)


def forget_stdout() -> None:
    """The reader left (`| head`), or no more fits: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
