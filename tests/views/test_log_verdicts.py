"""What `diagnose` says of logs, in every format: a log is never READY."""

import re
from xml.etree import ElementTree as ET

import pytest

import usual
from wirespeed.model.records import Run
from wirespeed.model.verdicts import Verdict, words_of
from wirespeed.views import FORMATS, junit, prometheus, render
from wirespeed.views.html import page
from wirespeed.views.text import Style

CODES = {"CAUSE NAMED": 1, "ENDED WELL": 0}


def diagnosed(verdict: Verdict) -> Run:
    nowhere = usual.world(size=0, backend="", launcher="")
    code = CODES.get(verdict, 3)
    return usual.run(command="diagnose", verdict=verdict, exit_code=code, world=nowhere)


@pytest.mark.parametrize("verdict", words_of("diagnose"))
def test_every_format_says_it_in_these_words(verdict: Verdict) -> None:
    run = diagnosed(verdict)
    shown_as = {name: render(run, name, Style()) for name in FORMATS}
    shown_as |= {"html": page.page(run), "prom": prometheus.render(run, Style())}
    for name, shown in shown_as.items():
        assert not re.search(r"\b(NOT )?READY\b|\bUNKNOWN\b", shown), name
        if name not in ("csv", "nccl-tests", "jsonl"):
            assert verdict in shown, name


@pytest.mark.parametrize("verdict", words_of("diagnose"))
def test_a_build_is_not_green_without_a_good_end(verdict: Verdict) -> None:
    suite = ET.fromstring(junit.render(diagnosed(verdict), Style())).find("testsuite")
    assert suite is not None
    errors = [one.get("type") for one in suite.iter("error")]
    undecided = verdict in ("SYMPTOMS ONLY", "NOTHING KNOWN")
    assert errors == ([verdict] if undecided else [])
