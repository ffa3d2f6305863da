"""`wirespeed cluster nccl-tests`: nccl-tests as an MPIJob, its table kept as a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT, deployment_options, file_argument, settled
from wirespeed.cli.shape_options import completed, verdict_lines, verdict_of
from wirespeed.errors import InputError, Interrupted, StorageError, UsageError
from wirespeed.node.redact import redact_words

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment
    from wirespeed.clusters.operations.nccl_tests import Ended
    from wirespeed.model.records import Finding, Run
    from wirespeed.views.text import Style


_ARGUMENTS = ("-b", "8", "-e", "8G", "-f", "2", "-g", "1")
"""Of the program, where none are given: one GPU a rank, sizes doubled from 8 B to 8 GiB."""
_UNKNOWN = frozenset({"CLUSTER-050", "CLUSTER-052", "CLUSTER-053"})
"""Findings by which nothing is known of the cluster's speed or health: exit code 3."""
_FAILED = "CLUSTER-051"
_EPILOG = """\b
Examples:
  wirespeed cluster nccl-tests mine
  wirespeed cluster nccl-tests mine --op all_gather --nodes 4 -- -b 1M -e 8G -f 2 -g 1 -w 5 -n 20
  wirespeed cluster nccl-tests mine --dry-run | kubectl create --dry-run=server -f -

\b
The image needs mpirun, sshd and the programs of nccl-tests (images/ builds one), the cluster the
MPI operator. Last comes whether its best figure is normal for such nodes. Exit code: 0 it ran and
its data was right; 1 a finding, or a low figure; 3 it could not be measured.
"""


