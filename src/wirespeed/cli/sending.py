"""`wirespeed runs send`: stored runs on their way to the common store of a team."""

import os

import click

from wirespeed.cli.options import argument, command, flag, option
from wirespeed.errors import UsageError


@command()
@argument("refs [REF…]", nargs=-1, completes="runs")
@flag("--all", "All stored runs that ended.")
@option(
    "--store url URL", "To this store.  [default: what WIRESPEED_STORE or wirespeed.yaml names]"
)
@flag(
    "--set-up", "First make its tables, or bring older ones up to date, as the role that owns them."
)
def send(refs: tuple[str, ...], all: bool, url: str | None, set_up: bool) -> int:
    """Send stored runs to a common store: those that wait for that, or those that are named.

    Where WIRESPEED_STORE or `store` in wirespeed.yaml names a store, each run is sent at the end of its
    command; one that could not be waits. Each is there once, however often it is sent.

    \f
    Examples:
      wirespeed runs send
      wirespeed runs send --set-up --store postgresql://owner@db.example/fleet
      wirespeed runs send --all --store postgresql://me@db.example/fleet?sslmode=verify-full
      wirespeed runs list --store postgresql://me@db.example/fleet

    Exit codes: 0 nothing waits any more; 3 the store took not all of them.
    """
    from wirespeed.fleet.common_store import made_ready
    from wirespeed.fleet.common_store.outbox import Unsent, waiting
    from wirespeed.fleet.common_store.sending import send_now
    from wirespeed.model.units import counted

    url = url or os.environ.get("WIRESPEED_STORE")
    if not url and (refs or all or set_up):
        raise UsageError("no store is named", expected="--store postgresql://…, or WIRESPEED_STORE")
    if url and set_up:
        click.echo(made_ready(url))
    queue = {one.name: one for one in waiting()}
    if url:
        named = {name: Unsent(name, url) for name in _to_send(refs, all)}
        queue |= {
            name: one
            for name, one in named.items()
            if name not in queue or queue[name].store != url
        }
    done = send_now(list(queue.values()))
    if done.names or not set_up:
        known = f"; {done.known:,} were there" if done.known else ""
        click.echo(f"sent {counted(len(done.names), 'run')}{known}")
    for name, why in done.unfit.items():
        click.echo(f"wirespeed: run {name} was not sent: {why}", err=True)
    for name in done.busy:
        click.echo(f"wirespeed: run {name} was not sent: another sender has it in hand", err=True)
    if done.refused is not None:
        raise done.refused
    return 3 if done.unfit or done.busy else 0


def _to_send(refs: tuple[str, ...], all: bool) -> list[str]:
    """Names of the folders of stored runs."""
    from wirespeed.runs.index import RunFilter
    from wirespeed.runs.place import runs_home
    from wirespeed.runs.source import opened
    from wirespeed.runs.store import find

    ended: list[str] = []
    if all:
        with opened() as index:
            ended = [row.run for row in index.runs(RunFilter(finished=True))]
    paths = [find(ref) for ref in refs]
    if others := [path for path in paths if path.parent != runs_home()]:
        raise UsageError(f"{others[0]} is no stored run", expected=f"a run in {runs_home()}")
    return list(dict.fromkeys([*ended, *(path.name for path in paths)]))
