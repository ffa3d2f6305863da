"""`bench --env`: what the options mean, and where the combinations run."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.model.records import Choice
    from wirespeed.plan import Plan
    from wirespeed.session.settings import Comparison


ROUND_S = 0.5
"""Default of --max-time where settings are compared: certainty comes from the rounds."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(
    r"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|WIRESPEED_\w*"
)
"""What tells a rank its place: with another value it is another world, or none."""
_UNSET = "unset"
_MOST_ROUNDS = 1000

_OPTIONS = (
    click.option(
        "--env",
        multiple=True,
        metavar="NAME=V1,V2",
        help="Compare these values of an environment variable with its being unset, every "
        "combination in ranks of its own, in interleaved rounds. `unset` is a value, too; \\, is a "
        "comma within one.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(1, _MOST_ROUNDS),
        metavar="N",
        help="Rounds of --env.  [default: as many as the number of combinations needs, from 9]",
    ),
    click.option(
        "--search",
        is_flag=True,
        help="With many combinations: drop the slower half every few rounds, then compare what is left.",
    ),
)


def settings_options(function: Any) -> Any:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def asked_settings(
    variables: Sequence[str],
    rounds: int | None,
    *,
    search: bool,
    plan: "Plan",
    passed: Sequence[str],
) -> "Comparison | None":
    """What --env asks for; None without it. passed: the words of -x."""
    if not variables:
        for name, given in (("--rounds", rounds), ("--search", search)):
            if given:
                raise UsageError(f"{name} says nothing without --env", expected="--env NAME=V1,V2")
        return None
    from wirespeed.checks.combinations import usual_rounds
    from wirespeed.session.settings import FINALISTS, Comparison, combinations_of

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
    from wirespeed.node.redact import is_secret

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
    from wirespeed.node.redact import redact_value

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


def tell_estimate(asked: "Comparison", plan: "Plan", ranks: int, *, quiet: bool) -> None:
    """On stderr, before the first world starts."""
    from wirespeed.session.settings import estimate

    if not quiet:
        click.echo(f"wirespeed: {estimate(asked, plan, ranks)}", err=True)


def replaced_choices(
    asked: "Comparison | None", environ: Mapping[str, str]
) -> "tuple[Choice, ...]":
    """Compared variables that are set in the environment here, which counts for no combination."""
    from wirespeed.model.records import Choice

    names = asked.combinations[0].variables if asked else ()
    reason = "compared by --env: the value that is set in the environment is not used"
    return tuple(Choice(name, "unset in the default", reason) for name in names if name in environ)


def dry_run_notes(asked: "Comparison | None") -> list[str]:
    """What a dry run leaves to say: how often the same is done, and with what."""
    if asked is None:
        return []
    head = (
        f"the same in {asked.worlds} worlds of ranks, {asked.rounds} rounds; with these variables:"
    )
    return [head, *(f"    {one.name}" for one in asked.combinations)]
