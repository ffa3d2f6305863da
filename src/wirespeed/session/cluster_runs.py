"""`wirespeed cluster deploy`, `status` and `clean`: progress on stderr, what was found on stdout.

A deploy is a stored run, as a check is: what stood in the way last night can be read tomorrow.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wirespeed.errors import Interrupted
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, World
from wirespeed.session.signals import interrupted_by_signals
from wirespeed.views.findings import finding_lines
from wirespeed.views.text import Column, Grid, Progress, Style, open_progress, style_for

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment
    from wirespeed.clusters.operations.clean import Cleaned, Removal
    from wirespeed.clusters.operations.deploy import Deployed
    from wirespeed.clusters.operations.pod_lookup import Pod
    from wirespeed.clusters.operations.status import Status
    from wirespeed.runs.folder import PatientFolder


_DAY_S, _HOUR_S, _MINUTE_S = 86400, 3600, 60


@dataclass(frozen=True, slots=True)
class Telling:
    """How a verb speaks."""

    format: str = "table"
    """`table` or `json`."""
    quiet: bool = False
    verbose: bool = False

    def style(self) -> Style:
        return style_for(sys.stdout, verbose=self.verbose)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Progress on stderr; a signal ends what is under way as Interrupted."""
        shown = open_progress(quiet=self.quiet)
        try:
            with interrupted_by_signals(_interrupt):
                yield shown
        finally:
            shown.close()


def show_deploy(
    deployment: "Deployment", telling: Telling, work: Callable[[Progress], "Deployed"]
) -> tuple[str, int]:
    """Do it as a stored run; what to print, and the exit code. Raises Interrupted, with the run kept."""
    from wirespeed.session.folders import patient_folder

    folder = patient_folder("cluster deploy", _config(deployment))

    def finished(code: int, done: "Deployed | None") -> Run:
        run = _run(folder, deployment, code, done)
        folder.finish(run)
        return run

    try:
        with telling.progress() as progress:
            done = work(progress)
    except Interrupted:
        finished(Interrupted.exit_code, None)
        raise
    run = finished(done.exit_code, done)
    if telling.format == "json":
        from wirespeed.views import render

        return render(run, "json", telling.style()), run.exit_code
    return "".join(f"{line}\n" for line in _deploy_lines(run, done, telling)), run.exit_code


def show_status(found: "Status", telling: Telling) -> str:
    """The pods as a table, then what stands against them; or all of it as JSON."""
    if telling.format == "json":
        return json.dumps(_status_json(found), indent=2) + "\n"
    style = telling.style()
    lines = pod_lines(found.pods, style)
    if found.claims:
        told = ", ".join(f"{name} {phase}" for name, phase in sorted(found.claims.items()))
        lines += [style.paint(style.text(f"claims: {told}"), "dim")]
    lines = _with_findings(lines, found.findings, style)
    return "".join(f"{line}\n" for line in lines)


def pod_lines(pods: Sequence["Pod"], style: Style) -> list[str]:
    """A row a pod; no lines without pods."""
    if not pods:
        return []
    names = ("pod", "node", "zone", "status", "ready", "restarts", "GPUs", "address", "age")
    right = ("restarts", "GPUs", "age")
    grid = Grid(tuple(Column(name, left=name not in right) for name in names))
    now = datetime.now(UTC)
    for pod in pods:
        ready = "yes" if pod.ready else "no"
        grid.add(
            pod.name,
            pod.node,
            pod.zone,
            pod.status,
            ready,
            str(pod.restarts),
            str(pod.gpus) if pod.gpus else "",
            pod.ip,
            _age(pod.created, now),
            color="" if pod.ready else "red",
            at=4,
        )
    return grid.lines(style)


def removal_lines(plan: "Removal", style: Style) -> list[str]:
    """What a clean would remove, and what stays."""
    lines = [style.text(f"removes from namespace {plan.namespace}:")]
    lines += [f"  {style.text(one)}" for one in plan.objects]
    if plan.kept:
        lines.append(style.text(f"keeps the claims {', '.join(plan.kept)} (--claims deletes them)"))
    elif plan.claims and any(one.startswith("PersistentVolumeClaim ") for one in plan.objects):
        lines.append("the data in these claims will be lost")
    return lines


