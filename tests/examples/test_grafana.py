"""The dashboard asks only for metrics and labels that the exporter has."""

import json
import re
from pathlib import Path
from typing import Any

from wirespeed.model.verdicts import MEANINGS
from wirespeed.views.prometheus import FAMILIES

FILE = Path(__file__).parents[2] / "examples" / "grafana" / "wirespeed.json"
DOC = Path(__file__).parents[2] / "docs" / "report.md"
METRIC = re.compile(r"\b(wirespeed_[a-z0-9_]+)(?:\{([^}]*)\})?")
LABELS = {family.name: {"command", "instance", *family.labels} for family in FAMILIES}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def queries() -> list[tuple[str, str]]:
    """(expression, legend) of every panel and variable."""
    found = dashboard()
    told = [(t["expr"], t["legendFormat"]) for panel in found["panels"] for t in panel["targets"]]
    return told + [
        (one["definition"], "") for one in found["templating"]["list"] if one["type"] == "query"
    ]


def test_every_metric_is_one_of_ours_with_labels_that_it_has() -> None:
    for expression, legend in queries():
        asked = METRIC.findall(expression)
        assert asked, expression
        for name, selector in asked:
            assert name in LABELS, name
            assert set(re.findall(r"(\w+)\s*[=!]~?\"", selector)) <= LABELS[name], expression
        known = set.union(*(LABELS[name] for name, _ in asked))
        grouped = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
        words = {word.strip() for group in grouped for word in group.split(",")}
        assert words | set(re.findall(r"\{\{(\w+)\}\}", legend)) <= known, expression


def test_each_verdict_word_has_the_colour_of_its_standing() -> None:
    (panel,) = [panel for panel in dashboard()["panels"] if panel["title"] == "Verdict"]
    expression = panel["targets"][0]["expr"]
    values = {
        word: value
        for value, words in re.findall(r'(\d) \* \(max [^{]*\{[^}]*verdict=~"([^"]*)"', expression)
        for word in words.split("|")
    }
    options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    colors = {word: options[value]["color"] for word, value in values.items()}
    wanted = {"bad": "red", "good": "green", "undecided": "orange", "measured": "blue"}
    assert colors == {
        word: wanted[meaning.standing]
        for word, meaning in MEANINGS.items()
        if meaning.standing in wanted
    }


def test_most_of_what_is_exported_is_shown() -> None:
    asked = {name for expression, _ in queries() for name, _ in METRIC.findall(expression)}
    for part in (
        "verdict",
        "findings",
        "collective",
        "node",
        "training",
        "timestamp",
        "goodput",
        "soak",
        "watched",
    ):
        assert any(part in name for name in asked), part


def test_variables_that_are_used_are_defined_and_panels_do_not_overlap() -> None:
    found = dashboard()
    defined = {one["name"] for one in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", FILE.read_text())) - {"__all"}
    assert used <= defined
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        box = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(box["x"], box["x"] + box["w"])
            for y in range(box["y"], box["y"] + box["h"])
        }
        assert not cells & taken and box["x"] + box["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))


def test_the_documentation_names_every_metric() -> None:
    """In full, or as `…` and its end."""
    text = DOC.read_text()
    for name in LABELS:
        parts = [f"`{name}`", *(f"`…{name[at:]}`" for at in range(len(name)) if name[at] == "_")]
        cut = any(f"`…_{word}_…`" in text for word in ("busbw_low", "busbw_high") if word in name)
        assert cut or any(part in text for part in parts), name
