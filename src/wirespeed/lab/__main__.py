"""`python -m wirespeed.lab`: errors become a message and an exit code (see errors.py)."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.lab import GRACE_S, Lab, remove
from wirespeed.lab.faults import subject
from wirespeed.lab.processes import living_in, need_root
from wirespeed.lab.run import NodeResult, Shown, exit_code
from wirespeed.lab.spec import (
    Fault,
    LabSpec,
    each_node,
    format_fault,
    format_rate,
    parse_fault,
    parse_rate,
)
from wirespeed.lab.state import Layout, State, all_states, load

_PROGRAM = "python -m wirespeed.lab"
_EPILOG = """\b
Examples:
  python -m wirespeed.lab up --nodes 4 --slow node-2=100mbit
  python -m wirespeed.lab run -- wirespeed locate
  python -m wirespeed.lab down

\b
Needs root: sudo -E. Exit codes: 2 wrong usage, 3 this machine cannot, 130 interrupted;
`run` ends with the largest code of its commands.
"""
_UP_EPILOG = """\b
Examples:
  up --nodes 4                                    a healthy cluster with 1 Gbit/s links
  up --one-way node-0=200mbit:out                 it sends slowly, and receives as it should
  up --slow-link node-0:node-2=100mbit            a pair is slow, each alone is not
  up --mtu node-1=1400                            small messages pass, large ones never arrive
  up --firewall node-2                            it can be met, but takes no other connection
  up --loopback-name node-1                       its own name means 127.0.1.1, as on Debian
  up --env node-2=GLOO_SOCKET_IFNAME=ib0          a wrong setting on one node
  up --straggler node-1=30% --cut node-3          as many faults as you like
"""
_RUN_EPILOG = """\b
Examples:
  run -- hostname
  run --nodes node-0,node-1 -- ping -c 1 node-3
  run -- wirespeed check                          one rank a node
  run -- torchrun --nnodes {nodes} --node-rank {rank} --nproc-per-node 2
      --master-addr {master} --master-port {port} -m wirespeed check
  run --no-ranks --nodes node-0 -- wirespeed check --ranks 2

