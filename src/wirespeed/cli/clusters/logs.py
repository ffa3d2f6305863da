"""`wirespeed cluster logs`: output of all pods, prefixed."""

import re
import sys
from typing import TYPE_CHECKING

import click

from wirespeed.cli.clusters import CONTEXT, file_argument, opened
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.kube import Kubectl
    from wirespeed.clusters.operations.logs import LogOptions
    from wirespeed.clusters.operations.pod_lookup import Pod


_EPILOG = """\b
Examples:
  wirespeed cluster logs mine --tail 20
  wirespeed cluster logs mine --follow --since 10m
  wirespeed cluster logs mine --pod 1 --previous      what it said before it restarted

\b
The pods' main process only waits, so it says little. Ranks are started in the pods by `kubectl exec`:
their output comes to where the command runs and into the run's folder, wirespeed runs list.
"""
_SINCE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DAYS = re.compile(r"(\d+(?:\.\d+)?)d")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours and the like, which would leave half of themselves behind."""


@click.command("logs", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, also after restarts.")
@click.option("--since", default="", metavar="D", help="Only so far back: 90s, 10m, 2h, 1d.")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each."
)
@click.option("--previous", is_flag=True, help="Of the container before its last restart.")
@click.option("--pod", default="", metavar="N", help="Number or name of one pod.  [default: all]")
def command(
    cluster: str, follow: bool, since: str, tail: int | None, previous: bool, pod: str
) -> int:
    """Output of all pods, each line prefixed with its pod; lines are never mixed."""
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