def clean_lines(done: "Cleaned", name: str, telling: Telling) -> str:
    """What was removed, or all of it as JSON."""
    if telling.format == "json":
        told = {
            "name": name,
            "removed": list(done.removed),
            "kept_claims": list(done.kept),
            "findings": [asdict(one) for one in done.findings],
            "exit_code": done.exit_code,
        }
        return json.dumps(told, indent=2) + "\n"
    style = telling.style()
    if not done.removed:
        lines = [f"nothing to remove of {name}"]
    else:
        state = "removed" if not done.exit_code else "removing"
        count = len(done.removed)
        lines = [f"{state} {count} object{'' if count == 1 else 's'} of {name}"]
    if done.kept:
        kept = (
            f"kept: {', '.join(done.kept)} (wirespeed cluster clean {name} --claims deletes them)"
        )
        lines.append(kept)
    lines = [style.text(line) for line in lines] + finding_lines(done.findings, style)
    return "".join(f"{line}\n" for line in lines)


def _deploy_lines(run: Run, done: "Deployed", telling: Telling) -> list[str]:
    style = telling.style()
    lines = _change_lines(done, style)
    shown = pod_lines(done.pods, style)
    lines += ["", *shown] if lines and shown else shown
    lines = _with_findings(lines, run.findings, style)
    end = f"{run.seconds:.1f} s   exit {run.exit_code}   run {run.id}"
    word, color = _DEPLOYED.get(run.exit_code, ("NOT KNOWN WHETHER DEPLOYED", "yellow"))
    return [*lines, f"{style.paint(style.paint(word, color), 'bold')}   {end}"]


_DEPLOYED = {0: ("DEPLOYED", "green"), 1: ("NOT DEPLOYED", "red")}
"""By exit code: what the last line of a deploy says, and its colour."""


def _with_findings(lines: list[str], findings: Sequence[Finding], style: Style) -> list[str]:
    """After an empty line, where there are lines before."""
    return [*lines, *([""] if lines else []), *finding_lines(findings, style)]


def _change_lines(done: "Deployed", style: Style) -> list[str]:
    """One line of an object that changes; with -v every value, and what stays."""
    lines = []
    for one in done.changes:
        if style.verbose:
            lines.append(style.text(f"{one.action} {one.kind} {one.name}"))
            lines += [f"  {style.text(difference)}" for difference in one.differences]
        elif one.action != "keep":
            lines.append(style.text(one))
    if done.changes and not lines:
        lines = ["no change"]
    return lines


def _config(deployment: "Deployment") -> dict[str, Any]:
    """What was asked, without the file's environment, which may hold secrets."""
    return {
        "cluster": deployment.name,
        "namespace": deployment.namespace,
        "nodes": deployment.nodes,
        "engine": deployment.engine,
        "mode": deployment.mode,
        "preset": deployment.preset.name,
        "image": deployment.file.workload.image,
        "gpus": deployment.gpus,
    }


def _run(
    folder: "PatientFolder", deployment: "Deployment", code: int, done: "Deployed | None"
) -> Run:
    pods = done.pods if done else ()
    facts = tuple(
        NodeFacts(
            host=pod.node or pod.name,
            ranks=(),
            facts=Facts(
                other={"pod": pod.name, "ready": pod.ready, "address": pod.ip, "gpus": pod.gpus}
            ),
        )
        for pod in pods
    )
    world = World(size=0, nodes=facts, backend="", launcher="k8s")
    findings = done.findings if done else ()
    told = {"world": world, "choices": deployment.choices}
    return folder.ended("NONE", code, findings, **told)


def _status_json(found: "Status") -> dict[str, Any]:
    return {
        "name": found.name,
        "namespace": found.namespace,
        "asked": found.asked,
        "ready": found.ready,
        "exit_code": found.exit_code,
        "pods": [{**asdict(pod), "devices": dict(pod.devices)} for pod in found.pods],
        "claims": dict(found.claims),
        "findings": [asdict(one) for one in found.findings],
    }


def _age(created: str, now: datetime) -> str:
    """`42s`, `7m`, `3h`, `12d`, as kubectl has it."""
    try:
        seconds = max(0, round((now - datetime.fromisoformat(created)).total_seconds()))
    except (ValueError, TypeError):
        return ""
    for unit, letter in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{letter}"
    return f"{seconds}s"


def _interrupt(word: str) -> None:
    raise Interrupted(f"interrupted by {word}")
