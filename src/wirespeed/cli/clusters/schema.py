"""`wirespeed cluster schema`: the JSON Schema of cluster files, for editors."""

from pathlib import Path

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT


@click.command(
    "schema",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  wirespeed cluster schema --write clusters/schema.json
  wirespeed cluster schema | jq .properties

\b
An editor with the YAML language server completes and checks a file whose first line is
  # yaml-language-server: $schema=schema.json
where schema.json is the path from that file.
""",
)
@click.option(
    "--write",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Write it there (over an older one) instead.",
)
def command(write: str | None) -> None:
    """Print the JSON Schema (2020-12) of cluster files: every key, its form and its meaning."""
    from wirespeed.clusters.template import schema_text

    if write is None:
        click.echo(schema_text(), nl=False)
        return
    from wirespeed.clusters.template import write_file

    write_file(Path(write), schema_text(), force=True)
    click.echo(f"wrote {write}", err=True)
