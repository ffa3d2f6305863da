"""Where a value comes from: flag > WIRESPEED_* environment > wirespeed.yaml > default.

A wirespeed.yaml that merely lies in the working directory may have been put there by somebody else.
What chooses what is run, or where (programs, modules, hosts, files, what is removed), holds only from
one that is the user's, that nobody else can write to, and that was confirmed as it is now by
`wirespeed config trust`. A file that `--config` or WIRESPEED_CONFIG names is the user's word.
"""

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import argument, command, group
from wirespeed.errors import InputError, UsageError

if TYPE_CHECKING:
    from wirespeed.runs.named_files import NamedFiles


CONFIG_FILE = "wirespeed.yaml"

_SPELLED = {"with": "with_", "x": "pass_"}
"""Words of Python."""
_PLAIN = {parameter: key for key, parameter in _SPELLED.items()}

_ORIGINS = {
    click.core.ParameterSource.COMMANDLINE: "flag",
    click.core.ParameterSource.ENVIRONMENT: "environment",
    click.core.ParameterSource.DEFAULT_MAP: CONFIG_FILE,
    click.core.ParameterSource.DEFAULT: "default",
}
_ACTS = {"claims", "delete", "force", "no_preflight", "on", "recreate", "serve", "yes"}
"""Flags and choices that say more than how something is measured and shown."""
_TELLS = {
    *("allow", "baseline", "bucket_mb", "budget", "checkpoint_every", "dtypes", "explain"),
    *("fail_on", "for_", "gpu", "groups", "improve", "inject", "max_bytes", "min_bytes", "nics"),
    *("nodes", "noise", "only", "op", "ops", "output", "ranks", "scaling", "since", "sizes"),
    *("step_bytes", "strategy"),
}
"""Text that chooses only what is measured, compared and shown."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file as it was read."""

    path: Path
    named: bool = False
    """By the user, not found in the working directory."""
    digest: str = ""
    """SHA-256 of its bytes."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options by verb, each as click calls it."""
    store: str = ""
    """Where every run is sent: the one key that belongs to no verb."""

    def refuse_untrusted(self, ctx: click.Context, verb: str) -> None:
        """UsageError where it chooses for this verb what only a trusted file may."""
        keys = [*self._of_all_verbs(), *_choosing(ctx, self.options, [verb])]
        if keys and (why := self._owned_by_others() or self._unconfirmed()):
            words = shlex.quote(str(self.path))
            other = f"cp {words} mine.yaml, read it, and wirespeed --config mine.yaml {verb} …"
            raise UsageError(
                f"{self.path}: `{keys[0]}` chooses what is run, or where, and this file {why}",
                expected="a file of yours that others cannot write to, read and confirmed once",
                next=other if self._owned_by_others() else f"wirespeed config trust {words}",
            )

    def refuse_wrong(self, ctx: click.Context, verb: str) -> None:
        """InputError for keys or a list where an option of this verb has a value."""
        for key, one, value in _given(ctx, self.options, [verb]):
            several = getattr(one, "multiple", False) or one.nargs != 1
            words = value if several and isinstance(value, list) else [value]
            if not all(isinstance(word, str) for word in words):
                raise InputError(
                    f"{self.path}: `{key}` holds {'a list' if isinstance(value, list) else 'keys'}",
                    expected="a list of words" if several else "one value; several as `A,B`",
                )

    def trust(self, ctx: click.Context) -> list[str]:
        """Confirm the file as it is now; the keys that count from now on."""
        if why := self._owned_by_others():
            raise UsageError(
                f"{self.path} {why}",
                expected="a file of yours that others cannot write to",
                next=f"chmod go-w {shlex.quote(str(self.path))}, if it is yours",
            )
        _trusted().write(_name(self.path), self._record())
        return [*self._of_all_verbs(), *_choosing(ctx, self.options, self.options)]

    def _of_all_verbs(self) -> list[str]:
        return ["store"] if self.store else []

    def _owned_by_others(self) -> str:
        """Why somebody else may have written it; nothing where nobody else can."""
        from wirespeed.runs.place import is_ours

        about = self.path.stat()
        if not is_ours(about.st_uid):
            return f"belongs to another user (id {about.st_uid})"
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"can be written by other users ({stat.filemode(about.st_mode)})"
        return ""

    def _unconfirmed(self) -> str:
        if self.named:
            return ""
        try:
            known = _trusted().read(_name(self.path))
        except UsageError:
            return "was found in the working directory and not confirmed by you"
        return "" if known == self._record() else "has changed since you confirmed it"

    def _record(self) -> str:
        return json.dumps({"file": str(self.path.resolve()), "sha256": self.digest}) + "\n"


