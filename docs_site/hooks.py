"""What mkdocs calls while it builds the site (`hooks:` of mkdocs.yml)."""

import logging
import re
import sys
import xml.etree.ElementTree as etree
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from docs_site import links  # noqa: E402
from docs_site.findings import finding_anchors, findings_page  # noqa: E402
from docs_site.markdown import slug  # noqa: E402
from docs_site.verbs import verb_anchors, verb_pages  # noqa: E402

_VERBS_HERE = "verbs/"
"""The entry of `nav:` that the pages of the verbs take the place of."""
_OPAQUE = {"a", "pre", "h1", "h2", "h3", "h4", "h5", "h6"}
_ID = r"(?<![\w/#-])[A-Z][A-Z0-9]*-\d{3}(?![\w-])"
log = logging.getLogger("mkdocs.hooks.docs_site")


class Linker(Extension):
    """Makes links work on the site, and code that names a finding or a command into one."""

    def __init__(self) -> None:
        super().__init__()
        self.page = ""
        """Path in the repository of the page that is being made."""
        names = {id: f"/findings.md#{anchor}" for id, anchor in finding_anchors().items()}
        names |= {words: f"/{place}" for words, place in verb_anchors().items()}
        names |= {page: f"/{page[5:]}" for page in links.written_pages(ROOT) if "/" in page}
        self.names = names

    def extendMarkdown(self, md: Markdown) -> None:
        # After inline patterns (20), before mkdocs resolves and validates links (0).
        md.treeprocessors.register(_Walk(md, self), "wirespeed-links", 5)
        md.inlinePatterns.register(_Id(_ID, md, self), "wirespeed-ids", 50)


class _Id(InlineProcessor):
    """An id of a finding within a sentence."""

    ANCESTOR_EXCLUDES = tuple(_OPAQUE)

    def __init__(self, pattern: str, md: Markdown, linker: Linker) -> None:
        super().__init__(pattern, md)
        self._linker = linker

    # The base's name for a match, which InlineProcessor gives another meaning.
    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[etree.Element | None, int | None, int | None]:
        target = self._linker.names.get(m[0])
        if target is None:
            return None, None, None
        link = etree.Element("a", {"href": target})
        link.text = m[0]
        return link, m.start(0), m.end(0)


class _Walk(Treeprocessor):
    def __init__(self, md: Markdown, linker: Linker) -> None:
        super().__init__(md)
        self._linker = linker

    def run(self, root: etree.Element) -> None:
        for element in root.iter():
            for name in ("href", "src"):
                if link := element.get(name):
                    element.set(name, site_link(self._linker.page, link))
        self._name_links(root)

    def _name_links(self, parent: etree.Element) -> None:
        for place, child in enumerate(list(parent)):
            target = self._linker.names.get(child.text or "") if child.tag == "code" else None
            if target and f"docs{target}" != self._linker.page:
                link = etree.Element("a", {"href": target})
                link.tail, child.tail = child.tail, None
                link.append(child)
                parent[place] = link
            elif child.tag not in _OPAQUE:
                self._name_links(child)


def site_link(page: str, link: str) -> str:
    """A link that leaves the folder of the docs, or stands outside of it, from the site's own root."""
    if links.is_external(link) or link.startswith(("#", "/")):
        return link
    target, anchor = links.target_of(ROOT, page, link)
    if page.startswith("docs/") and target.startswith("docs/"):
        return link
    place = "index.md" if target == links.HOME else target.removeprefix("docs/")
    return f"/{place}#{anchor}" if anchor else f"/{place}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Names of the verbs' pages into the navigation; anchors as Git hosts make them."""
    pages: list[Any] = ["verbs/index.md"]
    pages += [{Path(page).stem: page} for page in verb_pages() if page != "verbs/index.md"]
    config.nav = _filled(config.nav, pages)
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.extra["linker"] = linker = Linker()
    config["markdown_extensions"].append(linker)
    for complaint in links.broken_links(ROOT, links.HOME):  # all others are pages of the site
        log.warning(complaint)
    return config


def _filled(entry: Any, pages: list[Any]) -> Any:
    """The navigation with the pages of the verbs where they belong."""
    if isinstance(entry, list):
        return [_filled(one, pages) for one in entry]
    if isinstance(entry, dict):
        return {
            name: pages if one == _VERBS_HERE else _filled(one, pages)
            for name, one in entry.items()
        }
    return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages from the code, and copies of the files outside of the docs that pages lead to."""
    for place, words in (verb_pages() | {"findings.md": findings_page()}).items():
        files.append(File.generated(config, place, content=words))
    for place in sorted(links.linked_files(ROOT) | {"CONTRIBUTING.md", "CHANGELOG.md"}):
        files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    copied = (ROOT / page.file.src_uri).is_file()
    config.extra["linker"].page = page.file.src_uri if copied else f"docs/{page.file.src_uri}"
    return markdown


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """The contents beside a long page made from the code are two levels: the rest is for the search."""
    if page.file.src_uri == "findings.md" or page.file.src_uri.startswith("verbs/"):
        for top in page.toc:
            for section in top.children:
                section.children.clear()
    return html
