"""One page a verb, from click's commands: usage, options with defaults, examples, exit codes."""

import re
from collections.abc import Iterator

import click

from docs_site.help_text import Epilog, body, read_epilog
from docs_site.markdown import code, fenced, prose, text
from wirespeed.cli.manual import Node, commands

__all__ = ["verb_anchors", "verb_pages"]

_DEFAULT = re.compile(r"\s*\[default: ([^\]]+)\]")
"""Of a help text that says by itself what holds without the option."""


def verb_pages(root: click.Command | None = None) -> dict[str, str]:
    """Markdown by page: `verbs/index.md`, then one page a verb with the verbs of a group in it."""
    top, *nodes = commands(root)
    common = read_epilog(top.command.epilog or "").exit_codes
    pages = {"verbs/index.md": _overview(top, nodes, common)}
    for verb in (node for node in nodes if len(node.path) == 2):
        inner = [node for node in nodes if node.path[:2] == verb.path and node is not verb]
        sections = [_section(verb, 1, common), *(_section(one, 2, common) for one in inner)]
        pages[f"verbs/{verb.path[1]}.md"] = "\n".join(sections)
    return pages


def verb_anchors(root: click.Command | None = None) -> dict[str, str]:
    """Page and anchor by command, such as `wirespeed cluster deploy`."""
    _, *nodes = commands(root)
    return {" ".join(node.path): _place(node) for node in nodes}


def _place(node: Node) -> str:
    page = f"verbs/{node.path[1]}.md"
    return page if len(node.path) == 2 else f"{page}#{_anchor(node)}"


def _anchor(node: Node) -> str:
    return "-".join(node.path[2:])


def _overview(top: Node, nodes: list[Node], common: str) -> str:
    verbs = [node for node in nodes if len(node.path) == 2]
    rows = [
        f"| [{code(' '.join(one.path))}]({one.path[1]}.md) | {prose(one.says)} |" for one in verbs
    ]
    parts = [
        "# Commands",
        prose(top.command.help or ""),
        "\n".join(["| command | what it answers |", "|---|---|", *rows]),
        "Made from the commands themselves when the site is built: what stands here is what "
        "`--help` says.",
        _usage(top, 2),
        "## Exit codes {#exit-codes}",
        _code_table(common),
        "Where a verb has codes of its own, its page tells them.",
    ]
    return "\n\n".join(parts) + "\n"


def _code_table(common: str) -> str:
    found = re.findall(r"(\d+) ([^,.]+)", " ".join(common.split()))
    rows = [f"| `{number}` | {prose(meaning)} |" for number, meaning in found]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def _section(node: Node, level: int, common: str) -> str:
    epilog = read_epilog(node.command.epilog or "")
    anchor = f" {{#{_anchor(node)}}}" if level > 1 else ""
    parts = [
        f"{'#' * level} {text(' '.join(node.path))}{anchor}",
        *body(node.command.help or node.says),
        _usage(node, level + 1),
        *_below(node, epilog, level + 1, common),
    ]
    return "\n\n".join(parts) + "\n"


def _usage(node: Node, level: int) -> str:
    usage = " ".join([*node.path, *node.command.collect_usage_pieces(node.context)])
    head = _heading(node, "Usage", level)
    return "\n\n".join([head, fenced(usage), *_children(node), *_options(node, level)])


def _children(node: Node) -> Iterator[str]:
    """Of a group with its verbs on the same page: where they stand."""
    if node.children and len(node.path) > 1:
        links = (f"[{code(path[-1])}](#{'-'.join(path[2:])})" for path in node.children)
        yield "Commands: " + ", ".join(links)


def _options(node: Node, level: int) -> Iterator[str]:
    node.context.show_default = True
    told = [_option(one, node.context) for one in node.command.get_params(node.context)]
    if any(told):
        yield _heading(node, "Options", level)
        yield "\n\n".join(filter(None, told))


def _option(option: click.Parameter, context: click.Context) -> str:
    """A definition: how it is written, then what it does, what holds without it, and its variable."""
    record = option.get_help_record(context)
    if not isinstance(option, click.Option) or record is None:
        return ""
    extra = option.get_help_extra(context)
    help = option.help or ""
    own = _DEFAULT.search(help)
    default = own[1] if own else str(extra.get("default") or "")
    facts = {
        "Default": prose(default) if own else code(default),
        "Range": code(extra.get("range", "")),
        "Variable": code(_variable(option, context)),
    }
    told = " · ".join(f"{name}: {value}" for name, value in facts.items() if value)
    more = " Can be given several times." if option.multiple else ""
    lines = [
        f":   {prose(_DEFAULT.sub('', help))}{more}",
        f"    <br><small>{told}</small>" * bool(told),
    ]
    return "\n".join([code(record[0]), *filter(None, lines)])


def _variable(option: click.Option, context: click.Context) -> str:
    prefix = context.auto_envvar_prefix
    automatic = prefix and option.allow_from_autoenv and not option.is_flag
    return f"{prefix}_{str(option.name).upper()}" if automatic else ""


def _below(node: Node, epilog: Epilog, level: int, common: str) -> Iterator[str]:
    if epilog.examples:
        yield _heading(node, "Examples", level)
        yield fenced(epilog.examples, "sh")
    yield from epilog.notes
    if not node.children:
        yield _heading(node, "Exit codes", level)
        yield prose(epilog.exit_codes or common)
        if epilog.exit_codes:
            yield "The others are [those of every command](index.md#exit-codes)."


def _heading(node: Node, words: str, level: int) -> str:
    """With an anchor that says whose it is: `usage`, `deploy-usage`."""
    name = "-".join([*node.path[2:], *words.lower().split()])
    return f"{'#' * level} {words} {{#{name}}}"
