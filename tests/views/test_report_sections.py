"""The whole report: its sections, its links, its curves; runs of many ranks; what names cannot do."""

import html as html_module
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from html_reader import Reader
from wirespeed.compare.compare import SideRuns, compare
from wirespeed.errors import UsageError
from wirespeed.model.bench_records import Setting, SettingFigures
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, Located, NodeFacts, PairFigures, Run, Subject
from wirespeed.views import Style
from wirespeed.views.html.collectives import Line, busbw_chart
from wirespeed.views.html.nodes import rank_slowness
from wirespeed.views.html.page import page, report
from wirespeed.views.html.parts import source
from wirespeed.views.md import render_all

EVIL = "<script>alert(1)</script>"
SECTIONS = ["culprits", "collectives", "nodes", "environment", "others"]


def both(*runs: Run) -> str:
    return report(runs, (), compare([SideRuns((run,)) for run in runs]))


@pytest.fixture
def pages(check: Run, bench: Run, train: Run) -> list[Reader]:
    whole = [page(check), page(bench), page(train), both(check, bench, train)]
    return [Reader(text) for text in whole]


def test_every_section_that_has_something_to_say_is_there_in_order(check: Run) -> None:
    read = Reader(page(check))
    assert [name for name in read.ids if name in SECTIONS] == SECTIONS


def test_links_lead_somewhere_and_ids_are_given_once(pages: list[Reader]) -> None:
    for read in pages:
        assert len(read.ids) == len(set(read.ids))
        links = [one[1:] for one in read.named("href") if one.startswith("#")]
        assert set(links) <= set(read.ids)
        assert set(read.named("aria-describedby", "aria-labelledby")) <= set(read.ids)


def test_headings_skip_no_level_and_start_with_the_verdict(pages: list[Reader]) -> None:
    for read in pages:
        headings = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
        assert headings[0] == 1 and headings.count(1) == 1
        assert all(b <= a + 1 for a, b in pairwise(headings))


@pytest.mark.slow
def test_every_picture_and_region_has_a_name(pages: list[Reader]) -> None:
    for read in pages:
        pictures = [told for _, told in read.tags if told.get("role") in ("img", "region")]
        assert all({"aria-label", "aria-labelledby"} & told.keys() for told in pictures)


def test_each_finding_has_an_address(check: Run) -> None:
    read = Reader(page(check))
    assert {"finding-net-003", "finding-col-003", "finding-gpu-011"} <= set(read.ids)


def test_findings_alike_of_many_nodes_are_one_card(check: Run) -> None:
    alike = tuple(
        Finding(
            id="NODE-004",
            status="warn",
            title=f"n{n} has another firmware",
            subject=Subject("node", f"n{n}"),
            saw="1",
        )
        for n in range(50)
    )
    text = page(replace(check, findings=alike))
    assert text.count('<article class="finding') == 1
    assert "the same in 49 more" in text
    assert all(f"n{n} has another firmware" in text for n in range(50))


def test_what_one_rank_does_wrong_in_many_ways_is_one_card_with_each_in_full(check: Run) -> None:
    def wrong(op: str, rank: int, saw: str) -> Finding:
        return Finding(
            id=f"COL-{op}",
            status="fail",
            title=f"{op} delivers wrong data on rank {rank}",
            subject=Subject("rank", str(rank)),
            saw=saw,
            because="bit flip",
            fix="look for ECC errors",
            evidence=(f"bytes of {op}",),
        )

    found = (wrong("a", 1, "12 of 9"), wrong("b", 1, "34 of 9"), wrong("a", 2, "56 of 9"))
    text = page(replace(check, findings=found))
    assert text.count('<article class="finding') == 2
    assert text.count("look for ECC errors") == 2
    assert all(saw in text for saw in ("12 of 9", "34 of 9", "56 of 9"))
    assert "bytes of b" in text
    assert {"finding-col-a", "finding-col-b"} <= set(Reader(text).ids)


def test_a_curve_has_its_points_and_its_intervals(check: Run) -> None:
    rows = tuple(m for m in check.measurements if m.op == "all_reduce")
    drawn = busbw_chart([Line("out of place", rows)])
    assert drawn is not None
    (curve,) = drawn["data"]
    assert curve["x"] == [m.size_bytes for m in rows]
    assert curve["y"] == pytest.approx([m.busbw / 1e9 for m in rows], rel=1e-5)
    assert all(part > 0 for part in curve["error_y"]["array"])


def test_the_slow_rank_stands_out(check: Run) -> None:
    m = next(m for m in check.measurements if m.op == "all_reduce")
    slow = replace(m, rank_medians=(1e-3, 1e-3, 1e-3, 2e-3))
    assert rank_slowness(replace(check, measurements=(slow,)))[3] == pytest.approx(2)


def test_of_many_nodes_the_worst_stand_first(check: Run) -> None:
    nodes = tuple(NodeFacts(host=f"n{n:04d}", ranks=(n,), facts=Facts()) for n in range(100))
    bad = Finding(id="X-001", status="fail", title="x", subject=Subject("node", "n0077"))
    made = replace(check, world=replace(check.world, nodes=nodes, size=100), findings=(bad,))
    text = page(made)
    table = text.partition('<table id="nodes-1">')[2].partition("</table>")[0]
    assert table.index("n0077") < table.index("n0000")
    assert table.count("<tr>") == 21 and "All 100 nodes" in text


