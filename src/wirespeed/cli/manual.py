"""Man pages, one a command, from what its help says: `python -m wirespeed.cli.manual share/man/man1`.

The documentation walks the same commands. Walking imports every verb: not for a run.

Nothing of the machine or the day is in a page, so that the files can be compared with what the command
line is now (a test does). The language is man(7); characters beyond ASCII are written as escapes, which
any groff and mandoc reads without being told an encoding.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

CODES = {
    "0": "good",
    "1": "a finding or a regression",
    "2": "wrong usage or configuration",
    "3": "could not measure or tell: UNKNOWN, or another verdict that decides nothing",
    "4": "a bug of wirespeed",
    "5": "nothing ran",
    "130": "interrupted",
}
_VARIABLES = {
    "WIRESPEED_HOME": "Where runs, baselines and own figures are kept.  [default: "
    "$XDG_STATE_HOME/wirespeed, else ~/.local/state/wirespeed]",
    "WIRESPEED_CONFIG": "As `wirespeed --config FILE`: options from this file.",
    "NO_COLOR": "If set, no colors, unless `--color always`.",
}
_FILES = {
    "wirespeed.yaml": "In the working directory: options by verb, such as `check: {level: quick}`. "
    "An option on the command line comes first, then the environment, then this file, then the "
    "default; `--print-config` tells where each value is from. What chooses programs, modules, hosts or "
    "files holds only once the file is confirmed: **wirespeed-config**(1).",
    "$WIRESPEED_HOME/runs/": "A folder for each run: run.json, records.jsonl, logs/.",
    "clusters/NAME.yaml": "Cluster files: **wirespeed-cluster**(1).",
}
_ESCAPES = str.maketrans(
    {
        "\\": r"\(rs",
        "-": r"\-",
        "'": r"\(aq",
        "`": r"\(ga",
        "^": r"\(ha",
        "~": r"\(ti",
        '"': r"\(dq",
    }
)
_EXIT = re.compile(r"Exit codes?: ")
_WORDS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")


@dataclass(frozen=True, slots=True)
class Node:
    """One command and where it stands."""

    path: tuple[str, ...]
    """Its words on the command line, such as ("wirespeed", "cluster", "deploy")."""
    context: click.Context
    """As if it had been called without arguments: nothing is parsed, nothing has run."""
    says: str
    """What it is for, in one line."""
    children: tuple[tuple[str, ...], ...]
    """Paths of its own commands, in the order of its help; () for anything but a group."""

    @property
    def command(self) -> click.Command:
        return self.context.command


def commands(root: click.Command | None = None, name: str = "wirespeed") -> Iterator[Node]:
    """Each command that is not hidden: a group first, then what is in it, in the order of its help."""
    if root is None:
        from wirespeed.cli import _cli

        root = _cli
    yield from _below(click.Context(root, info_name=name, **root.context_settings))


def _below(context: click.Context) -> Iterator[Node]:
    command = context.command
    path = tuple(context.command_path.split())
    listed = _listed(context)
    children = tuple((*path, name) for name, _ in listed)
    yield Node(path, context, command.get_short_help_str(200), children)
    for name, child in listed:
        inner = click.Context(child, info_name=name, parent=context, **child.context_settings)
        yield from _below(inner)


def _listed(context: click.Context) -> list[tuple[str, click.Command]]:
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [(name, child) for name, child in found if child is not None and not child.hidden]


def pages(root: click.Command | None = None) -> dict[str, str]:
    """Texts by file name, such as `wirespeed-cluster-deploy.1`."""
    return {f"{'-'.join(node.path)}.1": page(node) for node in commands(root)}


def write(folder: Path) -> int:
    """Bring the folder's pages up to date, without those of commands that are gone; how many."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in folder.glob("wirespeed*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, "ascii")
    return len(made)


def page(node: Node) -> str:
    """One page, whole."""
    name = "-".join(node.path)
    told = _Told(node.command.epilog or "")
    lines = [
        '.\\" Made by: python -m wirespeed.cli.manual. Change the help of the command instead.',
        f'.TH "{escaped(name.upper())}" "1" "" "wirespeed" "wirespeed manual"',
        ".nr HY 0",  # names of options and commands are not to be cut
        ".nh",
        ".ad l",
        '.SH "NAME"',
        f"{escaped(name)} \\- {prose(node.says.rstrip('.'))}",
        '.SH "SYNOPSIS"',
        _synopsis(node),
        *_section("DESCRIPTION", _description(node, told)),
        *_section("COMMANDS", _children(node)),
        *_section("OPTIONS", _options(node)),
        *_section("EXIT STATUS", _exit_status(told)),
        *_section("ENVIRONMENT", _environment(node)),
        *_section("FILES", _tagged(_FILES) if len(node.path) == 1 else ()),
        *_section("EXAMPLES", told.examples),
        *_section("SEE ALSO", [_see_also(node)]),
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """As it stands, on one line: nothing in it is taken as a request or an escape."""
    plain = "".join(c if c.isprintable() else " " for c in text).translate(_ESCAPES)
    coded = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in plain)
    return f"\\&{coded}" if coded.startswith(".") else coded