@click.command("nccl-tests", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@deployment_options
@click.option(
    "--op",
    default="all_reduce",
    show_default=True,
    metavar="OP",
    shell_complete=suggest.operations,
    help="What to test.",
)
@click.option(
    "--program", metavar="PATH", help="The program in the image.  [default: OP_perf on its PATH]"
)
@click.option(
    "--start-within", "start_s", type=click.FloatRange(1, 86_400), default=600.0, metavar="S",
    show_default=True, help="Seconds for the launcher to start.",
)  # fmt: skip
@click.option(
    "--within", "within_s", type=click.FloatRange(1, 86_400), default=3600.0, metavar="S",
    show_default=True, help="Seconds for the whole.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the manifests and stop; no cluster is asked.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, and none of the launcher's lines.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS …]")
def command(
    op: str, program: str | None, start_s: float, within_s: float, dry_run: bool, quiet: bool,
    arguments: tuple[str, ...], **values: Any,
) -> int:  # fmt: skip
    """Run nccl-tests on the cluster's GPUs as an MPIJob, and keep its figures as a run.

    The job is one of its own beside a deployed environment, and takes GPUs of its own: one that holds
    all of them has to be cleaned first. Nothing of it is left, also after Ctrl-C.
    """
    from wirespeed.clusters.manifests.render import as_yaml
    from wirespeed.clusters.operations.nccl_tests import environment_of, manifests

    if values["engine"] not in (None, "mpijob"):
        raise UsageError(f"--engine {values['engine']}: mpirun starts nccl-tests, in an MPIJob")
    # Our name of the operation, and the program that tests it.
    from wirespeed.runs.importers.table import OPERATIONS, operation_in

    found = operation_in(op)
    if not found:
        raise UsageError(f"unknown operation {op!r}", expected=", ".join(OPERATIONS))
    operation, default = found, f"{OPERATIONS[found].program}_perf"
    words = (program or default, *(arguments or _ARGUMENTS))
    deployment = settled(values)
    environment = environment_of(deployment)
    if dry_run:
        click.echo(as_yaml(manifests(environment, words)), nl=False)
        return 0
    tested = _run(environment, words, start_s, within_s, quiet)
    return _report(deployment, operation, words, tested)


def _run(
    environment: "Deployment", words: tuple[str, ...], start_s: float, within_s: float, quiet: bool
) -> "Ended":
    from wirespeed.clusters.kube import Refused, finding_of, kubectl_of, patient
    from wirespeed.clusters.operations.nccl_tests import Ended, run_tests
    from wirespeed.views.progress import open_progress

    progress = open_progress(quiet=quiet)
    style = _style()

    def show(line: str) -> None:
        if not quiet:
            progress.close()
            click.echo(style.text(line))

    kubectl = patient(kubectl_of(environment.file.cluster), progress, 30.0)
    try:
        with _interruptible():
            return run_tests(
                kubectl, environment, words, progress, show, start_s=start_s, within_s=within_s
            )
    except Refused as refused:
        return Ended(findings=(finding_of(refused),))
    finally:
        progress.close()


@contextmanager
def _interruptible() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or lost terminal ends the work; the removal goes on whatever comes."""
    from wirespeed.session.signals import interrupted_by_signals

    told: list[str] = []

    def stop(word: str) -> None:
        told.append(word)
        if len(told) == 1:
            raise Interrupted(f"ended by {word}; the MPIJob is removed")

    with interrupted_by_signals(stop):
        yield


def _report(deployment: "Deployment", op: str, words: tuple[str, ...], tested: "Ended") -> int:
    """Store the tables as runs, say what was found, and give the exit code."""
    from wirespeed.views.findings import finding_lines
    from wirespeed.views.sections import import_lines

    style = _style()
    found = _imported(deployment, op, tested)
    found = [_placed(run, deployment) for run in found]
    lines = [line for run in found for line in import_lines(run, style)]
    findings = tested.findings or (() if found else (_no_table(words),))
    kept = found or ([_empty(op)] if tested.log else [])
    runs = [_completed(run, deployment, words, findings) for run in kept]
    logs = [_store(run, tested.log) for run in runs]
    if logs:
        findings = tuple(_pointed(one, logs[0]) for one in findings)
    lines += finding_lines(findings, style)
    lines += [f"next: wirespeed runs show {run.id}" for run in runs]
    lines += [line for run in found for line in verdict_lines(run, style)]
    click.echo("\n".join(lines))
    low = any(answer.place == "low" for run in found if (answer := verdict_of(run)))
    return max(1 if low else 0, _exit_code(findings, runs))


def _placed(run: "Run", deployment: "Deployment") -> "Run":
    """With what the cluster file tells of the nodes and the log does not; the log is believed first."""
    from wirespeed.model.records import ToldShape
    from wirespeed.reference.shape import gpu_listed

    product = "" if gpu_listed(run.world) else deployment.file.gpus.type
    told = ToldShape(
        gpu=product,
        gpus_per_node=deployment.gpus,
        nodes=deployment.nodes,
        interconnect="tcp" if deployment.mode == "tcp" and deployment.nodes > 1 else "",
        why="the cluster file",
    )
    try:
        return completed(run, told)
    except UsageError:
        return run


def _pointed(finding: "Finding", log: Path) -> "Finding":
    """With the file that the next command reads."""
    return replace(finding, next=f"wirespeed diagnose {log}") if finding.id == _FAILED else finding


def _imported(deployment: "Deployment", op: str, tested: "Ended") -> "list[Run]":
    """A run a table; none where there is no table."""
    from wirespeed.runs.importers import import_bytes

    name = f"nccl-tests on {deployment.name}"
    try:
        return import_bytes(tested.log.encode(), name=name, op=op)
    except InputError:
        return []


def _empty(op: str) -> "Run":
    """The run of a launcher that printed no table."""
    from wirespeed.model.records import Run, World
    from wirespeed.runs.folder import new_id

    world = World(size=0, nodes=(), backend="nccl", launcher="openmpi")
    return Run(
        id=new_id(), command="import", verdict="UNKNOWN", exit_code=3, started="", seconds=0.0,
        world=world, config={"op": op},
    )  # fmt: skip


def _completed(
    run: "Run", deployment: "Deployment", words: tuple[str, ...], findings: "tuple[Finding, ...]"
) -> "Run":
    """With what was run, and what was found about it."""
    told = {
        "cluster": deployment.name,
        "namespace": deployment.namespace,
        "cluster_nodes": deployment.nodes,
        "gpus_per_node": deployment.gpus,
        "mode": deployment.mode,
        "preset": deployment.preset.name,
        "image": deployment.file.workload.image,
        "words": redact_words(words),
    }
    done = replace(
        run,
        config={**run.config, **told},
        choices=(*deployment.choices, *run.choices),
        findings=(*findings, *run.findings),
    )
    code = _exit_code(findings, [run])
    return replace(done, verdict="NOT READY", exit_code=1) if code == 1 else done


def _store(run: "Run", log: str) -> Path:
    """The run's folder, and in it what the launcher printed; the path of that."""
    from wirespeed.runs.folder import write_whole
    from wirespeed.runs.store import save

    path = save(run) / "logs" / "launcher.log"
    try:
        write_whole(path, log.encode())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _no_table(words: tuple[str, ...]) -> "Finding":
    from wirespeed.model.records import Finding

    return Finding(
        id="CLUSTER-053",
        status="fail",
        title=f"{words[0]} printed no table.",
        expected="rows of nccl-tests: size, count, type …",
        because="it is another program, or its arguments make it print none",
        next="wirespeed cluster nccl-tests NAME -- -b 8 -e 1G -f 2 -g 1",
    )


def _exit_code(findings: "tuple[Finding, ...]", runs: "list[Run]") -> int:
    """1 for a finding and for wrong data, 3 where nothing is known, else 0."""
    from wirespeed.clusters.kube import exit_code

    code = exit_code(one for one in findings if one.id not in _UNKNOWN)
    if code in (1, 2) or any(run.verdict == "NOT READY" for run in runs):
        return max(1, code)
    return 3 if findings else code


def _style() -> "Style":
    import sys

    from wirespeed.views.text import style_for

    return style_for(sys.stdout)
