"""`wirespeed watch`: a job of one's own, seen from inside by the traces that its tools wrote."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wirespeed.cli.options import Output, argument, color_option, command, flag, option
from wirespeed.errors import StorageError, UsageError
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from wirespeed.model.records import Run
    from wirespeed.runs.folder import PatientFolder
    from wirespeed.watch.traces.analysis import Analysed


@command()
@argument("paths TRACES...", nargs=-1, completes="files")
@option("-o --output", "How to print.", FORMATS, default="table")
@option("--html FILE", "Write the page of this run, too.")
@flag("-q --quiet", "No progress.")
@flag("-v --verbose", "All the evidence.")
@color_option
def watch(paths: tuple[str, ...], output: str, quiet: bool, color: str, **asked: Any) -> int:
    """Which rank holds this job up, since which step, and why? From traces that the job wrote.

    Reads torch.profiler's traces (JSON, also packed), dumps of torch's flight recorder and Chakra's
    execution traces: files, folders and patterns, of one rank or all. `wirespeed launch --watch`
    watches a job while it runs.

    \f
    Examples:
      wirespeed watch traces/                        a file a rank
      wirespeed watch 'runs/*/rank*.json.gz' -v
      wirespeed watch dumps/                         nccl_trace_rank_0 …: who hangs
      wirespeed watch traces/ -o json | jq '.findings[] | select(.status == "fail")'
      wirespeed watch traces/ --html page.html

    Exit codes: 0 nothing holds it up, 1 a finding, 3 the traces cannot tell; 2 there is none, or it is
    none that can be read.
    """
    if not paths:
        raise UsageError(
            "no trace is given",
            expected="files, folders or patterns",
            next="wirespeed watch traces/",
        )
    from wirespeed.cli.page import refuse_bad_target, show

    if asked["html"]:
        refuse_bad_target(asked["html"])
    run, folder = _watched(paths, quiet)
    shown = Output(output, color, quiet, asked["verbose"], html=asked["html"])
    return show(run, shown, folder)


def _watched(paths: tuple[str, ...], quiet: bool) -> "tuple[Run, PatientFolder | None]":
    """Read and judge; the folder to store it in, where there can be one."""
    from wirespeed.session.folders import patient_folder, tell_unstored
    from wirespeed.views.text import open_progress
    from wirespeed.watch.traces.analysis import analysed

    begin = time.monotonic()
    progress = open_progress(quiet=quiet)
    try:
        found = analysed(paths, lambda name, number, all: progress.step(number, all, name))
    finally:
        progress.close()
    folder = None
    try:
        folder = patient_folder("watch", {"paths": list(paths)})
    except StorageError as error:
        tell_unstored(error.saw)
    return _run(found, paths, folder, begin), folder


def _run(
    found: "Analysed", paths: tuple[str, ...], folder: "PatientFolder | None", begin: float
) -> "Run":
    from wirespeed import __version__
    from wirespeed.model.records import Run, World
    from wirespeed.runs.folder import new_id
    from wirespeed.watch.traces.judging import judged
    from wirespeed.watch.verdict import verdict_of

    told = judged(found)
    verdict, code = verdict_of(told.findings)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Run(
        id=folder.id if folder else new_id(),
        command="watch",
        verdict=verdict,
        exit_code=code,
        started=folder.started if folder else now.replace("+00:00", "Z"),
        seconds=time.monotonic() - begin,
        world=World(size=0, nodes=(), backend="", launcher=""),
        versions={"wirespeed": __version__},
        config={"paths": list(paths), "files": found.files, "bytes": found.bytes},
        findings=told.findings,
        watched=told.watched,
    )
