"""The environment of a run: versions, settings, automatic choices, and facts of the nodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wirespeed.records import NodeFacts, Run
from wirespeed.views.grid import Column, Grid
from wirespeed.views.html_table import html_table
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.templating import filled

__all__ = ["environment_section", "facts_of"]

_MOST_FACTS = 400
_MOST_NODES_NAMED = 4


def environment_section(run: Run, spot: Spot) -> Section:
    """Empty where nothing was recorded."""
    tables = [
        html_table(grid, caption, spot.id(f"environment-{number}"))
        for number, (caption, grid) in enumerate(_grids(run), 1)
    ]
    if not tables:
        return Section("", "", "")
    title = "Environment"
    html = filled("environment.html", spot=spot, title=title, tables=tables)
    return Section(spot.id("environment"), title, html)


def _grids(run: Run) -> Iterator[tuple[str, Grid]]:
    if run.versions:
        yield "versions", _pairs("software", "version", run.versions)
    if run.choices:
        titles = ("choice", "value", "why")
        grid = Grid(tuple(Column(title, left=True) for title in titles))
        for choice in run.choices:
            grid.add(choice.name, choice.value, choice.reason)
        yield "chosen automatically", grid
    settings = {name: _said(value) for name, value in run.config.items() if value not in (None, "")}
    if settings:
        yield "options of the command", _pairs("option", "value", settings)
    variables = dict(run.environment)
    if variables:
        yield (
            "environment variables (only those of the libraries)",
            _pairs("variable", "value", variables),
        )
    if facts := facts_of(run.world.nodes):
        yield "facts of the nodes", _facts(facts, len(run.world.nodes))


def _pairs(first: str, second: str, values: Mapping[str, object]) -> Grid:
    grid = Grid((Column(first, left=True), Column(second, left=True)))
    for name, value in sorted(values.items())[:_MOST_FACTS]:
        grid.add(name, str(value))
    return grid


def _said(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def facts_of(nodes: Sequence[NodeFacts]) -> dict[str, dict[str, list[str]]]:
    """By fact: each value with the hosts that have it, the commonest first."""
    found: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for name, value in {**node.facts, **node.environment}.items():
            found.setdefault(name, {}).setdefault(_said(value), []).append(node.host)
    return {
        name: dict(sorted(values.items(), key=lambda item: -len(item[1])))
        for name, values in sorted(found.items())
    }


def _facts(facts: Mapping[str, Mapping[str, Sequence[str]]], nodes: int) -> Grid:
    grid = Grid(tuple(Column(title, left=True) for title in ("fact", "value", "on")))
    for name, values in list(facts.items())[:_MOST_FACTS]:
        for value, hosts in list(values.items())[:_MOST_NODES_NAMED]:
            grid.add(name, value, _where(hosts, nodes))
    return grid


def _where(hosts: Sequence[str], nodes: int) -> str:
    if len(hosts) == nodes:
        return "every node"
    named = ", ".join(hosts[:_MOST_NODES_NAMED])
    more = len(hosts) - _MOST_NODES_NAMED
    return f"{named} and {more:,} more" if more > 0 else named
