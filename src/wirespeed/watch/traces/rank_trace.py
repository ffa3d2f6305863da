"""What one rank's trace holds, whatever wrote it."""

from dataclasses import dataclass, field

from wirespeed.watch.calls import Call
from wirespeed.watch.traces.cover import Cover

MOST_CALLS = 300_000
"""Of one rank; later ones are counted and left out."""
MOST_MARKS = 200_000
HIGHEST_RANK = (1 << 17) - 1


@dataclass(slots=True, kw_only=True)
class Mark:
    """A stretch that a trace has a name for, in seconds of its clock."""

    begin_s: float
    end_s: float
    number: int = -1
    """As the name tells it (`ProfilerStep#7`); -1: it does not."""


@dataclass(slots=True, kw_only=True)
class RankTrace:
    """Times are seconds of the trace's own clock; with `zero_s` they are seconds since 1970."""

    source: str
    kind: str
    """`kineto`, `recorder` or `chakra`."""
    rank: int = -1
    """-1: not told."""
    host: str = ""
    world_size: int = 0
    """0: not told."""
    zero_s: float = 0.0
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Global ranks by the group's name."""
    described: dict[str, str] = field(default_factory=dict)
    """What groups are for, by name."""
    calls: list[Call] = field(default_factory=list)
    """By begin, where times are told."""
    more_calls: int = 0
    """That were left out."""
    ungrouped: bool = False
    """Whether calls do not tell which of several groups is theirs."""
    on_gpu: bool = False
    """Whether `calls` are kernels, and `compute` is what else GPUs do."""
    launches_only: bool = False
    """Whether `calls` span no more than the launch of what they are."""
    compute: Cover = field(default_factory=Cover)
    backward: Cover = field(default_factory=Cover)
    loading: Cover = field(default_factory=Cover)
    saving: Cover = field(default_factory=Cover)
    steps: list[Mark] = field(default_factory=list)
    """Annotated steps."""
    optimizers: list[Mark] = field(default_factory=list)
    roots: list[Mark] = field(default_factory=list)
    """Where backward begins: the function of autograd that the trace has first."""
    cut: str = ""
    """How the file breaks off; empty: it is whole."""
    skipped: int = 0
    """Events that cannot be read."""
    bytes: int = 0


def count_of(value: object, default: int) -> int:
    """A number from 0 on that is one."""
    return value if type(value) is int and 0 <= value < 1 << 62 else default


def elements_of(dims: object) -> int:
    """Elements of the first input, or of the tensors of a list that is it; 0: not told."""
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list):
        return 0
    if first and isinstance(first[0], list):
        return min(sum(elements_of([one]) for one in first), 1 << 60)
    total = 1
    for one in first:
        total = min(total * count_of(one, 0), 1 << 60)
    return total
