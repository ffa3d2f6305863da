"""`wirespeed cluster sync`: bring a folder to all pods."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.cluster import file_argument, opened
from wirespeed.cli.options import argument, command, flag, option
from wirespeed.errors import CannotMeasure

if TYPE_CHECKING:
    from wirespeed.clusters.sync import Synced, SyncOptions
    from wirespeed.clusters.sync.transfer import Brought
    from wirespeed.views.text import Progress, Style


_QUIET_S = 5.0


@command()
@file_argument
@argument("folder [FOLDER]", default=".")
@option("--to PATH", "Folder in the pods.", default="/workspace", show_default=True)
@option("--exclude PATTERN", "Leave out more, as a line of .gitignore does.", multiple=True)
@flag(
    "--delete",
    "Also delete there what a former sync brought and this one does not; never anything else.",
)
@flag("--watch", "Sync again after each change, until Ctrl-C.")
@flag("--dry-run", "Only tell what would be done.")
@flag("-q --quiet", "No progress on stderr.")
def sync(cluster: str, folder: str, quiet: bool, **asked: Any) -> int:
    """Bring FOLDER (this one, unless said) to all pods, by content.

    \f
    Examples:
      wirespeed cluster sync mine                     this folder to /workspace of all pods
      wirespeed cluster sync mine src --to /workspace/src --exclude '*.ckpt' --dry-run
      wirespeed cluster sync mine --watch             again after each change, until Ctrl-C

    Files are compared by content; only what differs is sent, checked, and then renamed into its place: a
    reader in the pod sees the old file or the new one, never a half. A call that was interrupted is mended
    by the next one. Links are brought as links and never followed, on either side. Left out, unless a
    pattern such as `!.git` takes it in: .git, __pycache__, *.pyc, .venv, node_modules, and the patterns of
    the folder's .wirespeedignore, which are written as in .gitignore (.gitignore itself is not looked at).
    With storage.mode rwx one pod is written to for all.
    """  # noqa: E501
    from wirespeed.clusters.sync import Syncer, SyncOptions
    from wirespeed.views.text import open_progress

    if asked["watch"] and asked["dry_run"]:
        raise click.UsageError("--watch and --dry-run exclude each other")
    file, kubectl = opened(cluster)
    excludes, delete, dry = asked["exclude"], asked["delete"], asked["dry_run"]
    options = SyncOptions(
        folder=Path(folder), to=asked["to"], excludes=excludes, delete=delete, dry=dry
    )
    progress = _Calm(open_progress(quiet=quiet))
    syncer = Syncer(kubectl, file, options, progress)
    if asked["watch"]:
        return _watch(syncer.run, options, progress)
    try:
        synced = syncer.run()
    finally:
        progress.close()
    _show(synced, options)
    return 0 if synced.ok else 1


def _watch(run: "Callable[[], Synced]", options: "SyncOptions", progress: "_Calm") -> int:
    """Ends by Ctrl-C only."""
    from wirespeed.clusters.sync import watch

    def sync() -> bool:
        try:
            synced = run()
        except CannotMeasure as error:
            progress.close()
            click.echo(f"wirespeed: {error}", err=True)
            return False
        progress.close()
        if synced.findings or not all(one.nothing for one in synced.pods):
            _show(synced, options)
        return synced.ok

    try:
        watch(options.folder, options.excludes, sync)
    finally:
        progress.close()
    return 0


class _Calm:
    """Progress for a log: not each quarter of a second a line."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._terminal = sys.stderr.isatty()
        self._told = float("-inf")

    def phase(self, text: str) -> None:
        if self._terminal or time.monotonic() - self._told > _QUIET_S:
            self._told = time.monotonic()
            self._progress.phase(text)

    def close(self) -> None:
        self._progress.close()


def _show(synced: "Synced", options: "SyncOptions") -> None:
    from wirespeed.views.findings import finding_lines
    from wirespeed.views.text import style_for

    style = style_for(sys.stdout)
    width = max((len(one.pod) for one in synced.pods), default=0)
    lines: list[str] = []
    for one in synced.pods:
        shared = f" (storage.mode {synced.shared}: for all pods)" if synced.shared else ""
        lines.append(f"{style.text(one.pod):<{width}}  {_summary(one, options)}{shared}")
        lines += _paths(one, style) if options.dry else []
    lines += finding_lines(synced.findings, style)
    click.echo("\n".join(lines))


def _summary(brought: "Brought", options: "SyncOptions") -> str:
    from wirespeed.model.units import format_duration, format_size

    counts = {
        "new": len(brought.new),
        "changed": len(brought.changed),
        "with new permissions": len(brought.modes),
        "deleted": brought.deleted_count,
    }
    told = [f"{count} {word}" for word, count in counts.items() if count] or ["nothing to do"]
    if brought.sent_bytes:
        told.append(f"{format_size(brought.sent_bytes)} sent")
    took = "dry run" if options.dry else format_duration(brought.seconds)
    return f"{', '.join(told)}; {took}"


def _paths(brought: "Brought", style: "Style") -> list[str]:
    from wirespeed.clusters.sync import shown

    groups = {
        "new": brought.new,
        "changed": brought.changed,
        "permissions": brought.modes,
        "deleted": brought.deleted,
    }
    lines = [
        f"  {what:<11}  {style.text(shown(path))}"
        for what, paths in groups.items()
        for path in paths
    ]
    left = brought.deleted_count - len(brought.deleted)
    return [*lines, f"  deleted      and {left} more"] if left else lines
