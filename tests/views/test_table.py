"""What the table says, apart from its exact letters."""

import re
from dataclasses import replace

import pytest

import usual
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, Run, Subject
from wirespeed.views import FORMATS, Style, render

NOWHERE = usual.world(size=0, backend="", launcher="")
EMPTY = usual.run(
    id="00000000", verdict="UNKNOWN", exit_code=3, started="", seconds=0.0, world=NOWHERE
)
TEXTS = ("table", "wide", "md", "nccl-tests")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("ascii", [False, True])
def test_an_empty_run_has_a_view(format: str, ascii: bool) -> None:
    text = render(EMPTY, format, Style(ascii=ascii))
    assert text.endswith("\n")
    assert "00000000" in text or (format, text) == ("csv", "run\n")


@pytest.mark.parametrize("format", FORMATS)
def test_ascii_is_ascii(format: str, check: Run, bench: Run) -> None:
    for run in (check, bench):
        assert render(run, format, Style(ascii=True, verbose=True)).isascii()


def test_evidence_alone_is_told_with_v() -> None:
    pass_ = Finding(id="BW-003", status="pass", title="all_gather", evidence=("0.10 of 8 GB/s",))
    run = replace(EMPTY, findings=(pass_,))
    assert "0.10 of 8 GB/s" in render(run, "table", Style(verbose=True))
    assert "0.10 of 8 GB/s" not in render(run, "table", Style())


def test_every_failure_has_its_lines_aligned(check: Run) -> None:
    text = render(check, "table", Style())
    (block,) = re.findall(r"✗ network.*?\n((?:    \w.*\n)+)", text)
    starts = {line[4:].split()[0]: line.index(line.split()[1]) for line in block.splitlines()}
    assert set(starts) == {"saw", "expected", "because", "costs", "fix", "next", "evidence"}
    assert set(starts.values()) == {14}


def test_each_time_stands_with_interval_and_samples(check: Run, bench: Run) -> None:
    for run, rows in ((check, 3), (bench, 9)):
        text = render(run, "table", Style())
        found = re.findall(r"[\d.]+ (?:µs|ms)\s+±[\d.]+ %\s+\d+", text)
        assert len(found) == rows


def test_a_figure_without_an_interval_says_so(bench: Run) -> None:
    one = bench.measurements[0]
    time = replace(one.time, low=one.time.median, high=one.time.median)
    text = render(replace(bench, measurements=(replace(one, time=time),)), "table", Style())
    assert "±" not in text
    assert "no interval" in text


def test_the_closing_lines(check: Run, bench: Run) -> None:
    *_, verdict, following = render(check, "table", Style()).splitlines()
    assert re.fullmatch(
        r"NOT READY   2 failed, 1 warning, 2 passed, 1 not checked   14.2 s   exit 1   "
        r"run 91ae33fe",
        verdict,
    )
    assert following == "next: wirespeed check --only network --hosts node-b"
    *_, last = render(bench, "table", Style()).splitlines()
    assert last.startswith("READY   1 passed, 9 measurements ")


def test_choices_with_reasons_and_all_evidence_come_with_verbose(check: Run) -> None:
    short, long = (render(check, "table", Style(verbose=v)) for v in (False, True))
    assert "the route to node-b" not in short
    assert "the route to node-b" in long
    assert "3 more with -v" in short
    assert "8 KiB: rank 2" not in short
    assert "8 KiB: rank 2" in long


def test_colour_is_never_the_only_sign(check: Run) -> None:
    plain, colored = (render(check, "table", Style(color=c)) for c in (False, True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert colored.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9]\d*m", colored))


@pytest.mark.parametrize("format", TEXTS)
def test_foreign_text_steers_no_terminal(format: str, check: Run) -> None:
    evil = "a\x1b]0;owned\x07b\rc\nd\u202ee\x9b31mf"
    finding = Finding(
        id="NET-001\x1b[2J",
        status="fail",
        title=evil,
        subject=Subject("node", evil),
        saw=evil,
        next=evil,
        evidence=(evil,),
    )
    node = replace(
        check.world.nodes[0], host=evil, facts=from_json(Facts, {"cpu.model": evil}), gpus=()
    )
    run = replace(
        check,
        id="91ae\x1b[2J",
        findings=(finding,),
        world=replace(check.world, nodes=(node,), backend=evil),
        measurements=tuple(replace(m, op=evil, dtype=evil) for m in check.measurements),
    )
    text = render(run, format, Style(verbose=True))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_sentences_are_wrapped_and_commands_are_not(width: int, check: Run) -> None:
    command = "wirespeed check --hosts " + ",".join(f"node-{n}" for n in range(40))
    finding = replace(check.findings[2], saw="word " * 80, next=command)
    run = replace(check, findings=(finding,), measurements=(), verifications=())
    lines = render(run, "table", Style(width=width)).splitlines()
    assert any(command in line for line in lines)
    body = [line for line in lines[1:] if command not in line and not line.startswith("NOT")]
    assert max(map(len, body)) <= width
    assert sum("word" in line for line in body) >= 400 // width


def test_not_checked_is_said_once_with_its_reason(check: Run) -> None:
    for title in ("MIG mode not checked", "GPUs not compared", "2 configurations"):
        finding = Finding(id="A-1", status="not_checked", title=title, because="no NVML")
        text = render(replace(EMPTY, findings=(finding,)), "table", Style())
        (line,) = [line for line in text.splitlines() if "A-1" in line]
        assert len(re.findall("not (?:checked|compared)", line)) == 1
        assert ": no NVML" in line


def test_markdown_tables_stay_tables(check: Run) -> None:
    finding = replace(check.findings[2], title="a|b <script> `c` *d* [e](f) & \\", fix="x\n# y")
    text = render(replace(check, findings=(finding,)), "md", Style())
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 9), line
    assert "<script>" not in text
    assert "a\\|b \\<script\\> \\`c\\` \\*d\\* \\[e\\](f) &amp; \\\\" in text
    assert "\n# y" not in text


def test_wide_has_every_figure(check: Run) -> None:
    text = render(check, "wide", Style())
    header = next(line for line in text.splitlines() if line.startswith("op "))
    for name in ("p95", "p99", "skew", "last rank", "groups", "timing", "root", "warm", "count"):
        assert name in header
    assert "3 (42%)" in text
    assert "2048–4095" in text
    assert "float8 is not supported by this backend" in text
