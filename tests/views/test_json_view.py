"""The JSON that is written is what the standard library would write, to the letter."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.records import Run
from wirespeed.views import Style
from wirespeed.views.data import document, render_json


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("which", ["check", "bench", "train", "flip"])
def test_it_is_the_text_of_the_standard_library(
    which: str, ascii: bool, request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue(which)
    odd: dict[str, Any] = {"a": [], "b": {}, 'ü\n"': [True, None, 1, -2.5e-300, "\u2028", "\ud800"]}
    made = replace(run, config={**odd, "c": (math.inf, {1: math.nan}), "d": 10**30})
    expected = json.dumps(document(made), indent=2, ensure_ascii=ascii) + "\n"
    assert render_json(made, Style(ascii=ascii)) == expected
