"""`wirespeed gate`: may this node take work? Asked by its scheduler, answered in bounded time."""

import os
import socket
import sys
import time
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.cluster import file_argument, opened
from wirespeed.cli.options import (
    CONTEXT,
    FiniteRange,
    all_of,
    color_option,
    command,
    flag,
    option,
    parse_duration,
    percent,
)
from wirespeed.errors import UsageError, harmless
from wirespeed.process import started

if TYPE_CHECKING:
    from wirespeed.fleet.gate.decision import Rules
    from wirespeed.fleet.gate.guarded import Answer

_PURPOSES = ("slurm-prolog", "slurm-epilog", "slurm-health", "k8s")
_WITHIN_S = {"slurm-health": 30.0}
_WITHIN_ELSE_S = 5.0
_NAMED_BY = {"slurm": "SLURMD_NODENAME", "k8s": "NODE_NAME"}


def _share(value: object) -> float:
    if (share := percent(value)) > 1:
        raise click.BadParameter(f"{value!r} is more than all nodes; a share of them, such as 5%.")
    return share


_rule_options = all_of(
    option(
        "--unknown",
        "What follows where the node could not be judged: it may work, or not.",
        ["pass", "fail"],
        default="pass",
        show_default=True,
    ),
    option(
        "--never-take-more-than PERCENT",
        "Of the fleet's nodes that may be out by gates; one always may.",
        _share,
        default="5%",
        show_default=True,
    ),
    option("--allow ID,…", "Findings that do not count, whatever they say."),
    flag("--dry-run", "Say what would be done; nothing is taken, and the exit code is 0."),
)


@command(context_settings=CONTEXT)
@option("--for purpose", "Who asks.", _PURPOSES, required=True)
@_rule_options
@option(
    "--within",
    "Seconds to answer in, whatever hangs. [default: 5; slurm-health 30]",
    FiniteRange(0.5, 600),
    show_default=False,
)
@option("--every TIME", "k8s: tell the node's condition each such time (1m), until ended.")
@flag("--taint", "k8s with --every: also keep new pods off a bad node.")
@option(
    "--node NAME", "As the scheduler calls this node. [default: it says so, else the host's name]"
)
@option("-o --output", "How to print.", ("table", "json"), default="table")
@flag("-q --quiet", "Nothing about a good node.")
@color_option
def gate(purpose: str, every: str | None, within: float | None, **values: Any) -> int:
    """May this node take work? Its health, what its links did since the last look, its last check.

    No torch and no traffic: under a second on a good node. A node that is bad is refused by the
    exit code (slurm-prolog, slurm-epilog, k8s as an init container), drained with a reason and
    given back when it has been good for long enough (slurm-health), or told of by a condition of
    the node (k8s with --every). What could not be looked at is neither: --unknown says what
    follows, and it is always told.

    \f
    Examples:
      wirespeed gate --for slurm-prolog             in Slurm's Prolog; exit code 1: not this node
      wirespeed gate --for slurm-health             as HealthCheckProgram: drains and gives back
      wirespeed gate --for slurm-health --dry-run   what would be done to this node, first
      wirespeed gate --for slurm-prolog --unknown fail --never-take-more-than 2%
      wirespeed gate --for k8s                      as an init container: the pod starts, or does not
      wirespeed gate --for k8s --every 1m --taint   in a DaemonSet (wirespeed cluster gate)
      wirespeed runs list --command gate            all that gates have done

    Exit codes: where the exit code acts, 1 refuses the node and 0 does not; a scheduler's script takes
    nothing else for a refusal (docs/gate.md). slurm-health: 0 good, 1 bad, 3 not known or not to be
    changed. 2 wrong usage.
    """
    rules, node = _rules(purpose, every, values), _node(purpose, values["node"])
    within_s = within or _WITHIN_S.get(purpose, _WITHIN_ELSE_S)
    if every is None:
        return _once(node, rules, within_s - _since_start(within_s / 2), values)
    return _again_and_again(node, rules, within_s, parse_duration(every, "--every"), values)


def _again_and_again(
    node: str, rules: "Rules", within_s: float, pause_s: float, values: dict[str, Any]
) -> int:
    """Until a signal ends it, which the kernel keeps from the first process of a container."""
    from wirespeed.process.guard import StopRequest

    stop = StopRequest()
    while not stop.reason:
        began = time.monotonic()
        _once(node, rules, within_s, values)
        while not stop.reason and (left := began + pause_s - time.monotonic()) > 0:
            stop.wait(min(left, 1.0))
    return 0


def _since_start(most: float) -> float:
    """Seconds since this process began, which whoever asks has waited, too."""
    ticks = started(os.getpid()) or 0
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return min(max(now - ticks / os.sysconf("SC_CLK_TCK"), 0.0), most)


def _rules(purpose: str, every: str | None, values: dict[str, Any]) -> "Rules":
    from wirespeed.cli.run_options import allowed
    from wirespeed.fleet.gate.decision import Rules

    if (every is not None and purpose != "k8s") or (values["taint"] and every is None):
        raise UsageError(
            "--every and --taint are of a node's condition on Kubernetes",
            expected="--for k8s --every 1m, as `wirespeed cluster gate` deploys it",
            next=f"wirespeed gate --for {purpose}",
        )
    kind: Any = purpose if every is None else "k8s-node"
    return Rules(
        purpose=kind,
        unknown=values["unknown"],
        most_taken=values["never_take_more_than"],
        allow=allowed(values["allow"]),
        dry_run=values["dry_run"],
        taint=values["taint"],
    )


