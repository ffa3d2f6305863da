"""`wirespeed cluster status`, `gpus`, `logs` and `shell`: what the pods are and say."""

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from wirespeed.cli.cluster import file_argument, opened, output_option
from wirespeed.cli.options import argument, command, flag, option
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.kube import Kubectl
    from wirespeed.clusters.operations.gpus import Gpu, PodGpus
    from wirespeed.clusters.operations.logs import LogOptions
    from wirespeed.clusters.operations.pod_lookup import Pod
    from wirespeed.views.text import Grid


# `wirespeed cluster status`


@command()
@file_argument
@output_option
@flag("-v --verbose", "All evidence.")
def status(cluster: str, output: str, verbose: bool) -> int:
    """Pods, nodes, zones, GPUs, restarts, and why a pod is not ready.

    \f
    Examples:
      wirespeed cluster status mine
      wirespeed cluster status mine -o json | jq '.pods[] | select(.ready | not) | .name'

    Exit code: 0 all pods ready; 1 not; 2 wrong file or another cluster; 3 nobody could tell.
    """
    from wirespeed.clusters.operations.status import status
    from wirespeed.session.cluster_runs import Telling, show_status

    file, kubectl = opened(cluster)
    telling = Telling(output, verbose=verbose, quiet=True)
    with telling.progress() as progress:
        found = status(kubectl, file.cluster, progress)
    click.echo(show_status(found, telling), nl=False)
    return found.exit_code


# `wirespeed cluster gpus`

_TITLES = ("pod", "node", "gpu", "name", "memory used", "total", "use", "temp", "power", "limit")
_LEFT = ("pod", "node", "name", "remark")


@command()
@file_argument
@option("-o --output", "How to print.", ["table", "json"], default="table")
def gpus(cluster: str, output: str) -> int:
    """nvidia-smi of every pod at once, as one table.

    A pod that has no nvidia-smi, or whose nvidia-smi hangs, is a row that says so.

    \f
    Examples:
      wirespeed cluster gpus mine
      wirespeed cluster gpus mine -o json | jq '.pods[].gpus[] | select(.ecc_uncorrected > 0)'

    Exit codes: 0 every pod told of all its GPUs, 1 some pod could not, 3 there are no pods.
    """
    from wirespeed.clusters.operations.gpus import ask_gpus
    from wirespeed.clusters.operations.pod_lookup import pick_pod, pods_of

    file, kubectl = opened(cluster)
    pods = pods_of(kubectl, file.cluster.name)
    pick_pod(pods, "", file.cluster.name)
    told = ask_gpus(kubectl, [pod for pod in pods if pod.ordinal >= 0] or pods)
    if output == "json":
        click.echo(json.dumps({"pods": [asdict(one) for one in told]}, indent=2))
    else:
        click.echo(_table(told))
    return 1 if any(one.problem for one in told) else 0


def _table(told: "Sequence[PodGpus]") -> str:
    from wirespeed.views.text import Column, Grid, style_for

    names = (*_TITLES, "ECC", "processes", "remark")
    grid = Grid(tuple(Column(name, left=name in _LEFT) for name in names))
    for one in told:
        for gpu in one.gpus:
            _add(grid, one, gpu)
        if one.problem or not one.gpus:
            blank = [""] * (len(names) - 3)
            grid.add(one.pod, one.node, *blank, one.problem or "no GPU", color="red")
    return "\n".join(grid.lines(style_for(sys.stdout)))


def _add(grid: "Grid", pod: "PodGpus", gpu: "Gpu") -> None:
    from wirespeed.model.units import format_size

    memory = [
        format_size(n) if n is not None else "–"
        for n in (gpu.memory_used_bytes, gpu.memory_total_bytes)
    ]
    units = {"utilization_percent": " %", "temperature_C": " °C", "power_W": " W"}
    units |= {"power_limit_W": " W", "ecc_uncorrected": "", "processes": ""}
    figures = [_figure(getattr(gpu, name), unit) for name, unit in units.items()]
    told = "; ".join(gpu.remarks)
    color, at = "red" if told or gpu.ecc_uncorrected else "", 10 if gpu.ecc_uncorrected else 12
    index = _figure(gpu.index)
    grid.add(pod.pod, pod.node, index, gpu.name, *memory, *figures, told, color=color, at=at)


def _figure(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.0f}{unit}"


# `wirespeed cluster logs`

