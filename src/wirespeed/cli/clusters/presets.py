"""`wirespeed cluster presets`: fabrics by name, what each sets and why."""

import json
from typing import TYPE_CHECKING

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT

if TYPE_CHECKING:
    from wirespeed.clusters.presets import Preset


_EPILOG = """\b
Examples:
  wirespeed cluster presets
  wirespeed cluster presets h100-ib-sharp
  wirespeed cluster presets gcp-tcpxo -o yaml
"""


@click.command("presets", context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=suggest.presets)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print.",
)
def command(name: str | None, output: str) -> int:
    """Fabrics by name: what each sets in a pod, and why.

    `network.preset` of a cluster file takes one; what the file says itself has precedence.
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
