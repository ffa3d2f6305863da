"""The vocabulary of a watched job: the user's own training, seen from inside while it runs.

Seconds inside.
"""

from dataclasses import dataclass, field
from typing import Annotated

from wirespeed.model.field_types import (
    ALWAYS,
    Bytes,
    Count,
    Index,
    Micros,
    Millis,
    NotNegative,
    Positive,
    RoundedMillis,
    Share,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchWindow:
    """Some steps in a row; lists are by rank, and empty in worlds above 1024 ranks."""

    first_step: Count
    """Number of the first step."""
    steps: Positive
    """How many there are."""
    since_s: NotNegative
    """Seconds from the first step that was seen to the begin of this window."""
    step: RoundedMillis[NotNegative]
    """Median over ranks of the mean time of a step."""
    own: RoundedMillis[tuple[float, ...]] = ()
    """Mean time of a step that the rank was not waiting in communication; negative: not known."""
    blocked: RoundedMillis[tuple[float, ...]] = ()
    """Mean time of a step that the rank was waiting in communication; negative: not known."""
    data: RoundedMillis[tuple[float, ...]] = ()
    """Mean time of a step in the data loader; negative: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """From here on steps took another time, of the whole job or because of one rank or node."""

    step: Count
    """First step that differs."""
    low_step: Count
    """Lower end of the 95 % interval of `step`."""
    high_step: Count
    """Upper end of that interval."""
    subject_kind: str = "job"
    """`rank`, `node` or `job`."""
    subject: str = "job"
    """`rank 3`, a host name, or `job`."""
    before: Millis[NotNegative]
    """Median time of a step before it."""
    after: Millis[NotNegative]
    """Median time of a step after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The collectives of one kind that a step has, in the mean over the steps that were sampled."""

    group: str
    """Description and name of the process group."""
    ranks: Count
    """Members of the group; 0: not known."""
    op: str
    """`all_reduce`, … ; the catalogue's name, else the library's."""
    calls: NotNegative
    """Calls a step."""
    bytes_per_step: Bytes[NotNegative]
    """Bytes that one rank handed in."""
    exposed: Micros[NotNegative | None] = None
    """Time of a step that the ranks waited in it with nothing else to do; null: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a step would take less if one thing were otherwise."""

    what: str
    """As a sentence goes on: `rank 2 as quick as the others`."""
    share: Share
    """Of the time of a step."""
    low: Share
    """Lower end of its 95 % interval."""
    high: Share
    """Upper end of that interval."""
    finding: str
    """Id of the finding that tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was seen of the user's own job."""

    ranks: Count
    """Ranks that told something."""
    world_size: Count
    """Ranks of the job, as they know it."""
    hosts: tuple[str, ...]
    """Host by rank; empty text: that rank told nothing."""
    launches: Positive = 1
    """How often the job's ranks started; after a restart of torchrun 2, and so on."""
    steps: Count
    """Steps that were seen."""
    boundary: str = ""
    """What ends a step: `optimizer`, `backward`, `step()` or, of traces, `annotation`."""
    step: Millis[NotNegative] = 0.0
    """Median time of a step."""
    step_low: Millis[NotNegative] = 0.0
    """Lower end of its 95 % interval; of fewer than 6 times the least."""
    step_high: Millis[NotNegative] = 0.0
    """Upper end of that interval; of fewer than 6 times the greatest."""
    exposed: Share = 0.0
    """Share of the time of a step in which ranks wait in communication, median over ranks."""
    exposed_low: Share = 0.0
    """Lower end of its 95 % interval."""
    exposed_high: Share = 0.0
    """Upper end of that interval."""
    parts_ms: Annotated[dict[str, float], ALWAYS] = field(default_factory=dict)
    """Milliseconds of a step, median over ranks, by what the rank did: `data`, `forward`,
    `backward`, `optimizer`, `blocked`, `checkpoint`, `gc`, `other`."""
    windows: tuple[WatchWindow, ...] = ()
    """In order; neighbours are put together beyond 240."""
    changes: tuple[StepChange, ...] = ()
    """In order of steps."""
    traffic: tuple[Traffic, ...] = ()
    """By group and operation; empty: not seen."""
    last_rank: Index = -1
    """Rank that the others waited for most often; -1: nobody stands out."""
    last_share: Share = 0.0
    """Share of the steps in which it was last."""
    gradients: tuple[int, ...] = ()
    """Bytes of each, in the order of the optimizer's parameters; empty: not known."""
    gains: tuple[Gain, ...] = ()
    """What would bring most, the largest first; none of them is counted twice in another."""
    unseen: tuple[str, ...] = ()
    """What could not be seen, and why."""

    @property
    def samples(self) -> int:
        """Number of times behind `step`, at least: short steps are recorded several to a time."""
        return len(self.windows) or self.steps

    @property
    def exposed_known(self) -> bool:
        """Whether an exposed share was seen."""
        return self.exposed_high > 0
