"""Several worlds in the place of one: a grid of sizes, or settings that are compared (`--env`)."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from wirespeed.checks.combinations import usual_rounds
from wirespeed.cli.run_options import RunOptions
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.bench_records import GridPoint
from wirespeed.node import limits
from wirespeed.node.identity import detect
from wirespeed.node.redact import is_secret, redact_value
from wirespeed.plan import Plan
from wirespeed.session.grids import GridWorld
from wirespeed.session.local import local_backend
from wirespeed.session.settings import FINALISTS, Comparison, combinations_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(
    r"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|WIRESPEED_\w*"
)
"""What tells a rank its place: with another value it is another world, or none."""
_UNSET = "unset"


def grid_of(
    options: RunOptions, plan_for: Callable[[GridPoint], Plan], batches: Sequence[int] = ()
) -> list[GridWorld]:
    """Every combination in the order asked for; empty where nothing has several values.

    plan_for: may raise UsageError for a point that makes no sense, whose rows then say why.
    UsageError where none does.
    """
    if not options.grid and len(batches) < 2:
        return []
    _refuse_grid_elsewhere(options)
    ranks = options.grid.get("ranks") or (
        int(limits.choose_ranks(options.ranks, options.backend).value),
    )
    points = [
        GridPoint(ranks=size, backend=backend, batch=batch)
        for backend, size, batch in product(
            options.grid.get("backend", (options.backend,)),
            ranks,
            batches or (0,),
        )
    ]
    worlds = [_world(point, plan_for) for point in points]
    errors = [error for _, error in worlds if error is not None]
    if len(errors) == len(worlds):
        raise errors[0]
    return [world for world, _ in worlds]


def _refuse_grid_elsewhere(options: RunOptions) -> None:
    """UsageError where somebody else has decided how many ranks there are."""
    if options.where is None and detect(os.environ) is None:
        return
    raise UsageError(
        "a grid starts worlds of several sizes, on this machine only",
        expected="one value of --ranks, --backend and --batch with --on and under a launcher; `train "
        "--scaling 1,2,4` uses parts of one world",
        next=_with_single_values(options),
    )


def _with_single_values(options: RunOptions) -> str:
    """Return the command that was typed, with the first value of each option that has several."""
    first = [f"--{name} {values[0]}" for name, values in options.grid.items()]
    from wirespeed.typed_command import TYPED

    return f"{TYPED:{' '.join(first) or 'without --batch'}}"


def _world(
    point: GridPoint, plan_for: Callable[[GridPoint], Plan]
) -> tuple[GridWorld, UsageError | None]:
    try:
        _refuse_impossible(point)
        plan = plan_for(point)
    except UsageError as error:
        return GridWorld(point=replace(point, reason=error.saw)), error
    except CannotMeasure as error:
        return GridWorld(point=replace(point, reason=error.saw)), None
    backend = local_backend(point.ranks, point.backend)
    return GridWorld(point=point, plan=plan, backend=backend), None


def _refuse_impossible(point: GridPoint) -> None:
    limits.choose_ranks(point.ranks, point.backend)
    if point.backend == "nccl" and (gpus := limits.count_gpus()) < point.ranks:
        here = f"{gpus or 'no'} GPU{'s' if gpus > 1 else ''} here"
        raise CannotMeasure(f"nccl needs a GPU a rank: {here}", expected="--backend gloo")


def asked_settings(
    variables: Sequence[str],
    rounds: int | None,
    *,
    search: bool,
    plan: Plan,
    passed: Sequence[str],
) -> Comparison | None:
    """What --env asks for; None without it. passed: the words of -x."""
    if not variables:
        for name, given in (("--rounds", rounds), ("--search", search)):
            if given:
                raise UsageError(f"{name} says nothing without --env", expected="--env NAME=V1,V2")
        return None
    if any(step.case.max_fit for step in plan.steps):
        raise UsageError(
            "--max-fit with --env: what fits differs from world to world", expected="-b and -e"
        )
    found = parse_variables(variables)
    for word in passed:
        if word.partition("=")[0] in found:
            raise UsageError(f"-x {word} and --env of the same variable", expected="one of them")
    combinations = combinations_of(found)
    rivals = min(len(combinations) - 1, FINALISTS) if search else len(combinations) - 1
    cases = sum(step.measure is not None for step in plan.steps)
    return Comparison(
        combinations=combinations,
        rounds=rounds or usual_rounds(rivals, cases),
        search=search,
        seed=plan.seed,
    )


def parse_variables(words: Sequence[str]) -> dict[str, list[str | None]]:
    """Values by variable from `NAME=V1,V2`; None is `unset`.

    A backslash takes the next character as it is, so `\\,` is a comma and `\\unset` the word.
    """
    found: dict[str, list[str | None]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        _refuse_name(word, name, equals)
        if name in found:
            raise UsageError(f"--env {name} twice", expected=f"--env {name}=V1,V2 once")
        found[name] = _values(name, text)
    return found


def _refuse_name(word: str, name: str, equals: str) -> None:
    if is_secret(name):
        raise UsageError(
            f"--env {name}: its name speaks of a secret, and compared values are stored and shown",
            expected="a variable that is no secret",
            next=f"{name} in the environment; with --on also -x {name}",
        )
    if not equals or not _NAME.fullmatch(name):
        raise UsageError(f"--env {word!r} names no variable", expected="--env NAME=V1,V2")
    if _OURS.fullmatch(name):
        raise UsageError(
            f"--env {name}: it tells a rank its place in the world",
            expected="a setting of NCCL, gloo, OpenMP, torch, …",
        )


def _values(name: str, text: str) -> list[str | None]:
    if "\0" in text:
        raise UsageError(f"--env {name}: a value holds a NUL", expected="text")
    raw = re.findall(r"(?:\\.|[^,\\]|\\$)+|(?<=,)(?=,|$)|^(?=,)", text, re.DOTALL)
    if len(raw) > 1 and "" in raw:
        raise UsageError(
            f"--env {name}={text}: an empty value among others",
            expected=f"values with commas between; --env {name}= alone sets it to nothing",
        )
    values = [None if one == _UNSET else re.sub(r"\\(.)", r"\1", one) for one in raw or [""]]
    if any(value and redact_value(value) != value for value in values):
        raise UsageError(
            f"--env {name}: a value holds a password or a token, and compared values are stored",
            expected="values without",
        )
    return list(dict.fromkeys(values))
