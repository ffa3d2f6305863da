"""docs/launchers.md shows what `wirespeed launch --list` prints; WIRESPEED_RENEW_GOLDEN=1 writes it."""

import os
import re
from pathlib import Path

from click.testing import CliRunner

from wirespeed.cli.launch import launch

PAGE = Path(__file__).parents[2] / "docs" / "launchers.md"
BLOCK = re.compile(r"(?<=^```text\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def test_the_page_shows_every_engine_and_option() -> None:
    listed = CliRunner().invoke(launch, ["--list"], standalone_mode=False).output
    assert "local " in listed
    text = PAGE.read_text()
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        text = BLOCK.sub(lambda _: listed, text, count=1)
        PAGE.write_text(text)
    shown = BLOCK.search(text)
    assert shown is not None
    assert shown[0] == listed, "WIRESPEED_RENEW_GOLDEN=1 pytest tests/docs writes it anew"
