"""What `diagnose` says of logs, in every format: a log is never READY."""

import re
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

import usual
from wirespeed.model.records import LogVerdict, Run
from wirespeed.views import FORMATS, junit, prometheus, render
from wirespeed.views.html import page
from wirespeed.views.text import Style

CODES = {"CAUSE NAMED": 1, "GOOD END SHOWN": 0}


def diagnosed(verdict: LogVerdict) -> Run:
    nowhere = usual.world(size=0, backend="", launcher="")
    code = CODES.get(verdict, 3)
    return usual.run(command="diagnose", verdict=verdict, exit_code=code, world=nowhere)


@pytest.mark.parametrize("verdict", get_args(LogVerdict))
def test_every_format_says_it_in_these_words(verdict: LogVerdict) -> None:
    run = diagnosed(verdict)
    shown_as = {name: render(run, name, Style()) for name in FORMATS}
    shown_as |= {"html": page.page(run), "prom": prometheus.render(run, Style())}
    for name, shown in shown_as.items():
        assert not re.search(r"\b(NOT )?READY\b|\bUNKNOWN\b", shown), name
        if name not in ("csv", "nccl-tests", "jsonl"):
            assert verdict in shown, name


@pytest.mark.parametrize("verdict", get_args(LogVerdict))
def test_a_build_is_not_green_without_a_good_end(verdict: LogVerdict) -> None:
    suite = ET.fromstring(junit.render(diagnosed(verdict), Style())).find("testsuite")
    assert suite is not None
    errors = [one.get("type") for one in suite.iter("error")]
    undecided = verdict in ("SYMPTOMS ONLY", "NOTHING KNOWN")
    assert errors == ([verdict] if undecided else [])
