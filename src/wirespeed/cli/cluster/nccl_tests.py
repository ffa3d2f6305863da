"""nccl-tests as an MPIJob of the cluster, its table kept as a run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from wirespeed.cli.cluster import settled
from wirespeed.cli.reference_answers import completed, verdict_lines, verdict_of
from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.kube import Refused, exit_code, finding_of, kubectl_of, patient
from wirespeed.clusters.manifests.render import as_yaml
from wirespeed.clusters.operations.nccl_tests import Ended, environment_of, manifests, run_tests
from wirespeed.errors import InputError, Interrupted, StorageError, UsageError, refused_as
from wirespeed.model.records import Finding, Run, ToldShape, World
from wirespeed.model.verdicts import standing_of
from wirespeed.node.redact import redact_words
from wirespeed.reference.shape import gpu_listed
from wirespeed.runs.folder import new_id, write_whole
from wirespeed.runs.importers import import_bytes
from wirespeed.runs.importers.table import OPERATIONS, operation_in
from wirespeed.runs.store import save
from wirespeed.session.signals import interrupted_by_signals
from wirespeed.views.findings import finding_lines
from wirespeed.views.sections import import_lines
from wirespeed.views.text import open_progress, style_for

_ARGUMENTS = ("-b", "8", "-e", "8G", "-f", "2", "-g", "1")
"""Of the program, where none are given: one GPU a rank, sizes doubled from 8 B to 8 GiB."""
_UNKNOWN = frozenset({"CLUSTER-050", "CLUSTER-052", "CLUSTER-053"})
"""Findings by which nothing is known of the cluster's speed or health: exit code 3."""
_FAILED = "CLUSTER-051"


def run_nccl_tests(values: dict[str, Any]) -> int:
    """As the options and arguments say; the exit code."""
    op, given = values.pop("op"), values.pop("arguments")
    if values["engine"] not in (None, "mpijob"):
        raise UsageError(f"--engine {values['engine']}: mpirun starts nccl-tests, in an MPIJob")
    found = operation_in(op)
    if not found:
        raise UsageError(f"unknown operation {op!r}", expected=", ".join(OPERATIONS))
    default = f"{OPERATIONS[found].program}_perf"
    words = (values["program"] or default, *(given or _ARGUMENTS))
    deployment = settled(values)
    environment = environment_of(deployment)
    if values["dry_run"]:
        click.echo(as_yaml(manifests(environment, words)), nl=False)
        return 0
    within = {name: values[name] for name in ("start_s", "within_s")}
    return _report(deployment, found, words, _run(environment, words, within, values["quiet"]))


def _run(
    environment: Deployment, words: tuple[str, ...], within: dict[str, float], quiet: bool
) -> Ended:
    progress = open_progress(quiet=quiet)
    style = style_for(sys.stdout)

    def show(line: str) -> None:
        if not quiet:
            progress.close()
            click.echo(style.text(line))

    kubectl = patient(kubectl_of(environment.file.cluster), progress, 30.0)
    try:
        with _interruptible():
            return run_tests(kubectl, environment, words, progress, show, **within)
    except Refused as refused:
        return Ended(findings=(finding_of(refused),))
    finally:
        progress.close()


@contextmanager
def _interruptible() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or lost terminal ends the work; the removal goes on whatever comes."""
    told: list[str] = []

    def stop(word: str) -> None:
        told.append(word)
        if len(told) == 1:
            raise Interrupted(f"ended by {word}; the MPIJob is removed")

    with interrupted_by_signals(stop):
        yield


def _report(deployment: Deployment, op: str, words: tuple[str, ...], tested: Ended) -> int:
    """Store the tables as runs, say what was found, and give the exit code."""
    style = style_for(sys.stdout)
    found = _imported(deployment, op, tested)
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


def _placed(run: Run, deployment: Deployment) -> Run:
    """With what the cluster file tells of the nodes and the log does not; the log is believed first."""
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


def _pointed(finding: Finding, log: Path) -> Finding:
    """With the file that the next command reads."""
    return replace(finding, next=f"wirespeed diagnose {log}") if finding.id == _FAILED else finding


def _imported(deployment: Deployment, op: str, tested: Ended) -> list[Run]:
    """A run a table; none where there is no table."""
    name = f"nccl-tests on {deployment.name}"
    try:
        runs = import_bytes(tested.log.encode(), name=name, op=op)
    except InputError:
        return []
    return [_placed(run, deployment) for run in runs]


def _empty(op: str) -> Run:
    """The run of a launcher that printed no table."""
    world = World(size=0, nodes=(), backend="nccl", launcher="openmpi")
    return Run(
        id=new_id(), command="import", verdict="NONE", exit_code=3, started="", seconds=0.0,
        world=world, config={"op": op},
    )  # fmt: skip


def _completed(
    run: Run, deployment: Deployment, words: tuple[str, ...], findings: tuple[Finding, ...]
) -> Run:
    """With what was run, and what was found about it."""
    told = {
        "cluster": deployment.name,
        "namespace": deployment.namespace,
        "cluster_nodes": deployment.nodes,
        "gpus_per_node": deployment.gpus,
        "mode": deployment.mode,
        "preset": deployment.preset.name if deployment.preset else "",
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
    return replace(done, verdict="FAILED", exit_code=1) if code == 1 else done


def _store(run: Run, log: str) -> Path:
    """The run's folder, and in it what the launcher printed; the path of that."""
    path = save(run) / "logs" / "launcher.log"
    with refused_as(StorageError, f"cannot write {path}"):
        write_whole(path, log.encode())
    return path


def _no_table(words: tuple[str, ...]) -> Finding:
    return Finding(
        id="CLUSTER-053",
        status="fail",
        title=f"{words[0]} printed no table.",
        expected="rows of nccl-tests: size, count, type …",
        because="it is another program, or its arguments make it print none",
        next="wirespeed cluster nccl-tests NAME -- -b 8 -e 1G -f 2 -g 1",
    )


def _exit_code(findings: tuple[Finding, ...], runs: list[Run]) -> int:
    """1 for a finding and for wrong data, 3 where nothing is known, else 0."""
    code = exit_code(one for one in findings if one.id not in _UNKNOWN)
    if code in (1, 2) or any(standing_of(run.verdict) == "bad" for run in runs):
        return max(1, code)
    return 3 if findings else code