\b
In the command {rank}, {nodes}, {master} and {port} are filled in; it also finds RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE (one rank a node), NODE_RANK, NNODES, MASTER_ADDR and MASTER_PORT.
OMP_NUM_THREADS is a node's share of the cores, unless it is set.
The first node's output comes as it is, the others' lines begin with [node-1].
"""
_FAULTS = {
    "slow": ("NODE=RATE", "The node's link is slow both ways."),
    "one-way": ("NODE=RATE[:out|in]", "Slow one way: what the node sends (out), or receives."),
    "slow-link": ("NODE:NODE=RATE", "These two are slow with each other only."),
    "lossy": ("NODE=PERCENT", "So many of its packets are lost, both ways."),
    "delay": ("NODE=TIME", "Each packet waits so long, each way."),
    "mtu": ("NODE=BYTES", "The switch port takes smaller packets than the hosts send."),
    "cut": ("NODE", "The cable is out."),
    "straggler": ("NODE=PERCENT|NODE=stop:TIME/TIME", "A share of one core; or stops in a period."),
    "firewall": ("NODE[=PORT,PORT]", "New connections reach the master port, or these, only."),
    "loopback-name": ("NODE", "Its own host name means 127.0.1.1 there."),
    "env": ("NODE=NAME=VALUE", "What commands find in their environment there."),
}
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_name = click.option("--name", default="lab", show_default=True, help="Which lab.")


@click.group(context_settings=_HELP, epilog=_EPILOG)
def _lab() -> None:
    """A small cluster on this machine, made of network namespaces, to break on purpose."""


def _fault_options(command: Any) -> Any:
    for kind, (metavar, told) in reversed(_FAULTS.items()):
        name = kind.replace("-", "_")
        option = click.option(f"--{kind}", name, metavar=metavar, multiple=True, help=told)
        command = option(command)
    return command


@_lab.command("up", epilog=_UP_EPILOG)
@click.option("--nodes", default=4, show_default=True, help="How many.")
@_name
@click.option("--rate", default="1gbit", show_default=True, help="Of every healthy link.")
@_fault_options
def _up(nodes: int, name: str, rate: str, **faults: tuple[str, ...]) -> None:
    """Make a lab, broken as you say. Faults may be given more than once; NODE may be `all`."""
    healthy = LabSpec(nodes, name, parse_rate(rate))
    spec = replace(healthy, faults=_given(faults, healthy.names))
    lab = Lab(spec)
    lab.up()
    click.echo(_described(spec, lab.layout))
    option = "" if name == "lab" else f" --name {name}"
    click.echo(f"next: {_PROGRAM} run{option} -- COMMAND, then {_PROGRAM} down{option}")


@_lab.command("run", epilog=_RUN_EPILOG, context_settings={"ignore_unknown_options": True})
@_name
@click.option(
    "--nodes", default="", metavar="NODE,NODE", help="Only on these; the first is rank 0."
)
@click.option("--timeout", default=3600.0, show_default=True, help="Seconds for all of it.")
@click.option(
    "--grace",
    default=GRACE_S,
    show_default=True,
    help="Seconds for the others once one has failed.",
)
@click.option("--no-ranks", is_flag=True, help="Without RANK, WORLD_SIZE, LOCAL_RANK, …")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def _run(
    name: str, nodes: str, timeout: float, grace: float, no_ranks: bool, command: tuple[str, ...]
) -> int:
    """Run COMMAND on every node at once, as one rank of a world with a rank a node."""
    need_root()
    chosen = [node.strip() for node in nodes.split(",") if node.strip()]
    lab = Lab.attach(name)
    running = lab.start(command, nodes=chosen or None, ranks=not no_ranks, output=Shown)
    try:
        results = running.wait(timeout, grace)
    except KeyboardInterrupt:
        running.end("interrupted", first=signal.SIGINT)
        raise
    except BaseException:
        running.end("interrupted", within_s=0.0)
        raise
    for line in _told(results, timeout, grace):
        click.echo(f"wirespeed.lab: {line}", err=True)
    return exit_code(results)


@_lab.command("down")
@_name
def _down(name: str) -> None:
    """Remove a lab with all that runs in it; does no harm when there is none."""
    need_root()
    state = load(name)
    if state is None:
        click.echo(f"no lab named {name} is here")
        return
    remove(state)
    click.echo(f"lab {name} is down")


@_lab.command("list")
def _list() -> None:
    """Show the labs of this machine."""
    states = all_states()
    for state in states:
        click.echo(_listed(state))
    if not states:
        click.echo(f"no lab is up; {_PROGRAM} up makes one")


def _given(options: dict[str, tuple[str, ...]], nodes: Sequence[str]) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for option, texts in options.items():
        kind = option.replace("_", "-")
        for text in (one for given in texts for one in each_node(given, nodes)):
            fault = parse_fault(kind, text)
            if any(subject(fault) == subject(other) for other in faults):
                raise UsageError(f"--{kind} {text} comes after another one for the same place")
            faults.append(fault)
    return tuple(faults)


def _described(spec: LabSpec, layout: Layout) -> str:
    faults = [" ".join(format_fault(fault)) for fault in spec.faults]
    nodes = f"{spec.nodes} nodes" if spec.nodes > 1 else "1 node"
    first = f"lab {spec.name}: {nodes} on {layout.network}, links of {format_rate(spec.rate)}"
    return f"{first}; {', '.join(faults) or 'healthy'}"


def _listed(state: State) -> str:
    layout = Layout.of(state)
    if not state.ready:
        down = f"{_PROGRAM} down --name {state.spec.name}"
        return f"lab {state.spec.name}: not whole (making it was interrupted); {down} removes it"
    running = len(living_in(layout.space(node) for node in layout.nodes))
    return f"{_described(state.spec, layout)}; {running} processes"


def _told(results: Sequence[NodeResult], timeout: float, grace: float) -> list[str]:
    """What a reader of the output alone would not know."""
    why = {"timeout": f"still ran after {timeout:g} s", "grace": f"still ran {grace:g} s later"}
    lines = [
        f"{one.node} ended with {one.returncode}"
        for one in results
        if one.returncode and not one.ended
    ]
    return lines + [f"{one.node} {why[one.ended]}; ended" for one in results if one.ended in why]


def run_lab(arguments: Sequence[str]) -> int:
    """Run the command line and give its exit code."""
    try:
        returned = _lab.main(list(arguments), prog_name=_PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except WirespeedError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return returned if isinstance(returned, int) else 0


def _complain(message: str, code: int) -> int:
    click.echo(f"wirespeed.lab: {message}", err=True)
    return code


def main() -> None:
    """SIGTERM and a closed terminal end a lab's commands as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    sys.exit(run_lab(sys.argv[1:]))


if __name__ == "__main__":
    main()
