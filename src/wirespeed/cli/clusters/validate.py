"""`wirespeed cluster validate`: all problems of cluster files at once, with their lines."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT, warning_lines
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.model.records import Finding
    from wirespeed.yaml_tree import Problem


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


@click.command(
    "validate",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  wirespeed cluster validate mine
  wirespeed cluster validate clusters/*.yaml
  wirespeed cluster validate mine -o json | jq '.[].problems'

\b
Exit code: 0 when all are valid, with warnings too, else 2. No cluster is asked: `deploy` does that.
""",
)
@click.argument(
    "clusters", metavar="NAME|FILE…", shell_complete=suggest.clusters, nargs=-1, required=True
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print."
)
def command(clusters: tuple[str, ...], output: str) -> int:
    """Are these files right? Every problem with its line, and the key that was probably meant."""
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
    import json

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