def test_compared_settings_have_a_section_of_their_own(bench: Run) -> None:
    times = {"median": 1e-3, "low": 9e-4, "high": 2e-3, "round_times": (1e-3, 1e-3)}
    figures = SettingFigures(case="all_reduce 1 MiB", **times)  # type: ignore[arg-type]
    usual = Setting(name="default", verdict="default", figures=(figures,), rounds=(1, 2))
    other = replace(usual, name=EVIL, values={"NCCL_ALGO": EVIL}, verdict="not enough rounds")
    text = page(replace(bench, settings=(usual, other)))
    section = text.partition('<section id="settings">')[2].partition("</section>")[0]
    assert "default" in section and "&lt;script&gt;" in section and "<script>" not in section
    assert 'id="settings"' not in page(bench)


def test_several_runs_need_a_comparison(check: Run, bench: Run) -> None:
    with pytest.raises(UsageError):
        report([check, bench])
    with pytest.raises(UsageError):
        report([])
    assert report([check]) == page(check)


def test_the_comparison_stands_before_the_runs(bench: Run) -> None:
    later = replace(bench, id="00ff00ff", versions={**bench.versions, "torch": "9.9.9"})
    text = both(bench, later)
    read = Reader(text)
    order = [name for name in read.ids if name in ("verdict", "runs", "comparison")]
    assert order == ["verdict", "runs", "comparison"]
    assert read.ids.index("comparison") < read.ids.index("run-1-7f3c0a1b-run")
    assert "9.9.9" in text and "what differs between" in text


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("name", [EVIL, '"><img src=x onerror=alert(1)>', "{{ 7*7 }}"])
def test_a_hostile_name_is_text_everywhere(check: Run, bench: Run, name: str) -> None:
    def with_name(run: Run, text: str) -> Run:
        node = NodeFacts(
            host=text,
            ranks=(0, 1, 2, 3),
            facts=from_json(Facts, {text: text}),
            gpus=({"name": text},),
        )
        finding = replace(
            check.findings[2], title=text, saw=text, evidence=(text,), subject=Subject("node", text)
        )
        return replace(
            run,
            world=replace(run.world, nodes=(node,), backend=text),
            findings=(finding, replace(finding, id=text)),
            measurements=tuple(replace(m, engine=text) for m in run.measurements),
            versions={text: text},
            environment={text: text},
            config={text: text},
        )

    evil, harmless = (both(with_name(check, text), with_name(bench, text)) for text in (name, "x"))
    tags = [[tag for tag, _ in Reader(text).tags] for text in (evil, harmless)]
    assert tags[0] == tags[1]
    assert html_module.escape(name, quote=False)[:5] in evil.replace("&#34;", '"')


def test_markdown_calls_nobody_and_links_nowhere(check: Run, bench: Run) -> None:
    name = "@everyone https://evil.example www.evil.example [a](b) <b>"
    finding = replace(check.findings[2], title=name, subject=Subject("node", name), saw=name)
    runs = [replace(check, findings=(finding,)), bench]
    text = render_all(runs, Style(), compare([SideRuns((run,)) for run in runs]))
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert not re.search(r"@\w|https?:|www\.|(?<!\\)\]\(|<b>", outside)
    assert "everyone" in outside
    assert text.startswith("# 2 runs: 1 NOT READY, 1 READY\n")
    assert text.count("<details>") == text.count("</details>") == 2


# The palette, by the formulas of WCAG 2.2 (w3.org/TR/WCAG22/#dfn-contrast-ratio).

TEXT = ("--text", "--soft", "--bad", "--warn", "--good", "--link", "--mark")
LINES = ("--c-backward", "--mark", "--good", "--c-violet", "--c-gold", "--soft")


def palettes() -> list[dict[str, str]]:
    """Light, dark: a variable of the one that the other does not set is the same."""
    css = str(source("style.css"))
    light, dark = (
        dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", part))
        for part in css.split("prefers-color-scheme: dark", 1)
    )
    return [light, {**light, **dark}]


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark"])
def test_text_and_lines_stand_out_from_the_page(palette: dict[str, Any]) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for behind in ("--page", "--card"):
        for name in TEXT:
            assert contrast(palette[name], palette[behind]) >= 4.5, f"{name} on {behind}"
        for name in LINES:
            assert contrast(palette[name], palette[behind]) >= 3, f"{name} on {behind}"
    assert contrast(palette["--text"], palette["--code"]) >= 4.5


def test_a_node_tells_the_rates_of_its_network(check: Run) -> None:
    """With the names that the facts of a node have."""
    node = NodeFacts(
        host="n0",
        ranks=(0,),
        facts=Facts(),
        nics=({"name": "eth0", "speed_Gbitps": 25.0},),
        rdma=({"device": "mlx5_0", "port": 1, "rate_Gbitps": 400.0},) * 2,
    )
    text = page(replace(check, world=replace(check.world, nodes=(node,))))
    assert "eth0 25 Gbit/s" in text and "2 × adapter 400 Gbit/s" in text


def test_markdown_of_many_nodes_holds_no_matrix_of_them(check: Run) -> None:
    hosts = tuple(f"n{n:04d}" for n in range(300))
    pairs = tuple(
        PairFigures(
            first=first,
            second=second,
            rail=0,
            round=0,
            latency=None,
            forth=1e9 * (number + 1),
            back=1e9 * (number + 1),
            both=2e9,
        )
        for number, (first, second) in enumerate(zip(hosts[::2], hosts[1::2], strict=True))
    )
    located = Located(
        over="nodes",
        nodes=hosts,
        rounds=1,
        pairs_measured=150,
        pairs_possible=44850,
        stopped="x",
        compute=(),
        pairs=pairs,
    )
    text = render_all([replace(check, located=located)], Style(), None)
    assert "10 slowest of 300" in text and "n0000" in text and "n0299" not in text
