"""Modules that only a string names (`python -m`, code in a test): nothing else sees that they went."""

import ast
import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOTTED = re.compile(r"(?<![\w./-])wirespeed(?:\.[a-z_]\w*)+(?![\w*])")
IMPORTED = re.compile(r"^ *from (wirespeed[\w.]*) import ([\w, ]+)", re.MULTILINE)
FORMATS = {"wirespeed.run", "wirespeed.baseline", "wirespeed.comparison", "wirespeed.trend"}
"""What a stored file says it is."""
FORMATS |= {"wirespeed.prediction", "wirespeed.checkpoint"}
TABLES = {"wirespeed.files", "wirespeed.findings", "wirespeed.nodes", "wirespeed.versions"}
"""Of a common store, beyond those that are called as a module is."""
OTHERS = {"wirespeed.yaml", "wirespeed.json", "wirespeed.prom"}
VERBS = {"wirespeed.check", "wirespeed.train", "wirespeed.check.network", "wirespeed.compare.side_"}
"""Test suites and cases of JUnit."""


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def is_there(name: str) -> bool:
    """Whether a module, or what is in one, has that name."""
    with suppress(ModuleNotFoundError):
        if importlib.util.find_spec(name) is not None:
            return True
    outer, _, attribute = name.rpartition(".")
    with suppress(AttributeError):
        return outer != "" and is_there(outer) and hasattr(pkgutil.resolve_name(outer), attribute)
    return False


def wrong(path: Path) -> set[str]:
    found: set[str] = set()
    for text in strings(path):
        names = {*DOTTED.findall(text)} - FORMATS - OTHERS - VERBS - TABLES
        imported = IMPORTED.findall(text)
        names |= {f"{module}.{n.split()[0]}" for module, many in imported for n in many.split(",")}
        found |= {name for name in names if not is_there(name)}
    return found


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_every_module_in_a_string_is_there(folder: str) -> None:
    found = {path.relative_to(ROOT): wrong(path) for path in (ROOT / folder).rglob("*.py")}
    assert {str(path): names for path, names in found.items() if names} == {}
