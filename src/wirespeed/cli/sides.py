"""What `compare`, `baseline` and `trend` share: runs by reference, percentages, selections."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirespeed.errors import InputError, UsageError

if TYPE_CHECKING:
    from wirespeed.model.records import Run


_MOST_STORED = 200
"""The newest of the stored runs; reading thousands would take longer than what they add."""


class Percent(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no [float]
    """`5%` or `5`: the share 0.05."""

    name = "percent"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(str(value).strip().removesuffix("%"))
        except ValueError:
            number = 0.0
        if not 0.01 <= number <= 1000:
            self.fail(f"{value!r} is not a percentage from 0.01% to 1000%, such as 5%.", param, ctx)
        return number / 100


PERCENT = Percent()


def load_refs(text: str) -> "tuple[Run, ...]":
    """The runs of one side: references with commas between them. UsageError where one is none."""
    from wirespeed.runs.store import find, load

    # A path may have a comma in its name.
    refs = [text] if Path(text).exists() else [ref for ref in text.split(",") if ref]
    if not refs:
        raise UsageError(
            f"{text!r} names no run",
            expected="ids, the starts of ids, `last`, or paths, with commas between repeats",
            next="wirespeed runs list",
        )
    return tuple(load(find(ref)) for ref in refs)


def stored_runs(like: "Iterable[Run] | None" = None) -> "list[Run]":
    """The newest stored runs that ended; `like`: of the worlds of these, and not these themselves."""
    from wirespeed.runs.store import list_runs, load

    wanted = None if like is None else list(like)
    own = {run.id for run in wanted or ()}
    worlds = {(run.world.backend, run.world.size) for run in wanted or ()}
    found = [
        summary
        for summary in list_runs()
        if summary.finished
        and summary.id not in own
        and (wanted is None or (summary.backend, summary.world_size) in worlds)
    ]
    runs = []
    for summary in found[-_MOST_STORED:]:
        try:
            runs.append(load(Path(summary.path)))
        except InputError:
            continue  # removed or damaged since it was listed
    return runs


def operations(only: Collection[str]) -> tuple[str, ...]:
    """Names given with --only, or as OP: with commas, or several times; UsageError if unknown."""
    from wirespeed.collectives.catalogue import CATALOGUE
    from wirespeed.training.strategies.registry import STRATEGIES

    names = [name for text in only for name in text.split(",") if name]
    for name in names:
        if name not in CATALOGUE and name not in STRATEGIES:
            raise UsageError(
                f"{name!r} is neither an operation nor a strategy",
                expected=", ".join((*CATALOGUE, *STRATEGIES)),
            )
    return tuple(names)
