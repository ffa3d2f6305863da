"""`wirespeed cluster shell`: a shell in one pod."""

import os
import sys

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT, file_argument, opened

_EPILOG = """\b
Examples:
  wirespeed cluster shell mine
  wirespeed cluster shell mine --pod 1 -- nvidia-smi topo -m
  wirespeed cluster shell mine -- python3 - < look.py
"""


@click.command("shell", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@click.argument(
    "words",
    metavar="[-- CMD…]",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=suggest.command_line,
)
@click.option(
    "--pod", default="", metavar="N", help="Number or name of the pod.  [default: the first]"
)
def command(cluster: str, words: tuple[str, ...], pod: str) -> None:
    """A shell in one pod, in /workspace; or a command there, with its exit code.

    Without a terminal stdin is passed through, to the command or to the shell.
    """
    from wirespeed.clusters.operations.pod_lookup import pick_pod, pods_of, shell_words

    file, kubectl = opened(cluster)
    chosen = pick_pod(pods_of(kubectl, file.cluster.name), pod, file.cluster.name)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    line = shell_words(kubectl, chosen, words, terminal=terminal, folder="/workspace")
    sys.stdout.flush()
    # kubectl takes our place: the terminal, its size and Ctrl-C are its own, and so is the exit code.
    os.execv(line[0], line)
