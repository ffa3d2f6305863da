"""The vocabulary of `bench --shape`: what the job of a large model sends, cut down to this world.

Bytes inside. What its groups take alone are measurements; what they cost each other, `LoadFigures`.
"""

from dataclasses import dataclass
from typing import Literal

from wirespeed.model.field_types import Count, Positive

Parallelism = Literal["tensor", "pipeline", "data", "expert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroup:
    """One kind of group: what its ranks send each other."""

    kind: Parallelism
    """`tensor`, `pipeline`, `data` or `expert`."""
    ops: tuple[str, ...]
    """The operations of one turn, as in a measurement."""
    groups: str
    """How this world is cut into such groups, as in a measurement."""
    ranks: Positive
    """Ranks of one of them here."""
    job_ranks: Positive
    """Ranks of one of them in the job."""
    size_bytes: Count
    """Of one call here, as asked for: a measurement's is rounded down to whole elements."""
    job_size_bytes: Count
    """Of one call in the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The traffic of a job, as it was cut down to the ranks that there were."""

    model: str
    """Name of the model."""
    job_ranks: Positive
    """Ranks of the job."""
    ranks: Positive
    """Ranks of this world."""
    dtype: str
    """Type of all elements."""
    tokens: Positive
    """Tokens of a micro-batch here."""
    job_tokens: Positive
    """Tokens of a micro-batch in the job."""
    width: Positive
    """Elements of a token (the model's d_model)."""
    columns: Positive
    """Of the matrix product that runs beside the traffic: tokens × width times width × columns."""
    job_columns: Positive
    """Of the same product in the job."""
    groups: tuple[ParallelGroup, ...]
    """Those of 2 ranks or more; in the job, too, the others send nothing."""
    lost: tuple[str, ...] = ()
    """Kinds of groups that the job has, and for which there are too few ranks here."""

    @property
    def title(self) -> str:
        """`llama-70b: tensor 8 × pipeline 4 × data 16`, as the job is cut."""
        cuts = " × ".join(f"{one.kind} {one.job_ranks}" for one in self.groups)
        return f"{self.model}: {cuts}"