def read_config(verbs: Collection[str], named: str | None = None) -> ConfigFile:
    """wirespeed.yaml of this folder, or the file named; InputError if it is no such file."""
    path = Path(named or CONFIG_FILE)
    if not named and not os.path.lexists(path):
        return ConfigFile(path)
    from wirespeed.node.reading import read_whole
    from wirespeed.yaml_tree import MOST_BYTES, parse

    try:
        data = read_whole(path, MOST_BYTES)
        tree = parse(data.decode())
    except (UnicodeDecodeError, OSError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {why}", expected="a YAML file") from error
    if tree.complaints:
        first = min(tree.complaints, key=lambda one: one.mark)
        raise InputError(f"{path}:{first.mark.line}: {first.saw}", expected=first.expected)
    digest = hashlib.sha256(data).hexdigest()
    options, store = tree.data, ""
    if isinstance(options, dict):
        store = options.pop("store", None) or ""
    if not isinstance(store, str):
        raise InputError(f"{path}: `store` holds {store!r}", expected="the address of a store")
    return ConfigFile(path, named is not None, digest, _by_verb(path, options, verbs), store)


def _by_verb(path: Path, data: Any, verbs: Collection[str]) -> dict[str, Any]:
    shape = "verbs with their options, such as `check: {level: quick}`"
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(f"{path} holds a {type(data).__name__}", expected=shape)
    for verb, values in data.items():
        if verb not in verbs:
            raise InputError(f"{path}: there is no verb {verb!r}", expected=", ".join(verbs))
        if not isinstance(values, dict):
            raise InputError(f"{path}: {verb!r} holds {values!r}", expected=shape)
    return {verb: _options(values) for verb, values in data.items()}


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    """As click calls them, which the file spells as the command line does; verbs below as they are.

    A key without a value says nothing: its default holds.
    """
    return {
        key if isinstance(value, dict) else _parameter(key): _options(value)
        if isinstance(value, dict)
        else value
        for key, value in values.items()
        if value is not None
    }


def _parameter(key: str) -> str:
    return _SPELLED.get(key, key).replace("-", "_")


def _given(
    ctx: click.Context, options: Mapping[str, Any], verbs: Collection[str]
) -> Iterator[tuple[str, click.Parameter, Any]]:
    """What the file gives these verbs: key as the file has it, parameter, value."""
    for verb in verbs:
        group, values = ctx.command, options.get(verb)
        command = group.get_command(ctx, verb) if isinstance(group, click.Group) else None
        if command is None or not isinstance(values, dict):
            continue
        for one in command.params:
            if one.name in values:
                yield f"{verb}: {_PLAIN.get(one.name, one.name)}", one, values[one.name]
        below = click.Context(command, parent=ctx, info_name=verb)
        for key, one, value in _given(below, values, values):
            yield f"{verb}: {key}", one, value


def _choosing(
    ctx: click.Context, options: Mapping[str, Any], verbs: Collection[str]
) -> Iterator[str]:
    """Keys of these verbs, as the file has them, that only a trusted file may set."""
    return (key for key, one, value in _given(ctx, options, verbs) if _chooses(one, value))


def _chooses(one: click.Parameter, value: Any) -> bool:
    kind, name = getattr(one.type, "each", one.type), str(one.name)
    if name == "model":
        return ":" in str(value)
    measured = isinstance(kind, (click.Choice, *map(type, (click.INT, click.FLOAT, click.BOOL))))
    names_a_file = isinstance(one, click.Option) and one.metavar == "FILE"
    return name in _ACTS or names_a_file or not (measured or name in _TELLS)


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


# The command that a finding proposes, with the options of the one that was typed.
#
# `next: wirespeed train --bucket-mb 0.6,25` of `wirespeed train --ranks 2 --model small` is of use only
# with that model on those ranks. The same verb keeps every option that it does not set anew; another
# verb keeps those that say where ranks run. How the result was shown, and faults acted out, are left
# out.

_OUTPUT = {
    "output",
    "html",
    "trace",
    "quiet",
    "verbose",
    "color",
    "print_config",
    "inject",
    "resume",
}
_WORLD = {"ranks", "backend", "engine"}
_MEASURING = ("check", "bench", "locate", "train")
_WHOLE = {"--explain", "--list", "--resume", "…"}
"""Such a command is to be taken as it stands."""


def with_typed(ctx: click.Context) -> Callable[[str], str]:
    """What completes the commands of findings; others, and sentences, stay as they are."""
    from wirespeed.cli.run_options import NAMES
    from wirespeed.node.redact import TAKEN_OUT, redact_words

    given = [one for one in ctx.command.params if _typed(ctx, one)]

    def again(command: str) -> str:
        words = command.split()
        if words[:1] != ["wirespeed"] or len(words) < 2 or words[1] not in _MEASURING:
            return command
        if _WHOLE & set(words) or any(";" in word for word in words):
            return command
        set_anew = {word.split("=")[0] for word in words}
        kept = [
            text
            for one in given
            if (words[1] == ctx.info_name or str(one.name) in _WORLD | set(NAMES))
            and not set_anew & {*one.opts, *one.secondary_opts}
            for text in _written(one, ctx.params[str(one.name)])
        ]
        told = redact_words(kept)
        note = "" if told == kept else TAKEN_OUT
        return " ".join([command, *map(shlex.quote, told)]) + note

    return again


def command_of(verb: str, config: Mapping[str, Any]) -> str:
    """Return the command with the options that differ from their defaults in a stored run.

    Of a verb that measures; what chooses only how a run is shown is left out, and so are faults.
    """
    from wirespeed.node.redact import TAKEN_OUT

    command: click.Command = getattr(import_module(f"wirespeed.cli.{verb}"), verb)
    ctx = click.Context(command, info_name=verb)
    arguments: list[str] = []
    options: list[str] = []
    for one in command.params:
        value, name = config.get(str(one.name)), str(one.name)
        usual = one.get_default(ctx)
        if value in (None, [], ()) or value == (list(usual) if isinstance(usual, tuple) else usual):
            continue
        if not isinstance(one, click.Option):
            arguments += value if isinstance(value, list) else [str(value)]
        elif name not in _OUTPUT:
            options += _written(one, value)
    words = [*arguments, *options]
    note = TAKEN_OUT if any("***" in word for word in words) else ""
    return " ".join(["wirespeed", verb, *map(shlex.quote, words)]) + note


def measures(verb: str) -> bool:
    """Return whether a run of this verb can be made again by `command_of`."""
    return verb in _MEASURING


def _typed(ctx: click.Context, one: click.Parameter) -> bool:
    """Arguments are named by the finding itself."""
    name = str(one.name)
    if not isinstance(one, click.Option) or name in _OUTPUT or name not in ctx.params:
        return False
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _written(one: click.Parameter, value: Any) -> Iterator[str]:
    name = max(one.opts, key=len)
    if isinstance(value, bool):
        yield name if value else max(one.secondary_opts, key=len, default=name)
        return
    for each in value if isinstance(value, (tuple, list)) else (value,):
        yield name
        yield f"{each:g}" if isinstance(each, float) else str(each)


# What the user has confirmed: a file of the home for each.


def _trusted() -> "NamedFiles":
    from wirespeed.runs.named_files import NamedFiles

    return NamedFiles(
        folder="trusted",
        suffix=".json",
        what="a trusted file",
        missing=lambda name, others: UsageError("it is not trusted"),
        again="wirespeed config trust",
    )


def _name(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()


_FILE = argument("file [FILE]", default=CONFIG_FILE, required=False)


@group()
def config() -> None:
    """Whether a wirespeed.yaml that is found in a folder may choose what is run: trust, untrust.

    Numbers and formats hold from any file. Programs, modules, hosts, files and what removes something
    hold only from one that is yours, that others cannot write to, and that you have confirmed; once it
    is changed it needs that again.

    \f
    Examples:
      wirespeed config trust                 the wirespeed.yaml of this folder, once you have read it
      wirespeed config untrust
      wirespeed --config nightly.yaml check  a file that you name needs no confirmation
    """


@command(of=config)
@_FILE
@click.pass_context
def trust(ctx: click.Context, file: str) -> None:
    """Confirm this file as it is now."""
    root = ctx.find_root()
    group = root.command
    verbs = group.list_commands(root) if isinstance(group, click.Group) else []
    found = read_config(verbs, file)
    keys = found.trust(root)
    chosen = f"; it chooses {', '.join(keys)}" if keys else ""
    click.echo(f"trusted as it is now: {found.path.resolve()}{chosen}")


@command(of=config)
@_FILE
def untrust(file: str) -> None:
    """Take the confirmation back; the file itself stays."""
    try:
        _trusted().remove(_name(Path(file)))
    except UsageError:
        raise UsageError(f"{file} is not trusted", expected="a file that was confirmed") from None
    click.echo(f"no longer trusted: {Path(file).resolve()}")
