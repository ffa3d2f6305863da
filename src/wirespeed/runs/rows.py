"""What is kept of many runs at once: flat rows made of each `Run`, for the index and for a common store.

A row holds texts, numbers and nothing else, so that a column of any database can take it. Times are
seconds, sizes bytes, bandwidths bytes a second, moments ISO 8601 in UTC as the run tells them.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.model.verdicts import Verdict, with_detail
from wirespeed.runs.place import runs_home

if TYPE_CHECKING:  # importing these takes longer than reading some rows
    from wirespeed.compare.estimate import Figure
    from wirespeed.model.derived_records import What
    from wirespeed.model.records import Finding, NodeFacts, Run

_MOST = 2**63 - 1
"""The largest whole number that a column of a database takes."""
_MOST_WORDS = 200
STAMP_LENGTH = len("20261103-101112")
"""Of the start in the name of a run folder."""
_GOOD_WORDS: tuple[Verdict, ...] = ("READY", "NO CULPRIT")
"""Verdicts of `check`, `locate` and `gate` by which every node that took part is good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One line of `runs list`."""

    run: str
    """Name of the run's folder, which is unique: its start, then its id."""
    id: str
    """8 hexadecimal digits."""
    command: str = ""
    """The verb: `check`, `bench`, `import`, …"""
    started: str = ""
    """When."""
    seconds: float = 0.0
    """How long it took."""
    verdict: str = "UNKNOWN"
    """The word with which it ended: docs/verdicts.md."""
    exit_code: int = 3
    """What its process ended with."""
    world_size: int = 0
    """Ranks; 0: not known."""
    nodes: int = 0
    """Nodes that took part; 0: not known."""
    backend: str = ""
    """`gloo`, `nccl`, …"""
    launcher: str = ""
    """`local`, `torchrun`, `slurm`, …"""
    job: str = ""
    """What of yours it was about: the command that `launch` ran, the files that `diagnose` read, the
    node that was repaired."""
    gpu: str = ""
    """Products of its GPUs, each once, with commas between them."""
    wirespeed: str = ""
    """Version that made it."""
    detail: str = ""
    """What stands beside the verdict word: `speed not judged`, `3 of 93`, `rank 2`; often nothing."""
    measurements: int = 0
    """How many figures of collectives, devices, storage and other tools it holds."""
    failed: int = 0
    """Findings that failed."""
    warned: int = 0
    """Findings that warn."""
    headline: str = ""
    """Title of its first failed finding, else of its first warning."""
    injected: bool = False
    """Whether a fault was injected into it on purpose."""
    finished: bool = True
    """False: it did not end, or has not yet."""
    damaged: str = ""
    """Why it cannot be read; empty for a good run."""
    judged: str = ""
    """Ids of its findings that judged every node which they do not name, each once, with commas between
    them; empty where a fault was injected or simulated."""
    unjudged: str = ""
    """Ids of its findings that left something unjudged, in the same form."""
    nodes_good: bool = False
    """Whether its verdict says that every node which took part is good: a whole `check`, a `locate`
    without a culprit, a look of a gate."""

    @property
    def verdict_text(self) -> str:
        """The verdict as people read it, such as `READY (speed not judged)`."""
        return with_detail(self.verdict, self.detail)

    @property
    def path(self) -> Path:
        """Its folder on this machine."""
        return runs_home() / self.run


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One figure of a run that may be compared with those of others."""

    run: str
    """As in a run's row."""
    started: str
    """When the run started."""
    number: int
    """Its place among the run's figures, from 0."""
    kind: str
    """`collective`, `training`, `goodput`, `soak`, `watched`, `replay`, `load`, `compute`,
    `tool` or `storage`."""
    name: str
    """The operation, the strategy, the other tool, or which figure of the kind."""
    what: str
    """All that must be alike for comparing it, as JSON: a list of names with their values."""
    backend: str
    """The world's."""
    nodes: int
    """The world's; 0: not known."""
    ranks: int
    """Ranks that took part; 0: not known."""
    size_bytes: int
    """Of a message; 0 where it is of none."""
    log_s: float
    """Natural logarithm of the time in seconds: of the median, of `train` the mean step."""
    within: float | None
    """Standard error of `log_s` by the run's own interval; null where it shows none."""
    busbw: float
    """Bytes a second; 0 where it has no meaning."""
    samples: int
    """Timed operations or steps."""
    wrong: bool
    """Whether its data were wrong."""

    @property
    def seconds(self) -> float:
        """The time; of a ratio (`What.is_ratio`) seconds of wall time for such a one, of another tool's
        rate (`What.unit`) those for one of its unit."""
        return math.exp(self.log_s)

    @property
    def earlier_what(self) -> str:
        """Return `what` as an earlier version wrote it, which may be the same."""
        from wirespeed.compare.figures import earlier_name

        if self.kind not in ("tool", "collective"):
            return self.what
        earlier = earlier_name(self.told()[0])
        return json.dumps(earlier.fields) if earlier else self.what

    def told(self) -> "tuple[What, Figure]":
        """As `figures_of` gives it. ValueError or TypeError where `what` is none."""
        from wirespeed.compare.estimate import Figure
        from wirespeed.model.derived_records import What

        fields = tuple((name, value) for name, value in json.loads(self.what))
        what = What(self.kind, fields)  # type: ignore[arg-type]
        return what, Figure(
            log=self.log_s,
            within=self.within,
            busbw=self.busbw,
            samples=self.samples,
            wrong=self.wrong,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One line of a run's verdict."""

    run: str
    """As in a run's row."""
    started: str
    """When the run started."""
    number: int
    """Its place in the verdict, from 0."""
    id: str
    """`COL-001` and the like."""
    status: str
    """`pass`, `warn`, `fail` or `not_checked`."""
    title: str
    """One sentence: what is so."""
    subject_kind: str
    """`rank`, `node`, `link`, `rail` or `job`."""
    subject: str
    """Its name, such as `rank 3` or `node-a -> node-b`."""
    host: str
    """The node that it is about, as far as it is about one; of a link where it begins, of a rail of one
    node that node."""
    peer: str
    """Of a link the node where it ends; else empty."""
    category: str
    """Of `diagnose`: the kind of trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node in one run."""

    run: str
    """As in a run's row."""
    started: str
    """When the run started."""
    host: str
    """Its host name."""
    machine: str
    """Another one is another machine, or installation, under that name; empty: not known."""
    boot: str
    """The kernel's boot id: another one means that it was started again; empty: not known."""
    command: str
    """The run's verb."""
    verdict: str
    """The run's."""
    status: str
    """The worst status of the findings about this node or its ranks; empty where there are none."""
    failed: str
    """Ids of the failed findings about this node, its ranks or its links, each once, with commas between
    them."""
    warned: str
    """Ids of the warnings about them, in the same form."""
    role: str
    """How it took part: `alone`, or `one of N` nodes."""
    ranks: int
    """Ranks that it ran."""
    gpus: int
    """GPUs that were seen."""
    gpu: str
    """Their products, each once, with commas between them."""
    driver: str
    """Version of the GPUs' driver."""
    cuda: str
    """Version of CUDA."""
    nccl: str
    """Version of NCCL."""
    torch: str
    """Version of PyTorch."""
    kernel: str
    """Version of the kernel."""
    os: str
    """Name of the system."""
    ecc_uncorrected: int
    """ECC errors that could not be corrected, of all its GPUs, since their driver was loaded."""
    xids: str
    """Numbers of the Xids in its kernel's log, each once, with commas between them."""
    zone: str
    """Where it stands, as far as a cloud or a label tells."""
    instance: str
    """The cloud's type of machine."""


class NodeMark(NamedTuple):
    """Of a node's row what changes its state, for all nodes at once."""

    host: str
    run: str
    started: str
    command: str
    verdict: str
    failed: str
    warned: str
    role: str
    boot: str
    machine: str


class RunMark(NamedTuple):
    """Of a run's row what changes the state of its nodes, for many runs at once."""

    run: str
    command: str
    backend: str
    judged: str
    unjudged: str
    nodes_good: bool


class Rows(NamedTuple):
    """Everything of one run."""

    run: RunRow
    figures: tuple[FigureRow, ...] = ()
    findings: tuple[FindingRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()


def rows_of(run: "Run", name: str) -> Rows:
    """The rows of a run. name: of its folder."""
    line = _line(run, name)
    hosts = {f"rank {rank}": node.host for node in run.world.nodes for rank in node.ranks}
    real = None if run.simulation or line.injected else hosts
    findings = tuple(_finding(line, n, one, real) for n, one in enumerate(run.findings))
    if real is not None:
        judged, unjudged = _judged(findings, {node.host for node in run.world.nodes})
        good = _nodes_good(run, line)
        line = replace(line, judged=judged, unjudged=unjudged, nodes_good=good)
    nodes = {node.host: _node(line, node, findings) for node in run.world.nodes}
    return Rows(line, tuple(_figures(line, run)), findings, tuple(nodes.values()))


def header_rows(run: "Run", name: str) -> Rows:
    """Of a run that goes on: what it is, and its nodes."""
    line = _line(run, name)
    return Rows(line, nodes=tuple(_node(line, node, ()) for node in run.world.nodes))


def damaged_row(name: str, why: str) -> Rows:
    """What is left of a run that cannot be read; `why` may hold a path that is no UTF-8."""
    why = why.encode("utf-8", "replace").decode()
    return Rows(RunRow(run=name, id=id_in(name), finished=False, damaged=why))


def id_in(name: str) -> str:
    """The id in the name of a run folder."""
    return name.rpartition("-")[2]


def order_of(row: RunRow) -> tuple[str, str, str]:
    """Sorts by start: the folder's name tells the second, the run within it the millisecond."""
    return row.run[:STAMP_LENGTH], row.started, row.run


def _line(run: "Run", name: str) -> RunRow:
    by_status = {
        status: [one.title for one in run.findings if one.status == status]
        for status in ("fail", "warn")
    }
    told = [run.world.told.gpu] if run.world.told else []
    return RunRow(
        run=name,
        id=id_in(name),
        command=run.command,
        started=run.started,
        seconds=run.seconds,
        verdict=run.verdict,
        exit_code=run.exit_code,
        world_size=_whole(run.world.size),
        nodes=_whole(run.world.node_count),
        backend=run.world.backend,
        launcher=run.world.launcher,
        job=_job(run.config),
        gpu=_once([*(name for node in run.world.nodes for name in _products(node)), *told]),
        wirespeed=run.versions.get("wirespeed", ""),
        detail=run.verdict_detail,
        measurements=sum(len(one) for one in _measured(run)),
        failed=len(by_status["fail"]),
        warned=len(by_status["warn"]),
        headline=next(iter(by_status["fail"] + by_status["warn"]), ""),
        injected=bool(run.config.get("inject")),
        finished=not run.unfinished and not any(one.id == "RUN-001" for one in run.findings),
    )


def _figures(line: RunRow, run: "Run") -> Iterator[FigureRow]:
    from wirespeed.compare.figures import figures_of

    for number, (what, figure) in enumerate(figures_of(run).items()):
        told = dict(what.fields)
        yield FigureRow(
            run=line.run,
            started=line.started,
            number=number,
            kind=what.kind,
            name=what.name,
            what=json.dumps(what.fields),
            backend=line.backend,
            nodes=line.nodes,
            ranks=_whole(told.get("ranks")),
            size_bytes=_whole(told.get("size_bytes")),
            log_s=figure.log,
            within=figure.within,
            busbw=figure.busbw,
            samples=_whole(figure.samples),
            wrong=figure.wrong,
        )


def _finding(line: RunRow, number: int, one: "Finding", hosts: dict[str, str] | None) -> FindingRow:
    """hosts: by rank; None where no node is to blame: simulated, or of a fault that was acted out."""
    kind, subject = one.subject.kind, one.subject.name
    host = peer = ""
    if hosts is not None and kind in ("node", "rank"):
        host = hosts.get(subject, subject if kind == "node" else "")
    elif hosts is not None and kind == "link":
        host, _, peer = subject.replace(" <-> ", " -> ").partition(" -> ")
        host, peer = hosts.get(host, host), hosts.get(peer, peer)
    elif hosts is not None and kind == "rail":
        node = subject.partition(" of ")[2]
        host = node if node in hosts.values() else ""
    return FindingRow(
        run=line.run,
        started=line.started,
        number=number,
        id=one.id,
        status=one.status,
        title=one.title,
        subject_kind=kind,
        subject=subject,
        host=host,
        peer=peer,
        category=one.category,
    )


def _judged(findings: tuple[FindingRow, ...], hosts: Collection[str]) -> tuple[str, str]:
    """(ids that judged each node which they do not name, ids that left something unjudged)."""
    judged, unjudged = set[str](), set[str]()
    for one in findings:
        names_node = one.host in hosts or one.peer in hosts
        if one.status == "pass":
            all_nodes = not names_node or len(hosts) == 1
        else:  # a failure that names nobody may be anybody's
            all_nodes = names_node and one.status in ("fail", "warn")
        (judged if all_nodes else unjudged).add(one.id)
    return _once(sorted(judged - unjudged)), _once(sorted(unjudged))


def _nodes_good(run: "Run", line: RunRow) -> bool:
    whole = run.command in ("locate", "gate") or (
        run.command == "check" and not run.config.get("only")
    )
    return whole and line.finished and run.verdict in _GOOD_WORDS


_WORST = ("fail", "warn", "not_checked", "pass")


def _node(line: RunRow, node: "NodeFacts", findings: tuple[FindingRow, ...]) -> NodeRow:
    facts = node.facts
    about = [one for one in findings if node.host in (one.host, one.peer)]
    statuses = {one.status for one in about}
    return NodeRow(
        run=line.run,
        started=line.started,
        host=node.host,
        machine=facts.machine_id or facts.placement_physical_host or "",
        boot=facts.machine_boot or "",
        command=line.command,
        verdict=line.verdict,
        status=next((status for status in _WORST if status in statuses), ""),
        failed=_once(sorted(one.id for one in about if one.status == "fail")),
        warned=_once(sorted(one.id for one in about if one.status == "warn")),
        role="alone" if line.nodes <= 1 else f"one of {line.nodes}",
        ranks=len(node.ranks),
        gpus=len(node.gpus),
        gpu=_once(_products(node)),
        driver=facts.gpu_driver or "",
        cuda=facts.cuda or "",
        nccl=facts.nccl or "",
        torch=facts.torch or "",
        kernel=facts.kernel or "",
        os=facts.os or "",
        ecc_uncorrected=_whole(sum(_whole(gpu.get("ecc_uncorrected")) for gpu in node.gpus)),
        xids=_once(str(one["code"]) for one in facts.gpu_xids or () if one.get("kind") == "Xid"),
        zone=facts.placement_zone or "",
        instance=facts.placement_instance_type or "",
    )


def _job(config: Mapping[str, Any]) -> str:
    words = config.get("command", config.get("paths", [config.get("node", "")]))
    return " ".join(map(str, words))[:_MOST_WORDS] if isinstance(words, (list, tuple)) else ""


def _products(node: "NodeFacts") -> list[str]:
    return [_text(gpu.get("name")) for gpu in node.gpus]


def _measured(run: "Run") -> Iterator[Sized]:
    yield from (run.measurements, run.figures)
    if run.compute is not None:
        yield [one for one in run.compute.rates if not one.reason]
    if run.storage is not None:
        yield run.storage.figures


def _once(names: Any) -> str:
    return ",".join(dict.fromkeys(name for name in names if name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    """0 for what is no whole number; what no column could hold becomes the largest that it can."""
    whole = value if isinstance(value, int) else 0
    return max(min(whole, _MOST), -_MOST)