_SINCE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DAYS = re.compile(r"(\d+(?:\.\d+)?)d")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours and the like, which would leave half of themselves behind."""


@command()
@file_argument
@flag("-f --follow", "Go on with what comes, also after restarts.")
@option("--since D", "Only so far back: 90s, 10m, 2h, 1d.", default="")
@option("--tail N", "Only the last N lines of each.", click.IntRange(min=0))
@flag("--previous", "Of the container before its last restart.")
@option("--pod N", "Number or name of one pod.  [default: all]", default="")
def logs(cluster: str, follow: bool, since: str, tail: int | None, previous: bool, pod: str) -> int:
    """Output of all pods, each line prefixed with its pod; lines are never mixed.

    \f
    Examples:
      wirespeed cluster logs mine --tail 20
      wirespeed cluster logs mine --follow --since 10m
      wirespeed cluster logs mine --pod 1 --previous      what it said before it restarted

    The pods' main process only waits, so it says little. Ranks are started in the pods by `kubectl exec`:
    their output comes to where the command runs and into the run's folder, wirespeed runs list.
    """  # noqa: E501
    from wirespeed.clusters.operations.logs import LogOptions

    if follow and previous:
        raise UsageError(
            "--follow and --previous exclude each other",
            expected="a container that is over says no more",
        )
    options = LogOptions(since=_since(since), tail=tail, previous=previous)
    file, kubectl = opened(cluster)
    return (_follow if follow else _read)(kubectl, file.cluster.name, pod, options)


def _since(text: str) -> str:
    """As kubectl takes it, which knows no days."""
    if text and not _SINCE.fullmatch(text):
        raise UsageError(f"--since {text!r} is no duration", expected="such as 90s, 10m, 2h, 1d")
    return _DAYS.sub(lambda days: f"{float(days[1]) * 24:g}h", text)


def _pods(kubectl: "Kubectl", name: str, wanted: str) -> "list[Pod]":
    from wirespeed.clusters.operations.pod_lookup import pick_pod, pods_of

    pods = pods_of(kubectl, name)
    return [pick_pod(pods, wanted, name)] if wanted or not pods else pods


def _read(kubectl: "Kubectl", name: str, wanted: str, options: "LogOptions") -> int:
    from wirespeed.clusters.operations.logs import read_logs

    show = _Shown()
    unread = read_logs(kubectl, _pods(kubectl, name, wanted), options, show)
    for one in unread:
        _tell(f"{one.pod}: {one.why}")
    if not show.lines and not unread:
        _tell("the pods said nothing; output of ranks is in their run: wirespeed runs list")
    return 3 if any(not one.harmless for one in unread) else 0


def _follow(kubectl: "Kubectl", name: str, wanted: str, options: "LogOptions") -> int:
    from wirespeed.clusters.operations.logs import Follower
    from wirespeed.clusters.operations.pod_lookup import pick_pod, pods_of

    chosen = pick_pod(pods_of(kubectl, name), wanted, name).name if wanted else ""

    def pods() -> "list[Pod]":
        return [pod for pod in pods_of(kubectl, name) if chosen in ("", pod.name)]

    if not pods():
        _pods(kubectl, name, wanted)
    Follower(kubectl, pods, options, _Shown(), _tell).run()
    _tell("no pod is left that could say more")
    return 0


class _Shown:
    """Prints lines, made harmless: what a pod says may hold anything."""

    def __init__(self) -> None:
        from wirespeed.views.text import style_for

        self.lines = 0
        self._style = style_for(sys.stdout)

    def __call__(self, pod: str, line: str) -> None:
        self.lines += 1
        text = self._style.text(_ANSI.sub("", line.replace("\t", "    ").rstrip("\r")))
        sys.stdout.write(f"{self._style.text(pod)}: {text}\n")
        sys.stdout.flush()


def _tell(text: str) -> None:
    from wirespeed.views.text import style_for

    click.echo(f"wirespeed: {style_for(sys.stderr).text(text)}", err=True)


# `wirespeed cluster shell`


@command()
@file_argument
@argument("words [-- CMD…]", type=click.UNPROCESSED, nargs=-1, completes="command_line")
@option("--pod N", "Number or name of the pod.  [default: the first]", default="")
def shell(cluster: str, words: tuple[str, ...], pod: str) -> None:
    """A shell in one pod, in /workspace; or a command there, with its exit code.

    Without a terminal stdin is passed through, to the command or to the shell.

    \f
    Examples:
      wirespeed cluster shell mine
      wirespeed cluster shell mine --pod 1 -- nvidia-smi topo -m
      wirespeed cluster shell mine -- python3 - < look.py
    """
    from wirespeed.clusters.operations.pod_lookup import pick_pod, pods_of, shell_words

    file, kubectl = opened(cluster)
    chosen = pick_pod(pods_of(kubectl, file.cluster.name), pod, file.cluster.name)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    line = shell_words(kubectl, chosen, words, terminal=terminal, folder="/workspace")
    sys.stdout.flush()
    # kubectl takes our place: the terminal, its size and Ctrl-C are its own, and so is the exit code.
    os.execv(line[0], line)
