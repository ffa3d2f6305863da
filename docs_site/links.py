"""Links of the written pages: relative to the file, so that they hold on a Git host; what breaks them.

A link that leaves `docs/` leads to the site's own copy of that file, which stands at the path that the
file has in the repository. README.md is the one exception: on the site its place is the home page.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from docs_site.markdown import slug

__all__ = ["HOME", "broken_links", "is_external", "linked_files", "target_of", "written_pages"]

HOME = "README.md"
_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)|^\[[^\]]+\]: *(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: *\{#([\w-]+)\})? *#*$", re.MULTILINE)
_EXTERNAL = re.compile(r"[a-zA-Z][\w+.-]*:|//")


def written_pages(root: Path) -> list[str]:
    """Paths in the repository of all that is written by hand: the docs, and what lies at the top."""
    docs = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    return [HOME, "CONTRIBUTING.md", "CHANGELOG.md", *docs]


def is_external(link: str) -> bool:
    return bool(_EXTERNAL.match(link))


def linked_files(root: Path) -> set[str]:
    """Files outside `docs/` that some page leads to, also over pages outside of it."""
    found: set[str] = set()
    ahead = [page for page in written_pages(root) if page != HOME]
    while ahead:
        page = ahead.pop()
        for link in _links((root / page).read_text()):
            target, _ = target_of(root, page, link)
            if not _is_elsewhere(target) or target in found or not (root / target).is_file():
                continue
            found.add(target)
            ahead += [target] * target.endswith(".md")
    return found


def target_of(root: Path, page: str, link: str) -> tuple[str, str]:
    """(path in the repository, anchor) of a relative link; a folder is the README.md in it."""
    path, _, anchor = link.partition("#")
    target = page
    if path:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path)))
    if (root / target / HOME).is_file():
        target = posixpath.join(target, HOME)
    return target, anchor


def broken_links(root: Path, page: str) -> list[str]:
    """Relative links of a page that lead nowhere; external ones are not followed."""
    broken = []
    for link in _links((root / page).read_text()):
        target, anchor = target_of(root, page, link)
        if not (root / target).exists():
            broken.append(f"{page}: {link}: there is no {target}")
        elif anchor and target.endswith(".md") and anchor not in _anchors(root / target):
            broken.append(f"{page}: {link}: {target} has no heading #{anchor}")
    return broken


def _is_elsewhere(target: str) -> bool:
    return not target.startswith(("docs/", "../")) and target != HOME


def _links(words: str) -> Iterator[str]:
    plain = _SPAN.sub("", _FENCE.sub("", words))
    for inline, reference in _LINK.findall(plain):
        link = inline or reference
        if not is_external(link):
            yield link


def _anchors(page: Path) -> set[str]:
    words = _FENCE.sub("", page.read_text())
    named = {
        id or slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title))
        for title, id in _HEADING.findall(words)
    }
    return named | set(re.findall(r'<a (?:id|name)="([^"]+)"', words))