def prose(text: str) -> str:
    """Words that groff may break into lines; `code` and **names** are bold."""
    flat = " ".join(text.split())
    parts, end = [], 0
    for match in _WORDS.finditer(flat):
        parts += [escaped(flat[end : match.start()]), f"\\fB{escaped(match[1] or match[2])}\\fR"]
        end = match.end()
    return "".join(parts) + escaped(flat[end:])


def code(lines: Sequence[str]) -> list[str]:
    """Lines that stay as they are, indented."""
    dedented = textwrap.dedent("\n".join(lines)).splitlines()
    return [".PP", ".in +4n", ".EX", *map(escaped, dedented), ".EE", ".in"]


class _Told:
    """What an epilog says, by the section that it belongs to."""

    def __init__(self, epilog: str) -> None:
        self.notes: list[str] = []
        self.examples: list[str] = []
        self.exit: list[str] = []
        for lines in _blocks(epilog):
            self._take(lines)

    def _take(self, lines: list[str]) -> None:
        if any(line.startswith(" ") for line in lines):
            self.examples += _mixed(lines)
            return
        before, *after = _EXIT.split(" ".join(lines), maxsplit=1)
        self.notes += [".PP", prose(before)] if before else []
        self.exit += [prose(after[0][:1].upper() + after[0][1:])] if after else []


def _blocks(text: str) -> Iterator[list[str]]:
    """Paragraphs; the mark with which click is told to leave one alone is not in them."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text.replace("\b", ""))):
        if lines := [line.rstrip() for line in block.splitlines() if line.strip()]:
            yield lines


def _mixed(lines: list[str]) -> list[str]:
    """Indented lines are code, the others are prose; the title `Examples:` is the section's."""
    out: list[str] = []
    while lines:
        is_code = lines[0].startswith(" ")
        count = next((n for n, x in enumerate(lines) if x.startswith(" ") != is_code), len(lines))
        taken, lines = lines[:count], lines[count:]
        if is_code:
            out += code(taken)
        elif taken != ["Examples:"]:
            out += [".PP", prose(" ".join(taken))]
    return out


def _section(title: str, lines: Sequence[str]) -> list[str]:
    first = lines[1:] if lines[:1] == [".PP"] else lines
    return [f'.SH "{title}"', *first] if lines else []


def _synopsis(node: Node) -> str:
    pieces = " ".join(node.command.collect_usage_pieces(node.context))
    return f"\\fB{escaped(' '.join(node.path))}\\fR {escaped(pieces)}"


def _description(node: Node, told: _Told) -> list[str]:
    blocks = _blocks((node.command.help or "").split("\f")[0])
    return [line for lines in blocks for line in (".PP", prose(" ".join(lines)))] + told.notes


def _children(node: Node) -> list[str]:
    return [
        line
        for name, child in _listed(node.context)
        for line in (
            ".TP",
            f"\\fB{escaped('-'.join((*node.path, name)))}\\fR(1)",
            prose(child.get_short_help_str(200)),
        )
    ]


def _options(node: Node) -> list[str]:
    lines = []
    for parameter in node.command.get_params(node.context):
        record = parameter.get_help_record(node.context)
        if record is not None and isinstance(parameter, click.Option):
            names, says = record
            lines += [".TP", _switches(names), prose(says) or r"\&"]
    return lines


def _switches(names: str) -> str:
    """`-l, --level [quick|long]`: the switches bold, what they take in italics."""
    match = re.fullmatch(r"((?:-[^\s,]+(?:, | / )?)+) ?(.*)", names)
    if match is None:
        return f"\\fB{escaped(names)}\\fR"
    taken = escaped(match[2]).replace("|", "|\\:")  # a long choice may go on in the next line
    return f"\\fB{escaped(match[1])}\\fR" + (f" \\fI{taken}\\fR" if taken else "")


def _exit_status(told: _Told) -> list[str]:
    if not told.exit:
        return _tagged(CODES)
    return [*told.exit, ".PP", prose("All codes and what they mean: **wirespeed**(1).")]


def _environment(node: Node) -> list[str]:
    if len(node.path) == 1:
        return _tagged(_VARIABLES)
    if node.context.auto_envvar_prefix is None:
        return []
    example = next(
        word for option in node.command.params for word in option.opts if word[:2] == "--"
    )
    variable = f"WIRESPEED_{example[2:].replace('-', '_').upper()}"
    return [
        prose(
            f"Each option can be set by a variable, such as `{variable}` for `{example}`; "
            "for the others see **wirespeed**(1)."
        )
    ]


def _tagged(items: dict[str, str]) -> list[str]:
    return [
        x for tag, says in items.items() for x in (".TP", f"\\fB{escaped(tag)}\\fR", prose(says))
    ]


def _see_also(node: Node) -> str:
    """The group that it is in, and its neighbours; of a group also its own."""
    *above, _ = node.path
    parent = node.context.parent
    near = [tuple(above)] if above else []
    if parent is not None and isinstance(parent.command, click.Group):
        names = parent.command.list_commands(parent)
        near += [(*above, name) for name in names if (*above, name) != node.path]
    near += node.children
    return ", ".join(f"\\fB{escaped('-'.join(path))}\\fR(1)" for path in near)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "share/man/man1")
    sys.stdout.write(f"{write(target)} pages in {target}\n")
