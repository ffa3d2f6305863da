"""One name, one thing: CONTRIBUTING.md's words are in the code, those that they replaced are not."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "wirespeed"
_COMMENT = re.compile(r"(?:^|  )# .*", re.MULTILINE)


def glossary() -> list[tuple[str, str]]:
    """(word, what it replaced or nothing), a row each."""
    text = (
        (ROOT / "CONTRIBUTING.md")
        .read_text("utf-8")
        .partition("## Words\n")[2]
        .partition("\n## ")[0]
    )
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [(row[0].strip(), row[2].strip()) for row in rows[2:]]


def _of_name(name: str) -> str:
    """`RestartLoop`, `restart_loop` → `restart loop`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def _docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for one in getattr(node, "body", []) if isinstance(getattr(node, "body", []), list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                yield str(one.value.value)


@cache
def said() -> dict[str, str]:
    """All names, docstrings and comments by file."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        named = [
            node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)
        ]
        parts = [path.stem, *(node.name for node in named)]
        words = [_of_name(part) for part in parts] + [*_docstrings(tree), *_COMMENT.findall(text)]
        found[str(path.relative_to(SOURCE))] = "\n".join(words).lower()
    return found


def holders(word: str) -> list[str]:
    shape = re.compile(rf"\b{re.escape(word)}s?\b")
    return [name for name, text in said().items() if shape.search(text)]


@pytest.mark.parametrize("word", [word for word, _ in glossary()])
def test_a_word_is_used(word: str) -> None:
    assert holders(word)


@pytest.mark.parametrize("word", [old for _, old in glossary() if old])
def test_a_replaced_word_is_gone(word: str) -> None:
    assert holders(word) == []


def test_the_table_is_sound() -> None:
    words = [word for word, _ in glossary()]
    assert len(words) > 10
    assert all(before for before, _ in pairwise(words))
    assert len({*words}) == len(words)
