"""The vocabulary of `predict`: what measured runs say of worlds that nobody has measured yet.

Seconds and bytes inside. Every figure is an `Estimate`: its 95 % interval is that of a *measurement*
to come (its median time), so that it can be proven wrong by measuring.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class WorldSize:
    """Where something would run."""

    nodes: int
    ranks_per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One run that figures were taken from."""

    id: str
    what: str
    """Such as `all_reduce, broadcast: 22 sizes on 3 nodes × 1 rank`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """What was fitted to one collective, and how well it foretells what it was not shown."""

    op: str
    how: str
    """How it was measured: `gloo · torch · float32 · each`."""
    shape: str
    """The algorithm whose terms weigh most, such as `ring`."""
    weight: float
    """Share of the forecast that this shape has; the rest are others that fit about as well."""
    others: tuple[str, ...]
    """Their names, by weight."""
    terms: dict[str, float]
    """What each term costs: seconds for a call or a step, seconds a byte for bytes."""
    error: float
    """Median |log(predicted / measured)| of measurements that were left out of the fit."""
    error_p90: float
    points: int
    sizes: int
    worlds: tuple[WorldSize, ...]
    smallest: int
    largest: int
    """Bytes."""
    iterations: int
    """Timed iterations behind all points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """One collective of one size on one world."""

    op: str
    world: WorldSize
    size_bytes: int
    time: Estimate
    busbw: Estimate
    """Bytes a second."""
    measured: float | None = None
    """Median seconds, where just this was measured."""
    points: int
    """Measurements behind it."""
    beyond: str = ""
    """How far it lies beyond what was measured, such as `4 × the nodes`; empty: within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One training step of one strategy."""

    world: WorldSize
    strategy: str
    bucket_mb: float | None
    step: Estimate
    efficiency: Estimate
    """The step without synchronisation over this one: 1 where communication costs nothing."""
    first: float
    """Share of the forecasts in which it is the quickest on this world."""
    samples: int
    """Measurements behind it: points of the collective and rounds of the training run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestStep:
    """The strategy to choose on one world."""

    world: WorldSize
    strategy: str
    bucket_mb: float | None
    settled: bool
    """Quickest in at least 95 % of the forecasts."""
    rivals: tuple[str, ...] = ()
    """What else may be quickest, by how often it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Up to where a strategy's efficiency stays above a bound."""

    strategy: str
    bucket_mb: float | None
    bound: float
    """0.8 or 0.5."""
    nodes: int | None
    """The first number of nodes looked at where it is lower; None: nowhere up to `looked`."""
    low: int | None
    """The first where it may already be lower (the interval reaches below the bound)."""
    high: int | None
    """The first where it surely is lower (the whole interval lies below)."""
    looked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a named improvement would bring."""

    name: str
    what: str
    """`all_reduce 64 MiB` or `step, bucketed 25 MB`."""
    world: WorldSize
    before: Estimate
    after: Estimate
    ratio: Estimate
    """Before over after, from the same forecasts: 2 means twice as fast."""
    assumes: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was asked for and is not predicted."""

    what: str
    because: str
    helps: str
    """The runs that would make it predictable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Everything that `predict` found."""

    sources: tuple[Source, ...]
    models: tuple[FittedModel, ...]
    collectives: tuple[CollectiveTime, ...] = ()
    steps: tuple[StepTime, ...] = ()
    best: tuple[BestStep, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    gains: tuple[Gain, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out of the fit and why; what the step model assumes."""
