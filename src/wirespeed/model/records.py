"""The vocabulary: what a run is made of, as frozen dataclasses.

Inside, times are seconds and sizes are bytes. Where a figure leaves as JSON its name carries the
unit (`time_us`, `busbw_GBps`), as its type says (`codec.py`). A record knows nothing of
how it is measured or shown.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from wirespeed.model.bench_records import (
    ENDORSED,
    GridPoint,
    ReferenceFigure,
    Replay,
    Setting,
    Shape,
    ToolFigure,
)
from wirespeed.model.compute_records import Compute
from wirespeed.model.field_types import (
    ALWAYS,
    SPARSE,
    Count,
    ExitCode,
    GBps,
    Index,
    Keys,
    Known,
    Micros,
    NotNegative,
    Positive,
    Seconds,
    Share,
    Text,
)
from wirespeed.model.lasting_records import Goodput, Soak
from wirespeed.model.node_facts import CHECKED_FACTS, Counters, Facts, Gpu, Nic, RdmaPort
from wirespeed.model.storage_records import Storage
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.model.verdicts import NOT_JUDGED, PARTLY_JUDGED, Verdict, with_detail
from wirespeed.model.watch_records import Watched

SCHEMA: Literal["wirespeed.run/1"] = "wirespeed.run/1"

Status = Literal["pass", "warn", "fail", "measured", "not_checked", "not_applicable"]
"""`pass`, `warn` and `fail` are judgements against something that is named. `measured`: there is a
figure, and nothing to judge it by. `not_checked`: it could have been looked at and was not.
`not_applicable`: it cannot exist here. Only `pass` counts as passed."""
UNJUDGED: tuple[Status, ...] = ("measured", "not_checked", "not_applicable")
"""Statuses that are no judgement; their reason is in `because`."""
PairedOver = Literal["nodes", "rails", "ranks"]
SubjectKind = Literal["rank", "node", "link", "rail", "job"]
SimulatedKind = Literal["node", "direction", "rail", "nic", "uplink", "link", "straggler", "dead"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a finding is about."""

    kind: SubjectKind
    """`rank`, `node`, `link`, `rail` or `job` (the whole of it)."""
    name: str
    """`rank 3` for a rank, the host name for a node, `a -> b` for a link, `job` for the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a verdict."""

    id: str
    """`COL-001` and the like; `wirespeed check --explain ID` tells what it means."""
    status: Status
    """Only `pass` counts as passed. `measured`: a figure without anything to judge it by; the reasons of
    `not_checked` and `not_applicable` are in `because`."""
    title: str
    """One sentence: what is so."""
    subject: Annotated[Subject, ALWAYS] = Subject("job", "job")
    """Who it is about."""
    saw: str = ""
    """What was seen, with figures or file:line."""
    expected: str = ""
    """What should have been seen, and from where that is known."""
    because: str = ""
    """The cause; for `measured`, `not_checked` and `not_applicable` the reason."""
    costs: str = ""
    """What it costs."""
    fix: str = ""
    """What to change."""
    next: str = ""
    """The command to run next."""
    evidence: tuple[str, ...] = ()
    """`file:line`, figures, stacks."""
    category: Annotated[str, SPARSE] = ""
    """Of `diagnose`: the kind of trouble, such as `shm-too-small`; empty elsewhere."""
    confidence: Annotated[str, SPARSE] = ""
    """Of `diagnose`: `certain`, `likely`, `possible` (a suggestion) or `cannot tell`; empty where
    figures tell it."""
    references: Annotated[tuple[ReferenceFigure, ...], SPARSE] = ()
    """What a figure was graded against, that which decides first; empty where it was not graded."""
    allowed: Annotated[str, SPARSE] = ""
    """Its status without `--allow`, which named it; empty elsewhere."""

    def __post_init__(self) -> None:
        if not all(one.quantity for one in self.references):
            known = tuple(one for one in self.references if one.quantity)
            object.__setattr__(self, "references", known)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStats:
    """Statistics of the slowest rank's time over the iterations, in seconds."""

    median: NotNegative
    """Median."""
    mean: NotNegative
    """What nccl-tests prints; times the iterations it is the time spent in the operation."""
    low: NotNegative
    """Lower end of the 95 % interval of the median (order statistics). Of fewer than 6 samples there
    is none: then the least."""
    high: NotNegative
    """Upper end of that interval; of fewer than 6 samples the greatest."""
    min: NotNegative
    """Least."""
    p95: NotNegative
    """95th percentile."""
    p99: NotNegative
    """99th percentile."""
    max: NotNegative
    """Greatest."""


