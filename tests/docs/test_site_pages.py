"""The site's pages from the code tell of every command and every finding, and nothing in them acts."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from msgspec.structs import replace

from wirespeed.checks.registry import EXPLAINED, OF_LOGS, Check
from wirespeed.cli.manual import Node, commands
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules

ROOT = Path(__file__).parents[2]
EVIL = "<script>x</script> *a* _b_ [c](http://d) {#id .e} | # f `g` ![h](i) &lt; \\ 1. ~j~"


@pytest.fixture(scope="module")
def site() -> Iterator[dict[str, ModuleType]]:
    """Its modules by name; the folder is no part of the package, so it is not on the path."""
    names = ("", ".markdown", ".help_text", ".verbs", ".findings", ".links")
    folder = ROOT / "docs_site"
    spec = importlib.util.spec_from_file_location(
        "docs_site", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["docs_site"] = package
    spec.loader.exec_module(package)
    yield {name.lstrip("."): importlib.import_module(f"docs_site{name}") for name in names}
    for name in [one for one in sys.modules if one.partition(".")[0] == "docs_site"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def pages(site: dict[str, ModuleType]) -> dict[str, str]:
    found: dict[str, str] = site["verbs"].verb_pages()
    return found


def _section(pages: dict[str, str], node: Node) -> str:
    """What stands on a command's page from its heading to the next command's."""
    page = pages["verbs/index.md" if len(node.path) == 1 else f"verbs/{node.path[1]}.md"]
    if len(node.path) < 3:
        return page
    anchor = "-".join(node.path[2:])
    return re.split(r"^## .*\{#[\w-]+\}$", page.partition(f"{{#{anchor}}}")[2], flags=re.MULTILINE)[
        0
    ]


def test_every_command_is_told_with_its_options(pages: dict[str, str]) -> None:
    nodes = list(commands())
    assert {f"verbs/{node.path[1]}.md" for node in nodes[1:]} | {"verbs/index.md"} == set(pages)
    for node in nodes:
        section = _section(pages, node)
        pieces = " ".join([*node.path, *node.command.collect_usage_pieces(node.context)])
        assert f"```text\n{pieces}\n```" in section, node.path
        for option in node.command.params:
            if isinstance(option, click.Option) and not option.hidden:
                terms = [line for line in section.splitlines() if option.opts[-1] in line]
                assert terms, f"{node.path} {option.opts}"


def test_examples_defaults_and_exit_codes_stand_there(pages: dict[str, str]) -> None:
    check = pages["verbs/check.md"]
    examples = check.split("## Examples")[1]
    assert re.search(r"^wirespeed check --explain COL-001 +# what a finding means$", examples, re.M)
    assert "Default: `medium`" in check and "`WIRESPEED_LEVEL`" in check
    assert "Default: one a GPU" in check, "what a help text says itself"
    assert "130 interrupted" in check.split("## Exit codes")[1]
    clean = pages["verbs/cluster.md"].split("{#clean}")[1]
    assert "3 not gone in time" in clean.split("{#clean-exit-codes}")[1]
    assert "| `130` | interrupted |" in pages["verbs/index.md"]


@pytest.mark.slow
def test_every_finding_has_its_anchor_once(site: dict[str, ModuleType]) -> None:
    page = site["findings"].findings_page()
    anchors = re.findall(r"^#+ .*\{#([\w-]+)\}$", page, re.MULTILINE)
    assert len(anchors) == len(set(anchors))
    rules = [rule.id for rule in all_rules() if rule.role != "fact"]
    known = site["findings"].finding_anchors()
    assert set(known) == {*EXPLAINED, *OF_LOGS, *rules}
    assert set(known.values()) <= set(anchors)
    assert known == {id: id.lower() for id in known}


def test_what_acts_in_markdown_is_inert(site: dict[str, ModuleType]) -> None:
    told = site["markdown"].text(EVIL)
    assert not set(re.sub(r"&#\d+;", "", told)) & set("<>*_[]{}()|#`!&\\~.-+=")
    assert site["markdown"].code("a`b<i>") == "<code>a&#96;b&#60;i&#62;</code>"
    assert site["markdown"].prose("say `x*y` * z") == "say `x*y` &#42; z"
    assert site["markdown"].fenced("a\n```\n<b>").startswith("````text\na\n```\n<b>\n````")


@pytest.mark.slow
def test_texts_of_commands_and_findings_are_inert(site: dict[str, ModuleType]) -> None:
    @click.group(help=EVIL, epilog=f"{EVIL}\n\n\b\nExamples:\n  run\n  ```\n  <b>")
    def cli() -> None: ...

    @cli.command(help=EVIL, epilog=EVIL)
    @click.option("--one", help=EVIL, default="<i>`*")
    def verb(one: str) -> None: ...

    check = Check("EVIL-001", "evil", EVIL, EVIL)
    links = ("javascript:x", "https://a/b>c)")
    rule = Rule(id="EVIL-002", category=EVIL, role="cause", sentence=EVIL, fix=EVIL, next=EVIL)
    rule = replace(rule, checks=(EVIL,), links=links)
    made = site["verbs"].verb_pages(cli) | {
        "findings.md": site["findings"].findings_page({check.id: check}, [rule])
    }
    for name, page in made.items():
        plain = re.sub(r"^(`{3,}).*?^\1", "", page, flags=re.MULTILINE | re.DOTALL)
        for sign in ("<script", "*a*", "_b_", "[c]", "{#id", "![h]", "<i>", "](javascript"):
            assert sign not in plain, f"{name}: {sign}"
    assert "](<https://a/b%3Ec%29>)" in made["findings.md"]


def test_links_of_the_written_pages_lead_somewhere(site: dict[str, ModuleType]) -> None:
    links = site["links"]
    pages = links.written_pages(ROOT)
    assert {"README.md", "docs/index.md", "docs/training.md"} <= set(pages)
    assert [one for page in pages for one in links.broken_links(ROOT, page)] == []


def test_a_broken_link_or_anchor_is_told(site: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A b-c's `d`\n\n[ok](docs/a.md#x-y)\n")
    (tmp_path / "docs" / "a.md").write_text(
        "# X y\n[ok](../README.md#a-b-cs-d) [no](b.md)\n[no](#z) `[code](c.md)`\n[e]: http://f\n"
    )
    broken = site["links"].broken_links
    assert broken(tmp_path, "README.md") == []
    assert broken(tmp_path, "docs/a.md") == [
        "docs/a.md: b.md: there is no docs/b.md",
        "docs/a.md: #z: docs/a.md has no heading #z",
    ]


def test_the_navigation_leads_to_every_page(site: dict[str, ModuleType]) -> None:
    """Also that each is written: the build refuses both, and takes longer to say so."""
    told = set(re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    links = site["links"]
    written = {page.removeprefix("docs/") for page in links.written_pages(ROOT)} - {links.HOME}
    copied = {page for page in links.linked_files(ROOT) if page.endswith(".md")}
    assert told - {"findings.md"} == written | copied
