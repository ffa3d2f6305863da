"""`wirespeed cluster list`, `validate`, `schema` and `presets`: cluster files, without a cluster."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.cluster import warning_lines
from wirespeed.cli.options import argument, command, option
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.presets import Preset
    from wirespeed.model.records import Finding
    from wirespeed.yaml_tree import Problem


# `wirespeed cluster list`


@command("list")
@option("-o --output", "How to print.", ["table", "json"], default="table")
def list_files(output: str) -> None:
    """List the files clusters/*.yaml of this folder, each with what it would deploy.

    \f
    Examples:
      wirespeed cluster list
      wirespeed cluster list -o json | jq '.[] | select(.valid) | .name'
    """
    from wirespeed.clusters.reading import FOLDER, known_files

    rows = [_row(path) for path in known_files()]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        click.echo("\n".join(_table(rows)))
    else:
        click.echo(f"no cluster files in {FOLDER}/\nnext: wirespeed cluster new NAME")


def _row(path: Path) -> dict[str, Any]:
    """One file, as it would be deployed without options; gpus: of each node; problem: the first one."""
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.reading import ClusterFileError, read_cluster, read_file, stem

    names = ("environment", "namespace", "engine", "nodes", "gpus", "mode")
    row = {"name": stem(path), "file": str(path), "valid": False}
    blank = {name: 0 if name in ("nodes", "gpus") else "" for name in names}
    try:
        one = settle(read_cluster(read_file(path), str(path)), live=True)
    except ClusterFileError as error:
        first = error.problems[0]
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        key = f"{first.key}: " if first.key else ""
        return row | blank | {"problem": f"line {first.line}: {key}saw {first.saw}{more}"}
    except UsageError as error:
        return row | blank | {"problem": error.saw}
    told = {name: getattr(one, "name" if name == "environment" else name) for name in names}
    return row | told | {"valid": True, "problem": ""}


def _table(rows: list[dict[str, Any]]) -> list[str]:
    from wirespeed.views.text import Column, Grid, style_for

    titles = ("name", "namespace", "engine", "nodes×GPUs", "mode", "state")
    grid = Grid([Column(title, left=title != "nodes×GPUs") for title in titles])
    for row in rows:
        size = f"{row['nodes']}×{row['gpus']}" if row["valid"] else ""
        state, color = ("valid", "") if row["valid"] else (row["problem"], "red")
        told = (row["name"], row["namespace"], row["engine"], size, row["mode"], state)
        grid.add(*told, color=color)
    return grid.lines(style_for(sys.stdout))


# `wirespeed cluster validate`


@dataclass(frozen=True, slots=True)
class _Judged:
    """One file; `problems` have their lines, `refused` is what has none."""

    file: str
    told: str = ""
    """Name and size of a valid one."""
    problems: tuple["Problem", ...] = ()
    refused: str = ""
    warnings: tuple["Finding", ...] = ()
    """Of a valid one: what `render` and `deploy` will say, too."""

    @property
    def valid(self) -> bool:
        return not self.problems and not self.refused


@command()
@argument("clusters NAME|FILE…", nargs=-1, required=True)
@option("-o --output", "How to print.", ["table", "json"], default="table")
def validate(clusters: tuple[str, ...], output: str) -> int:
    """Are these files right? Every problem with its line, and the key that was probably meant.

    \f
    Examples:
      wirespeed cluster validate mine
      wirespeed cluster validate clusters/*.yaml
      wirespeed cluster validate mine -o json | jq '.[].problems'

    Exit code: 0 when all are valid, with warnings too, else 2. No cluster is asked: `deploy` does that.
    """
    judged = [_judge(name) for name in clusters]
    if output == "json":
        click.echo(_json(judged))
    else:
        click.echo("\n".join(line for one in judged for line in _lines(one)))
    return 0 if all(one.valid for one in judged) else UsageError.exit_code


def _judge(name: str) -> _Judged:
    """Read it, and make every choice that a file alone allows."""
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.manifests.render import render
    from wirespeed.clusters.reading import ClusterFileError, find_file, read_cluster, read_file
    from wirespeed.yaml_tree import shown_path

    source = shown_path(name)
    try:
        path = find_file(name)
        source = shown_path(str(path))
        one = settle(read_cluster(read_file(path), str(path)), live=True)
        render(one)
    except ClusterFileError as error:
        return _Judged(source, problems=error.problems)
    except UsageError as error:
        return _Judged(source, refused=str(error))
    size = f"{one.nodes} × {one.gpus} GPUs" if one.gpus else f"{one.nodes} nodes without GPUs"
    told = f"{one.name} in {one.namespace}: {one.engine}, {size}, {one.mode}"
    return _Judged(source, told=told, warnings=one.warnings)


def _lines(judged: _Judged) -> list[str]:
    if judged.valid:
        warned = [f"  warning: {line}" for one in judged.warnings for line in warning_lines(one)]
        return [f"{judged.file}: valid: {judged.told}", *warned]
    found = [f"{judged.file}:{one.line}: {one}" for one in judged.problems]
    if judged.refused:
        found.append(f"{judged.file}: {judged.refused}")
    return found


def _json(judged: list[_Judged]) -> str:
    told = [
        {
            "file": one.file,
            "valid": one.valid,
            "problems": [asdict(problem) for problem in one.problems],
            "refused": one.refused,
            "warnings": [{"id": w.id, "title": w.title, "fix": w.fix} for w in one.warnings],
        }
        for one in judged
    ]
    return json.dumps(told, indent=2)


# `wirespeed cluster schema`


@command()
@option("--write FILE", "Write it there (over an older one) instead.")
def schema(write: str | None) -> None:
    """Print the JSON Schema (2020-12) of cluster files: every key, its form and its meaning.

    \f
    Examples:
      wirespeed cluster schema --write clusters/schema.json
      wirespeed cluster schema | jq .properties

    An editor with the YAML language server completes and checks a file whose first line is
      # yaml-language-server: $schema=schema.json
    where schema.json is the path from that file.
    """
    from wirespeed.clusters.template import schema_text, write_file

    if write is None:
        click.echo(schema_text(), nl=False)
        return
    write_file(Path(write), schema_text(), force=True)
    click.echo(f"wrote {write}", err=True)


# `wirespeed cluster presets`


@command()
@argument("name [NAME]", required=False, completes="presets")
@option(
    "-o --output", "How to print.", ["table", "json", "yaml"], default="table", show_default=True
)
def presets(name: str | None, output: str) -> int:
    """Fabrics by name: what each sets in a pod, and why.

    `network.preset` of a cluster file takes one; what the file says itself has precedence.

    \f
    Examples:
      wirespeed cluster presets
      wirespeed cluster presets h100-ib-sharp
      wirespeed cluster presets gcp-tcpxo -o yaml
    """
    from wirespeed.clusters.presets import preset_named, preset_names

    presets = [preset_named(name)] if name else [preset_named(one) for one in preset_names()]
    click.echo(_shown(presets, output, one=bool(name)))
    return 0


def _shown(presets: "list[Preset]", output: str, *, one: bool) -> str:
    from wirespeed.clusters.presets import as_data, explained, listed

    if output == "table":
        return explained(presets[0]) if one else listed(presets)
    data = [as_data(preset) for preset in presets]
    whole = data[0] if one else data
    if output == "json":
        return json.dumps(whole, indent=2, ensure_ascii=False)
    import yaml

    text: str = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip("\n")
