"""`wirespeed watch`: a job of one's own, seen from inside by the traces that its tools wrote."""

import time
from typing import TYPE_CHECKING, Any

from wirespeed.cli.options import Output, argument, color_option, command, flag, option
from wirespeed.errors import UsageError
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from wirespeed.model.records import Run
    from wirespeed.runs.folder import PatientFolder


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

    Exit codes: 0 NO FINDINGS, or SLOW as a warning; 1 SLOW, HUNG or JOB FAILED; 2 no trace, or none that
    can be read; 3 NOT ENOUGH SEEN.
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
    from wirespeed.runs.folder import ended
    from wirespeed.session.folders import folder_or_none
    from wirespeed.views.text import open_progress
    from wirespeed.watch.traces.analysis import analysed
    from wirespeed.watch.traces.judging import judged
    from wirespeed.watch.verdict import watch_grade

    begin = time.monotonic()
    progress = open_progress(quiet=quiet)
    try:
        found = analysed(paths, lambda name, number, all: progress.step(number, all, name))
    finally:
        progress.close()
    folder, begun = folder_or_none("watch", {"paths": list(paths)})
    told = judged(found)
    grade = watch_grade(told.findings)
    run = ended(
        begun,
        grade.verdict,
        grade.exit_code,
        told.findings,
        verdict_subject=grade.subject,
        seconds=time.monotonic() - begin,
        environment={},
        config={**begun.config, "files": found.files, "bytes": found.bytes},
        watched=told.watched,
    )
    return run, folder
