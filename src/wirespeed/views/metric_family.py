"""One Prometheus metric: what it is called and labelled, and how a run gives its samples."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from wirespeed.records import Run

__all__ = ["Family", "Sample", "single"]

Sample = tuple[Mapping[str, object], float]
"""(labels, value)."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, its help, its labels (beside `command`), and how a run gives samples."""

    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Run], Iterable[Sample]]


def single(value: Callable[[Run], float]) -> Callable[[Run], Iterator[Sample]]:
    """A sample without labels of its own."""

    def samples(run: Run) -> Iterator[Sample]:
        yield {}, value(run)

    return samples
