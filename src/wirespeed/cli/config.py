"""Where a value comes from: flag > WIRESPEED_* environment > wirespeed.yaml > default."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from wirespeed.errors import InputError

__all__ = ["print_config", "read_config", "refuse_unknown_keys"]

CONFIG_FILE = "wirespeed.yaml"

_SPELLED: dict[object, str] = {True: "on", "with": "with_", "x": "pass_"}
"""YAML reads `on` as true; the others are words of Python."""
_PLAIN = {parameter: str(key) for key, parameter in _SPELLED.items() if key is not True}

_ORIGINS = {
    click.core.ParameterSource.COMMANDLINE: "flag",
    click.core.ParameterSource.ENVIRONMENT: "environment",
    click.core.ParameterSource.DEFAULT_MAP: CONFIG_FILE,
    click.core.ParameterSource.DEFAULT: "default",
}


def read_config(verbs: Collection[str]) -> dict[str, Any]:
    """The options of wirespeed.yaml in this folder, by verb; InputError if it is not such a file."""
    path = Path(CONFIG_FILE)
    if not path.is_file():
        return {}
    import yaml

    try:
        data = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, RecursionError, ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}", expected="a YAML file") from error
    if data is None:
        return {}
    shape = "verbs with their options, such as `check: {level: quick}`"
    if not isinstance(data, dict):
        raise InputError(f"{path} holds a {type(data).__name__}", expected=shape)
    options: dict[str, Any] = {}
    for verb, values in data.items():
        if verb not in verbs:
            raise InputError(f"{path}: there is no verb {verb!r}", expected=", ".join(verbs))
        if not isinstance(values, dict):
            raise InputError(f"{path}: {verb!r} holds {values!r}", expected=shape)
        options[str(verb)] = {_parameter(key): value for key, value in values.items()}
    return options


def _parameter(key: object) -> str:
    """What click calls the option that the file spells as the command line does."""
    name = _SPELLED.get(key, str(key))
    return name.replace("-", "_")


def refuse_unknown_keys(ctx: click.Context) -> None:
    """InputError for an option in wirespeed.yaml that this verb does not have."""
    names = {str(parameter.name) for parameter in ctx.command.params}
    known = {_PLAIN.get(name, name) for name in names}
    unknown = set(ctx.default_map or ()) - names
    if unknown:
        raise InputError(
            f"{CONFIG_FILE}: {ctx.info_name} has no option {sorted(unknown)[0]!r}",
            expected=", ".join(sorted(known)),
        )


def print_config(ctx: click.Context) -> str:
    """Every option of this verb: its value and where that came from."""
    rows = []
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        if name in ctx.params and name != "print_config":
            origin = _ORIGINS.get(source, "default") if source else "default"
            rows.append((_PLAIN.get(name, name), str(ctx.params[name]), origin))
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{n:<{wide[0]}}  {v:<{wide[1]}}  {o}" for n, v, o in rows)
