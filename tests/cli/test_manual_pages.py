"""The man pages: what is committed is what the help says now, and nothing in it is lost."""

import re
from pathlib import Path

import click
import pytest

from wirespeed.cli import _EPILOG
from wirespeed.cli.manual import (
    CODES,
    Node,
    code,
    commands,
    escaped,
    page,
    pages,
    prose,
    write,
)

MAN = Path(__file__).parents[2] / "share" / "man" / "man1"
NODES = {"-".join(node.path): node for node in commands()}


def plain(text: str) -> str:
    """The words of a page as a reader sees them; enough of man(7) for what we write."""
    text = re.sub(r"\\\[u([0-9A-F]{4,})\]", lambda found: chr(int(found[1], 16)), text)
    text = re.sub(r"\\f[BIR]|\\&|\\:", "", text)
    for escape, char in (("aq", "'"), ("ga", "`"), ("ha", "^"), ("ti", "~"), ("dq", '"')):
        text = text.replace(f"\\({escape}", char)
    return text.replace("\\-", "-").replace("\\(rs", "\\")


def test_the_committed_pages_are_fresh() -> None:
    made = pages()
    kept = {path.name: path.read_text("ascii") for path in MAN.iterdir()}
    again = "python -m wirespeed.cli.manual"
    assert sorted(kept) == sorted(made), f"pages are missing or left over: {again}"
    stale = [name for name in made if made[name] != kept[name]]
    assert not stale, f"the help has changed since the pages were made: {again}"


def test_the_tree_is_whole() -> None:
    assert len(NODES) > 40
    assert NODES["wirespeed-cluster-deploy"].path == ("wirespeed", "cluster", "deploy")
    assert ("wirespeed", "runs", "show") in NODES["wirespeed-runs"].children
    assert all(
        child in {node.path for node in NODES.values()} for child in NODES["wirespeed"].children
    )


@pytest.mark.parametrize("name", NODES)
def test_each_option_and_example_is_in_the_page(name: str) -> None:
    node = NODES[name]
    text = plain(page(node))
    for parameter in node.command.get_params(node.context):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            record = parameter.get_help_record(node.context)
            assert record is not None
            names, says = record
            assert f"\n.TP\n{names}\n" in text
            assert " ".join(says.replace("`", "").split()) in text
    for line in (node.command.epilog or "").splitlines():
        if line.startswith("  "):
            assert f"\n{line[2:]}\n" in text
    titles = re.findall(r'^\.SH "(.*)"$', text, re.MULTILINE)
    assert titles[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert titles[-1] == "SEE ALSO"
    assert {"OPTIONS", "EXIT STATUS"} <= set(titles)


@pytest.mark.parametrize("name", NODES)
def test_pages_refer_to_pages_that_there_are(name: str) -> None:
    named = re.findall(r"(wirespeed[\w-]*)\(1\)", plain(page(NODES[name])))
    assert set(named) <= set(NODES)


def test_the_codes_are_those_of_the_help() -> None:
    line = _EPILOG.split("Exit codes: ")[1]
    assert re.findall(r"\b\d+\b", line) == list(CODES)


def test_what_a_command_says_of_its_codes_is_its_exit_status() -> None:
    text = plain(page(NODES["wirespeed-compare"]))
    status = text.split('.SH "EXIT STATUS"')[1].split(".SH")[0]
    assert status.strip().startswith("1 something is WORSE")
    assert "Exit codes" not in text


HOSTILE = ".so /etc/passwd"


def test_text_is_never_taken_as_a_request() -> None:
    assert escaped(HOSTILE) == r"\&.so /etc/passwd"
    assert escaped("'br") == r"\(aqbr"
    assert escaped(r"a\fB-b") == r"a\(rsfB\-b"
    assert escaped('a"b\nc\x1b') == r"a\(dqb c "
    assert escaped("1…2 – ✓") == r"1\[u2026]2 \[u2013] \[u2713]"
    assert prose("use `--on k8s`;\n  see **a-b**(1)") == r"use \fB\-\-on k8s\fR; see \fBa\-b\fR(1)"
    assert prose("`.hidden`") == r"\fB\&.hidden\fR"
    assert code(["  a  b", "    .c"])[3:-2] == ["a  b", "  .c"]
    assert code(["  .c"])[3:-2] == [r"\&.c"]


@pytest.mark.hostile("hostile values")
def test_a_hostile_help_adds_no_request() -> None:
    command = click.Command(
        "x",
        params=[click.Option(["--a"], help=HOSTILE, metavar=".B"), click.Option(["--b"])],
        help=f"First.\n\n{HOSTILE}\n\n'ti 5",
        epilog=f"\b\nExamples:\n  .so x\n  'so y\n\n{HOSTILE}",
    )
    node = Node(("wirespeed", "x"), click.Context(command, info_name="x"), "First", ())
    lines = page(node).splitlines()
    known = {".TH", ".nr", ".nh", ".ad", ".SH", ".PP", ".TP", ".in", ".EX", ".EE", '.\\"'}
    assert {line.split()[0] for line in lines if line[:1] in ".'"} <= known
    assert not [line for line in lines if line.startswith(("'", ".so"))]


def test_stale_pages_are_taken_away_and_other_files_stay(tmp_path: Path) -> None:
    for name in ("wirespeed-gone.1", "other.1"):
        (tmp_path / name).write_text("")
    assert write(tmp_path) == len(NODES)
    assert {path.name for path in tmp_path.iterdir()} == {*(f"{n}.1" for n in NODES), "other.1"}