def _node(purpose: str, told: str | None) -> str:
    """UsageError for a name that a scheduler would take for several nodes, or for options."""
    from wirespeed.fleet.gate.slurm import checked_name

    scheduler = purpose.partition("-")[0]
    host = socket.gethostname()
    here = host.partition(".")[0] if scheduler == "slurm" else host
    return checked_name(told or os.environ.get(_NAMED_BY[scheduler]) or here)


def _once(node: str, rules: "Rules", within_s: float, values: dict[str, Any]) -> int:
    from wirespeed.fleet.gate.decision import exit_code
    from wirespeed.fleet.gate.guarded import answered

    began = time.monotonic()
    answer = answered(node, rules, within_s)
    seconds = time.monotonic() - began
    code = exit_code(
        rules, refuses=answer.refuses, health=answer.health, problems=bool(answer.problems)
    )
    if values["output"] == "json":
        import msgspec

        text = msgspec.json.encode(answer).decode()
        click.echo(text)
    elif not (values["quiet"] and _is_well(answer)):
        for line in _lines(answer, rules, seconds):
            click.echo(harmless(line), err=not _is_well(answer))
    sys.stdout.flush()
    return code


def _is_well(answer: "Answer") -> bool:
    return answer.act == "pass" and answer.health == "good" and not answer.problems


_DONE = {
    "pass": "may work",
    "take": "is taken out of service",
    "keep": "stays out of service",
    "return": "is in service again",
    "hold": "stays in service, though it should not",
}


def _lines(answer: "Answer", rules: "Rules", seconds: float) -> list[str]:
    would = " (dry run: nothing was done)" if rules.dry_run else ""
    unknown = "" if answer.health != "unknown" else f", by --unknown {rules.unknown}: not known"
    lines = [f"{answer.node} {_DONE[answer.act]}{unknown}{would}   {seconds:.2f} s"]
    lines += [f"  because   {answer.why}"] if answer.why else []
    lines += [f"  {one.status:<9} {one.id} {one.title}" for one in answer.findings]
    lines += [f"  could not {line}" for one in answer.problems for line in one.splitlines()]
    lines += [f"  next      wirespeed runs show {answer.run}"] if answer.run else []
    return lines


# On every node of a Kubernetes cluster.


@command()
@file_argument
@_rule_options
@option("--every TIME", "Between two looks at a node.", default="1m", show_default=True)
@flag("--taint", "Also keep new pods off bad nodes; asks for the right to change nodes.")
@option(
    "-o --output", "yaml: the manifests, and nothing is made.", ["table", "yaml"], default="table"
)
def cluster_gate(cluster: str, every: str, output: str, **values: Any) -> int:
    """A pod on each node that tells the node's health as its condition WirespeedHealthy, and an Event.

    Its account may read nodes, change their status and make Events; with --taint also change nodes. It
    runs as nobody in particular, without capabilities, host network or a root that it can write to.

    \f
    Examples:
      wirespeed cluster gate mine -o yaml           what would be made, with all rights
      wirespeed cluster gate mine --dry-run         the pods look and say, and change no node
      wirespeed cluster gate mine
      wirespeed cluster gate mine --taint --never-take-more-than 2%
      kubectl get nodes -o custom-columns='NODE:.metadata.name,HEALTHY:.status.conditions[?(@.type=="WirespeedHealthy")].status'
      wirespeed cluster gate mine -o yaml | kubectl delete -f -   away with it
    """  # noqa: E501
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.kube import wrong_server
    from wirespeed.clusters.manifests.gate import gate_objects
    from wirespeed.clusters.manifests.render import as_yaml
    from wirespeed.clusters.operations.apply import apply
    from wirespeed.clusters.reading import read_named

    _rules("k8s", every, values)  # what is wrong is told here, and not by each pod
    parse_duration(every, "--every")
    file, kubectl = opened(cluster) if output == "table" else (read_named(cluster), None)
    objects = gate_objects(settle(file), _words(every, values), taint=values["taint"])
    if kubectl is None:
        click.echo(as_yaml(objects), nl=False)
        return 0
    if wrong := wrong_server(kubectl, file.cluster.api):
        raise UsageError(wrong.title, expected=wrong.expected, next=wrong.next)
    for place, of_place in groupby(objects, lambda one: one["metadata"].get("namespace", "")):
        apply(replace(kubectl, namespace=place or kubectl.namespace), list(of_place))
    name = objects[-1]["metadata"]["name"]
    click.echo(
        f"DaemonSet {name} in namespace {kubectl.namespace}: each node is looked at every {every}"
    )
    click.echo(f"next: {kubectl.by_hand('rollout', 'status', f'daemonset/{name}')}")
    return 0


def _words(every: str, values: dict[str, Any]) -> list[str]:
    """Of `wirespeed gate` in each pod."""
    words = ["--for", "k8s", "--every", every, "--unknown", values["unknown"]]
    words += ["--never-take-more-than", f"{100 * values['never_take_more_than']:g}%"]
    words += ["--allow", values["allow"]] if values["allow"] else []
    return words + [f"--{name.replace('_', '-')}" for name in ("dry_run", "taint") if values[name]]
