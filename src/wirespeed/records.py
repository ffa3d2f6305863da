"""The vocabulary: what a run is made of, as frozen dataclasses.

Inside, times are seconds and sizes are bytes. Where a figure leaves as JSON its name carries the
unit (`time_us`, `busbw_GBps`); `records_json.py` does that in one place. A record knows nothing of
how it is measured or shown.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from wirespeed.records_lasting import Goodput, Soak
from wirespeed.records_reference import ReferenceFigure
from wirespeed.records_settings import Setting
from wirespeed.records_training import LoadFigures, Training

__all__ = [
    "SCHEMA",
    "Choice",
    "Finding",
    "Located",
    "LogVerdict",
    "Measurement",
    "NodeFacts",
    "NodeVerdict",
    "PairFigures",
    "Run",
    "SimulatedPart",
    "Simulation",
    "Status",
    "StopReason",
    "Subject",
    "TimeStats",
    "Timing",
    "ToldShape",
    "Verdict",
    "Verification",
    "World",
    "WrongData",
]

SCHEMA = "wirespeed.run/1"

Status = Literal["pass", "warn", "fail", "not_checked"]
NodeVerdict = Literal["READY", "NOT READY", "UNKNOWN"]
LogVerdict = Literal["CAUSE NAMED", "SYMPTOMS ONLY", "NOTHING KNOWN", "GOOD END SHOWN"]
"""What `diagnose` says; a log is never READY."""
Verdict = NodeVerdict | LogVerdict
SubjectKind = Literal["rank", "node", "link", "rail", "job"]


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
    title: str
    """One sentence: what is so."""
    subject: Subject = Subject("job", "job")
    saw: str = ""
    expected: str = ""
    """What should have been seen, and from where that is known."""
    because: str = ""
    """The cause; for `not_checked` the reason."""
    costs: str = ""
    fix: str = ""
    next: str = ""
    """The command to run next."""
    evidence: tuple[str, ...] = ()
    """`file:line`, figures, stacks."""
    category: str = ""
    """Of `diagnose`: the kind of trouble, such as `shm-too-small`; empty elsewhere."""
    confidence: str = ""
    """Of `diagnose`: `certain`, `likely` or `cannot tell`; empty where figures tell it."""
    references: tuple[ReferenceFigure, ...] = ()
    """What a figure was graded against, that which decides first; empty where it was not graded."""
    allowed: str = ""
    """Its status without `--allow`, which named it; empty elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStats:
    """Statistics of the slowest rank's time over the iterations, in seconds."""

    median: float
    mean: float
    """What nccl-tests prints; times the iterations it is the time spent in the operation."""
    low: float
    """Lower end of the 95 % interval of the median (order statistics)."""
    high: float
    """Upper end of that interval."""
    min: float
    p95: float
    p99: float
    max: float


