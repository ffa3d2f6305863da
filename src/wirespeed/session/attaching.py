"""`attach --on`: the look of every node, by an engine that starts one process on each."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from wirespeed.errors import CannotMeasure, Interrupted
from wirespeed.launchers.base import Host, Prepared
from wirespeed.launchers.children import JobLogs
from wirespeed.launchers.supervise import Reason
from wirespeed.process import returncode_text
from wirespeed.runs.folder import PatientFolder
from wirespeed.session.held_nodes import held, supervised
from wirespeed.watch.attach.look import NodeLook
from wirespeed.watch.attach.node import Asked, Told

_LARGEST = 16 << 20
"""Characters of one node's answer: a rank's stacks take some kilobytes."""


@dataclass(slots=True)
class _Answers:
    """The line of each node, which comes in parts."""

    texts: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    """The last line on stderr."""
    nodes: dict[int, str] = field(default_factory=dict)

    def started(self, rank: int, node: str) -> None:
        self.nodes[rank] = node

    def output(self, rank: int, node: str, stream: str, text: str, *, whole: bool) -> None:
        if stream == "stderr":
            self.errors[rank] = text[:300] or self.errors.get(rank, "")
        elif len(self.texts.get(rank, "")) < _LARGEST:
            self.texts[rank] = self.texts.get(rank, "") + text

    def ended(self, rank: int, node: str, code: int) -> None:
        if code:
            self.errors.setdefault(rank, returncode_text(code))

    def said(self, piece: str, text: str) -> None:
        sys.stderr.write(f"{piece}: {text[:300]}\n")

    def ending(self, reason: Reason) -> None:
        pass


def look_on_nodes(
    prepared: Prepared,
    folder: PatientFolder,
    asked: Asked,
    say: Callable[[str], None],
) -> tuple[list[NodeLook], dict[str, str]]:
    """What was seen by node, and by node why nothing was.

    Raises Interrupted, once all that was started has ended; CannotMeasure where there is no node yet.
    """
    if getattr(prepared, "once", ""):
        raise CannotMeasure(
            "the cluster file's environment is not deployed, so nothing runs in it",
            expected="one whose pods run the job",
            next="wirespeed cluster list",
        )
    words = msgspec.json.encode(asked).decode()
    answers = _Answers()
    with held(prepared, say) as nodes:
        job = nodes.prepared.job
        hosts = tuple(Host(host.name, 1) for host in job.hosts)
        python = job.python or sys.executable
        command = (python, "-P", "-m", "wirespeed.watch.attach.node", words)
        # One process a node needs no torchrun, which has its own to say when another node is done.
        options = {**job.options, "torchrun": "no"}
        one = replace(
            nodes.prepared, job=replace(job, command=command, hosts=hosts, options=options)
        )
        logs = JobLogs(folder.log_path(0).parent)
        end, _ = supervised(one, logs, answers, job.startup_s)
    if end.reason == "interrupted":
        raise Interrupted("interrupted; what was started on the nodes has ended")
    looks, why_not = [], {}
    for rank in range(one.job.size):
        node = answers.nodes.get(rank, f"node {rank}")
        try:
            told = msgspec.json.decode(answers.texts.get(rank, ""), type=Told)
        except msgspec.DecodeError:
            why_not[node] = answers.errors.get(rank) or f"no answer came ({end.reason})"
            continue
        if told.look is None:
            why_not[node] = told.why
        else:
            looks.append(told.look)
    return looks, why_not