CALLS_PER_BATCH = 8
"""Calls in a batch or graph when the count is not fixed; a fixed count is cut into at most this many
batches."""
Timing = Literal["each", "batch", "graph"]
StopReason = Literal["precision", "time", "count", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way to call one operation."""

    op: str
    """`all_reduce`, `reduce_scatter`, … ; the catalogue's name."""
    engine: str
    """Who ran it: `torch`, `deepspeed`, `mpi4py`; `nccl-tests` or `osu` in an import."""
    dtype: str
    """`float32`, `bfloat16`, …"""
    redop: str
    """`sum`, `prod`, `min`, `max`, `avg`; `none` where the operation does not reduce."""
    root: Index
    """Rank within the group; -1 where the operation has no root."""
    in_place: bool
    """Whether input and output share a buffer."""
    size_bytes: Count
    """Bytes as nccl-tests counts them (docs/bandwidth.md)."""
    count: Count
    """Elements of the count parameter (per rank for gathering and scattering operations)."""
    ranks: Count
    """Ranks of one group; 0 where an import does not tell."""
    groups: str = "all"
    """How the world was cut: `all`, `nodes`, `rails`, `pairs`, `every-K`, `of-S`, `of-S-every-K` or
    `ranks-…`; the groups run side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Configuration):
    """One timed configuration of one operation."""

    timing: Timing = "each"
    """`each`: barrier, then the call; `batch`: n back to back, one synchronisation; `graph`: CUDA-
    graph replay."""
    blocking: bool = True
    """Whether each call returned only when its work was done."""
    in_flight: Positive = 1
    """Operations issued before the first is waited for."""
    warmup: Count = 0
    """Iterations before the timed ones."""
    iterations: Count
    """Timed iterations: the number of samples."""
    stopped_by: StopReason = "count"
    """Why it stopped there."""
    time: Micros[TimeStats]
    """Time of one operation."""
    algbw: GBps[NotNegative]
    """size_bytes over the median time."""
    busbw: GBps[NotNegative]
    """algbw times the operation's bus factor; 0 where that has no meaning."""
    wrong: Count | None = None
    """Wrong elements over all ranks, from the data check of this configuration; None: not
    checked."""
    skew: Micros[NotNegative] = 0.0
    """Median over iterations of (slowest rank's time - fastest rank's time)."""
    last_rank: Index = -1
    """Global rank that finished last after the common start most often; -1 when not known."""
    last_share: Share = 0.0
    """Share of the iterations in which `last_rank` was last, 0 to 1."""
    rank_medians: Micros[tuple[NotNegative, ...]] = ()
    """Median time of each global rank; empty for worlds above 1024 ranks."""
    setting: Annotated[str, SPARSE] = ""
    """`Setting.name` of the combination under which it was taken; empty for the default. Where
    settings were compared the samples are the rounds' medians."""
    backend: Annotated[str, SPARSE] = ""
    """Of the point of `grid` that it belongs to; absent in other runs: the world's."""

    @property
    def samples(self) -> int:
        """Number of samples behind `time`, at least: calls, or batches of calls."""
        if self.timing == "each":
            return self.iterations
        if self.stopped_by == "count":
            return min(self.iterations, CALLS_PER_BATCH)
        return self.iterations // CALLS_PER_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongData:
    """What one rank got wrong in one data check."""

    rank: Count
    """Global rank."""
    host: str
    """Its host name."""
    wrong: Count
    """Elements that differ."""
    elements: Count
    """Elements compared on this rank."""
    first_byte: Count
    """Start of the byte range of the rank's output buffer that holds every wrong element."""
    last_byte: Count
    """The byte range, within the rank's output buffer, that holds every wrong element."""
    chunk: str
    """The chunk of the layout that the first wrong element lies in, such as `from rank 2`."""
    guess: str
    """`stale`, `shifted`, `swapped chunks`, `wrong root`, `partial sum`, `bit flip`, …"""
    example: str
    """Index, value seen and value expected of the first wrong element."""
    suspect: Index = -1
    """Global rank that the guess blames; -1 when it blames none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Configuration):
    """One data check of one configuration on every rank of every group."""

    wrong: Count | None
    """Wrong elements over all ranks; null when it could not be checked."""
    elements: Count = 0
    """Elements compared over all ranks."""
    reason: str = ""
    """Why it was not checked."""
    errors: tuple[WrongData, ...] = ()
    """What each rank got wrong."""
    setting: Annotated[str, SPARSE] = ""
    """Name of the compared setting (`settings`) under which it was taken; absent for the default
    and in other runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What was found on one node. Values that could not be read are absent from the mappings."""

    host: str
    """Host name."""
    ranks: tuple[Count, ...]
    """Global ranks that run here."""
    facts: Annotated[Facts, Keys(CHECKED_FACTS)]
    """Flat facts that must agree between nodes: `cpu.model`, `kernel`, `torch`, `nccl`, …"""
    gpus: tuple[Annotated[dict[str, Any], Keys(Gpu)], ...] = ()
    """One object a GPU."""
    nics: tuple[Annotated[dict[str, Any], Keys(Nic)], ...] = ()
    """One object a network interface."""
    rdma: tuple[Annotated[dict[str, Any], Keys(RdmaPort)], ...] = ()
    """One object an RDMA device."""
    peers: tuple[dict[str, Any], ...] = ()
    """One object a node that this one knocked at: how it answered, packet size, clock."""
    environment: dict[str, str] = field(default_factory=dict)
    """Allow-listed environment variables, redacted."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Facts that could not be read, with the reason."""
    counters: Annotated[dict[str, Any], Keys(Counters), SPARSE] = field(default_factory=dict)
    """What error counters did during the traffic (`wirespeed.node.counters.growth`);
    empty where they were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFigures:
    """What two nodes showed to each other in one round, over one rail."""

    first: str
    """Name of the first node."""
    second: str
    """Names: hosts, or `rank 3` where ranks were paired."""
    rail: Count
    """Local rank that talked, 0 where there is one only."""
    round: Count
    """Which round, from 0."""
    latency: Micros[NotNegative | None]
    """Half of a small message's round trip; null where no answer came."""
    forth: GBps[NotNegative]
    """From the first to the second; 0 where nothing came through."""
    back: GBps[NotNegative]
    """From the second to the first."""
    both: GBps[NotNegative]
    """Sum of both directions at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What `locate` measured, and how much of the fabric it covers."""

    over: PairedOver
    """What was paired: one rank of each node, the same local rank of each node, or each rank."""
    nodes: tuple[str, ...]
    """Names: hosts, or `rank 3` where ranks were paired."""
    rounds: Count
    """Rounds of disjoint pairs that ran at once."""
    pairs_measured: Count
    """Different pairs that were measured."""
    pairs_possible: Count
    """All pairs, n (n - 1) / 2."""
    stopped: str
    """Why no more rounds were needed."""
    compute: Seconds[tuple[float, ...]]
    """Seconds by node for the same work without traffic; negative where not known."""
    pairs: tuple[PairFigures, ...]
    """One entry a pair, round and rail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPart:
    """Something that is slow in a simulated fabric, or is said to be."""

    kind: SimulatedKind
    """`node`, `direction`, `rail`, `nic`, `uplink`, `link`, `straggler` or `dead`."""
    name: str
    """Which one."""
    what: Literal["rate", "latency", "time"]
    """What is worse: the rate, the latency, or the time of the work without traffic."""
    factor: NotNegative | None
    """How many times slower; null where nothing comes through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated fabric, what was wrong with it, and what the localiser said."""

    nodes: Positive
    """Nodes of the fabric."""
    rails: Positive
    """Rails of each node."""
    noise: NotNegative
    """Sigma of the lognormal noise of one reading."""
    faults: tuple[SimulatedPart, ...]
    """What was wrong."""
    named: tuple[SimulatedPart, ...]
    """What the localiser named."""
    precision: Share
    """Share of the named that were wrong indeed; 1 where none was named."""
    recall: Share
    """Share of the faults that were named; 1 where there was none."""
    rounds: Count
    """Rounds of pairs that it took."""
    seconds: NotNegative
    """How long the simulation and the localiser took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldShape:
    """What was said, or read out of a log, of a world whose nodes told no facts; empty: not told."""

    gpu: str = ""
    """As a driver reports it or a person writes it; empty: not told."""
    gpus_per_node: Count = 0
    """Ranks a node; 0: not told."""
    nodes: Count = 0
    """Nodes; 0: not told."""
    interconnect: str = ""
    """`ib`, `roce`, `efa`, `tcp`, … as `reference ask` takes it; empty: not told."""
    nics: Count = 0
    """Network cards of one node; 0: not told."""
    nic_Gbitps: NotNegative = 0.0
    """Rate of one of them in Gbit/s; 0: not told."""
    why: str = ""
    """Who told it."""
    guessed: bool = False
    """Whether GPUs a node, and so nodes, are what is usual; then a person may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ranks and the nodes they run on."""

    size: Count
    """Ranks; 0 where an import does not tell."""
    nodes: tuple[NodeFacts, ...]
    """The nodes."""
    backend: str
    """`gloo`, `nccl`, …"""
    launcher: str
    """`local`, `torchrun`, `openmpi`, `mpich`, `slurm`, `deepspeed`; the tool in an import."""
    told: Annotated[ToldShape | None, SPARSE] = None
    """Of an import: what completes the facts of its nodes; absent where nothing was told."""

    @property
    def node_count(self) -> int:
        """Nodes that took part, named or not; 0: not known."""
        return max(len(self.nodes), self.told.nodes if self.told else 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """An automatic choice with its reason."""

    name: str
    """What was chosen."""
    value: str
    """What it is."""
    reason: str
    """Why."""


def _is_judged_speed(finding: Finding) -> bool:
    """Return whether a bandwidth was judged against something that somebody endorsed."""
    endorsed = any(reference.kind in ENDORSED for reference in finding.references)
    return endorsed and finding.id.startswith("BW-") and finding.status not in UNJUDGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of wirespeed, whole. Times are microseconds (`_us`) or seconds, bandwidths 10^9 bytes
    a second (`_GBps`), sizes bytes. Readers ignore keys that they do not know."""

    schema: Annotated[Literal["wirespeed.run/1"], ALWAYS] = SCHEMA
    """Name and version of this format."""

    id: Text
    """The run's id: 8 hexadecimal digits."""
    command: str
    """The verb: `check`, `bench`, `import`, …"""
    verdict: Verdict
    """The word with which the run ended: docs/verdicts.md lists them by command."""
    exit_code: ExitCode
    """What the process ends with: 0 good, 1 a finding, 2 usage, 3 could not measure, 4 a bug of
    ours, 5 nothing ran, 130 interrupted."""
    started: str
    """ISO 8601 in UTC."""
    seconds: NotNegative
    """How long the run took, seconds."""
    world: World
    """Who took part."""
    speed_judged: Known[bool] = None
    """Of `check`, `bench` and `train`: whether speed was judged, or only measured."""
    verdict_subject: Annotated[str, SPARSE] = ""
    """What SLOW, HUNG or CULPRIT NAMED is about, such as `rank 2`, `node-2` or `data loading`."""
    checks_listed: Annotated[Count, SPARSE] = 0
    """Of `check --only`: how many checks a full check of this world lists."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of wirespeed, torch, NCCL, …"""
    environment: dict[str, str] = field(default_factory=dict)
    """Allow-listed environment variables, redacted."""
    config: dict[str, Any] = field(default_factory=dict)
    """The settings the run had."""
    choices: tuple[Choice, ...] = ()
    """Automatic choices with their reasons."""
    findings: tuple[Finding, ...] = ()
    """The lines of the verdict."""
    measurements: tuple[Measurement, ...] = ()
    """What was timed."""
    verifications: tuple[Verification, ...] = ()
    """The data checks."""
    figures: Annotated[tuple[ToolFigure, ...], SPARSE] = ()
    """Of an import: what the tool measured beside collectives."""
    located: Annotated[Located | None, SPARSE] = None
    """What `locate` measured."""
    simulation: Annotated[Simulation | None, SPARSE] = None
    """What `locate --simulate` found."""
    training: Annotated[tuple[Training, ...], SPARSE] = ()
    """What `train` measured."""
    under_load: Annotated[tuple[LoadFigures, ...], SPARSE] = ()
    """What `train --load` and `bench --shape` timed alone and side by side."""
    settings: Annotated[tuple[Setting, ...], SPARSE] = ()
    """What `bench --env` found about each combination, the default first."""
    soak: Annotated[Soak | None, SPARSE] = None
    """Of `check -l soak`."""
    goodput: Annotated[Goodput | None, SPARSE] = None
    """What `train --for` made of its time."""
    grid: Annotated[tuple[GridPoint, ...], SPARSE] = ()
    """Of several values of --ranks, --backend or --batch: every combination, in the order asked
    for."""
    replay: Annotated[Replay | None, SPARSE] = None
    """Of `bench --replay`: the collectives of a step of somebody's job, without the job."""
    shape: Annotated[Shape | None, SPARSE] = None
    """Of `bench --shape`: what the job of a large model sends, cut down to this world."""
    compute: Annotated[Compute | None, SPARSE] = None
    """What the devices compute and remember: `check --only compute`, `bench gemm`."""
    storage: Annotated[Storage | None, SPARSE] = None
    """Of `check --data`: a folder that holds data and checkpoints."""
    watched: Annotated[Watched | None, SPARSE] = None
    """Of the user's own job: what `launch --watch` and `watch` saw."""
    unfinished: Annotated[bool, SPARSE] = False
    """Present, and true, only in the header that stands in run.json until the run ends."""

    @property
    def verdict_detail(self) -> str:
        """What stands beside the word: `speed not judged`, `3 of 93`, `rank 2`; often nothing."""
        if self.verdict == "READY" and self.speed_judged is False:
            return PARTLY_JUDGED if any(map(_is_judged_speed, self.findings)) else NOT_JUDGED
        if self.verdict == "PASSED" and self.checks_listed:
            passed = {finding.id for finding in self.findings if finding.status == "pass"}
            return f"{len(passed)} of {self.checks_listed}"
        return self.verdict_subject

    @property
    def verdict_text(self) -> str:
        """The verdict as people read it, such as `READY (speed not judged)`."""
        return with_detail(self.verdict, self.verdict_detail)