Timing = Literal["each", "batch", "graph"]
StopReason = Literal["precision", "time", "count", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One timed configuration of one operation."""

    op: str
    engine: str
    """`torch`, `deepspeed` or `mpi4py`."""
    dtype: str
    redop: str
    """`sum`, `prod`, `min`, `max`, `avg`; `none` where the operation does not reduce."""
    root: int
    """Rank within the group; -1 where the operation has no root."""
    in_place: bool
    size_bytes: int
    """Bytes as nccl-tests counts them (docs/bandwidth.md)."""
    count: int
    """Elements of the count parameter (per rank for gathering and scattering operations)."""
    ranks: int
    """Ranks of one group."""
    groups: str = "all"
    """How the world was cut: `all`, `nodes`, `rails`, `pairs` or `every-K`; they run side by side."""
    timing: Timing = "each"
    """`each`: barrier, then the call; `batch`: n back to back, one synchronisation; `graph`."""
    blocking: bool = True
    in_flight: int = 1
    """Operations issued before the first is waited for."""
    warmup: int = 0
    iterations: int
    stopped_by: StopReason = "count"
    time: TimeStats
    algbw: float
    """Bytes a second: size over the median time."""
    busbw: float
    """Bytes a second: algbw times the operation's factor; 0 where that has no meaning."""
    wrong: int | None = None
    """Wrong elements over all ranks, from the data check of this configuration; None: not checked."""
    skew: float = 0.0
    """Median over iterations of (slowest rank's time - fastest rank's time), in seconds."""
    last_rank: int = -1
    """Rank that finished last after the common start most often, -1 when not known."""
    last_share: float = 0.0
    """Share of the iterations in which `last_rank` was last."""
    rank_medians: tuple[float, ...] = ()
    """Median time of each global rank, in seconds (empty for worlds above 1024 ranks)."""
    setting: str = ""
    """`Setting.name` of the combination under which it was taken; empty for the default. Where settings
    were compared the samples are the rounds' medians."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongData:
    """What one rank got wrong in one data check."""

    rank: int
    host: str
    wrong: int
    """Elements that differ."""
    elements: int
    """Elements compared on this rank."""
    first_byte: int
    last_byte: int
    """The byte range, within the rank's output buffer, that holds every wrong element."""
    chunk: str
    """The chunk of the layout that the first wrong element lies in, such as `from rank 2`."""
    guess: str
    """`stale`, `shifted`, `swapped chunks`, `wrong root`, `partial sum`, `bit flip`, …"""
    example: str
    """Index, value seen and value expected of the first wrong element."""
    suspect: int = -1
    """Global rank that the guess blames; -1 when it blames none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One data check of one configuration on every rank of every group."""

    op: str
    engine: str
    dtype: str
    redop: str
    root: int
    in_place: bool
    size_bytes: int
    count: int
    ranks: int
    groups: str = "all"
    wrong: int | None
    """Wrong elements over all ranks; None when it could not be checked."""
    elements: int = 0
    """Elements compared over all ranks."""
    reason: str = ""
    """Why it was not checked."""
    errors: tuple[WrongData, ...] = ()
    setting: str = ""
    """As in `Measurement`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What was found on one node. Values that could not be read are absent from the mappings."""

    host: str
    ranks: tuple[int, ...]
    """Global ranks that run here."""
    facts: dict[str, Any]
    """Flat facts that must agree between nodes: `cpu.model`, `kernel`, `torch`, `nccl`, …"""
    gpus: tuple[dict[str, Any], ...] = ()
    nics: tuple[dict[str, Any], ...] = ()
    rdma: tuple[dict[str, Any], ...] = ()
    peers: tuple[dict[str, Any], ...] = ()
    """One mapping a node that this one knocked at (`wirespeed.world.network.probes`)."""
    environment: dict[str, str] = field(default_factory=dict)
    """Allow-listed variables, redacted."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Facts that could not be read, with the reason."""
    counters: dict[str, Any] = field(default_factory=dict)
    """What error counters did during the traffic (`wirespeed.world.counters.snapshot.growth`); empty
    where they were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFigures:
    """What two nodes showed to each other in one round, over one rail."""

    first: str
    second: str
    """Names: hosts, or `rank 3` where ranks were paired."""
    rail: int
    round: int
    latency: float | None
    """Half of a small message's round trip in seconds; None: no answer came."""
    forth: float
    """Bytes a second from the first to the second; 0: nothing came through."""
    back: float
    both: float
    """Sum of both directions at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What `locate` measured, and how much of the fabric it covers."""

    over: str
    """`nodes`, `rails` (same local rank of each node) or `ranks`."""
    nodes: tuple[str, ...]
    rounds: int
    pairs_measured: int
    pairs_possible: int
    stopped: str
    """Why it needed no more rounds."""
    compute: tuple[float, ...]
    """Seconds by node for the same work without traffic; negative: not known."""
    pairs: tuple[PairFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPart:
    """Something that is slow in a simulated fabric, or is said to be."""

    kind: str
    """`node`, `direction`, `rail`, `nic`, `uplink`, `link`, `straggler` or `dead`."""
    name: str
    what: str
    """`rate`, `latency` or `time`."""
    factor: float | None
    """How many times slower; None: nothing comes through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated fabric, what was wrong with it, and what the localiser said."""

    nodes: int
    rails: int
    noise: float
    faults: tuple[SimulatedPart, ...]
    named: tuple[SimulatedPart, ...]
    precision: float
    recall: float
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldShape:
    """What was said, or read out of a log, of a world whose nodes told no facts; empty: not told."""

    gpu: str = ""
    """As a driver reports it or a person writes it."""
    gpus_per_node: int = 0
    """Ranks a node."""
    nodes: int = 0
    interconnect: str = ""
    """A key of `reference.figures.INTERCONNECTS`."""
    nics: int = 0
    """Network cards of one node."""
    nic_Gbitps: float = 0.0
    why: str = ""
    """Who told it."""
    guessed: bool = False
    """Whether GPUs a node, and so nodes, are what is usual; then a person may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    size: int
    nodes: tuple[NodeFacts, ...]
    backend: str
    """`gloo`, `nccl`, …"""
    launcher: str
    """`local`, `torchrun`, `openmpi`, `mpich`, `slurm`, `deepspeed`."""
    told: ToldShape | None = None
    """Of an imported run: what completes the facts of its nodes."""

    @property
    def node_count(self) -> int:
        """Nodes that took part, named or not; 0: not known."""
        return max(len(self.nodes), self.told.nodes if self.told else 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """An automatic choice with its reason."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, whole: what `run.json` holds and every view shows."""

    id: str
    command: str
    """The verb: `check`, `bench`, `import`."""
    verdict: Verdict
    exit_code: int
    started: str
    """ISO 8601 in UTC."""
    seconds: float
    world: World
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    findings: tuple[Finding, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    verifications: tuple[Verification, ...] = ()
    located: Located | None = None
    simulation: Simulation | None = None
    training: tuple[Training, ...] = ()
    under_load: tuple[LoadFigures, ...] = ()
    settings: tuple[Setting, ...] = ()
    """Of `bench --env`: the default first."""
    soak: Soak | None = None
    """Of `check -l soak`."""
    goodput: Goodput | None = None
    """Of `train --for`."""
