"""Prometheus text: the format to the letter, bounded labels, and names that nobody can break out of."""

import math
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.records import Finding, Run, Subject
from wirespeed.model.verdicts import words_of
from wirespeed.views import Style
from wirespeed.views.prometheus import FAMILIES, MOST_SERIES, render, render_all

BOUND_S = 30.0
EVIL = 'a"} 1\nevil{x="\\'
LINE = re.compile(
    r'(?P<name>[a-z_]+)\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} '
    r"(?P<value>-?[0-9.e+-]+)"
)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By metric its samples; fails for a line that is neither a comment nor a sample."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, f"no sample: {line!r}"
            labels = dict(LABEL.findall(match["labels"]))
            found.setdefault(match["name"], []).append((labels, float(match["value"])))
    return found


def text_of(*runs: Run) -> str:
    return render_all(runs, Style())


def test_every_sample_has_its_help_and_type_before_it(check: Run, train: Run) -> None:
    told: set[str] = set()
    for line in text_of(check, train).splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split()
            assert kind == "gauge" and name not in told, "one family, one head"
            told.add(name)
        elif not line.startswith("#"):
            assert line.partition("{")[0] in told


def test_labels_are_those_that_the_family_promises(check: Run, bench: Run, train: Run) -> None:
    found = samples(text_of(check, bench, train))
    known = {family.name: {"command", *family.labels} for family in FAMILIES}
    assert len(found) > 15
    for name, series in found.items():
        assert {frozenset(labels) for labels, _ in series} == {frozenset(known[name])}


def test_no_series_is_told_twice(check: Run, bench: Run, train: Run) -> None:
    for name, series in samples(text_of(check, bench, train)).items():
        keys = [tuple(sorted(labels.items())) for labels, _ in series]
        assert len(keys) == len(set(keys)), name


def test_the_figures_are_those_of_the_run(check: Run) -> None:
    found = samples(render(check, Style()))
    m = next(m for m in check.measurements if m.busbw > 0)
    (value,) = [
        value
        for labels, value in found["wirespeed_collective_busbw_bytes_per_second"]
        if labels["op"] == m.op and labels["size_bytes"] == str(m.size_bytes)
    ]
    assert value == pytest.approx(m.busbw)
    (low,) = [
        value
        for labels, value in found["wirespeed_collective_busbw_low_bytes_per_second"]
        if labels["op"] == m.op and labels["size_bytes"] == str(m.size_bytes)
    ]
    assert low == pytest.approx(m.busbw * m.time.median / m.time.high) and low < value
    verdicts = {labels["verdict"]: value for labels, value in found["wirespeed_verdict"]}
    assert set(verdicts) == set(words_of("check"))
    assert [word for word, value in verdicts.items() if value] == ["NOT READY"]
    failed = sum(one.status == "fail" for one in check.findings)
    counted = {labels["status"]: value for labels, value in found["wirespeed_findings"]}
    assert counted["fail"] == failed


@pytest.mark.parametrize("name", [EVIL, "<script>", "\x1b[31m", "half \ud800", "a\\", ""])
def test_a_name_stays_within_its_label(check: Run, name: str) -> None:
    finding = replace(check.findings[0], status="fail", subject=Subject("node", name))
    world = replace(check.world, backend=name)
    made = replace(check, world=world, findings=(finding,), versions={"wirespeed": name})
    text = render(made, Style())
    assert text.encode()
    found = samples(text)
    assert "evil" not in found
    assert len(found["wirespeed_node_findings"]) == 1


def test_a_run_is_a_label_of_one_metric_only(check: Run) -> None:
    for name, series in samples(render(check, Style())).items():
        for labels, _ in series:
            assert ("run" in labels) == (name == "wirespeed_run_info")
            assert "title" not in labels


def test_of_the_same_command_the_newest_is_told(check: Run, bench: Run) -> None:
    newer = replace(check, id="newer", started="2027-01-01T00:00:00Z", exit_code=0)
    text = text_of(newer, check, bench)
    assert text == text_of(check, bench, newer)
    runs = {labels["run"] for labels, _ in samples(text)["wirespeed_run_info"]}
    assert runs == {"newer", bench.id}


def test_too_many_series_are_counted_and_not_told(check: Run) -> None:
    extra = 7
    findings = tuple(
        Finding(id="NODE-001", status="fail", title="x", subject=Subject("node", f"n{number}"))
        for number in range(MOST_SERIES + extra)
    )
    found = samples(render(replace(check, findings=findings), Style()))
    assert len(found["wirespeed_node_findings"]) == MOST_SERIES
    left = {labels["metric"]: n for labels, n in found["wirespeed_series_left_out"]}
    assert left == {"wirespeed_node_findings": extra}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_sample(check: Run, odd: float) -> None:
    made = replace(check, seconds=odd, started="not a time")
    found = samples(render(made, Style()))
    assert "wirespeed_run_duration_seconds" not in found
    assert "wirespeed_run_start_timestamp_seconds" not in found


@pytest.mark.system
def test_promtool_accepts_it(check: Run, bench: Run, train: Run) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("Requires: promtool (Debian's package prometheus)")

    def complaints(text: str) -> Any:
        return subprocess.run(
            [program, "check", "metrics"],
            input=text,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )

    evil = replace(check, command=EVIL, world=replace(check.world, backend=EVIL))
    done = complaints(text_of(check, bench, train, evil))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert complaints("no_help_total 1\n").returncode != 0, "it would complain"
