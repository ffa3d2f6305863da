"""The page: complete, offline, the same for the same run, and safe whatever a host is called."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

import usual
from html_reader import Reader
from wirespeed.model.records import Finding, Located, PairFigures, Run, Subject
from wirespeed.views.html.heatmap import MOST_IN_MAP, NOT_MEASURED, Maps
from wirespeed.views.html.page import page
from wirespeed.views.html.parts import script_json
from wirespeed.views.pairs import suspects_of

GB = 1e9
EVIL = '<script>alert("x")</script>'
URL = re.compile(r"https?://|//[a-z]", re.IGNORECASE)


def culprit(name: str, *, id: str = "LOC-001", kind: Any = "node") -> Finding:
    return Finding(
        id=id,
        status="fail",
        title=f"{name} is slow",
        subject=Subject(kind, name),
        saw="median 1.00 GB/s",
        because="slow with every partner",
        costs="every collective",
        fix="its cable",
        next=f"on {name}: ethtool",
        evidence=("round 1", "round 2"),
    )


def pair(first: str, second: str, rate: float = 10 * GB, **more: Any) -> PairFigures:
    figures = {"rail": 0, "round": 0, "latency": 5e-6, "forth": rate, "back": rate, "both": rate}
    return PairFigures(first=first, second=second, **(figures | more))


def located(nodes: tuple[str, ...], pairs: tuple[PairFigures, ...]) -> Located:
    return Located(
        over="nodes",
        nodes=nodes,
        rounds=3,
        pairs_measured=len(pairs),
        pairs_possible=len(nodes) * (len(nodes) - 1) // 2,
        stopped="every node is clear",
        compute=(),
        pairs=pairs,
    )


def run(of: Located | None, *findings: Finding) -> Run:
    return usual.run(
        command="locate",
        verdict="NOT READY" if findings else "READY",
        exit_code=1 if findings else 0,
        world=usual.world(size=4),
        versions={"wirespeed": "0.1.0"},
        findings=findings,
        located=of,
    )


def four(slow: str = "c") -> Run:
    """Four nodes, one of them slow; a and b were not paired."""
    names = ("a", "b", slow, "d")
    slowly = tuple(pair(name, slow, GB) for name in "abd")
    return run(located(names, (*slowly, pair("a", "d"), pair("b", "d"))), culprit(slow))


def test_all_sections_are_there() -> None:
    read = Reader(page(four()))
    assert {"verdict", "culprits", "maps", "map-bandwidth", "map-latency"} <= set(read.ids)
    assert "NOT READY" in read.text
    for words in ("c is slow", "LOC-001", "slow with every partner", "its cable", "on c: ethtool"):
        assert words in read.text
    assert set(read.data) == {"figure-bandwidth", "figure-latency"}
    assert len(read.code) == 3, "what opens folded parts, plotly.js and what draws with it"


def test_the_same_run_gives_the_same_page() -> None:
    assert page(four()) == page(four())


@pytest.mark.parametrize(
    "name", [EVIL, '"><img src=x onerror=alert(1)>', "</script><b>", "{{ 7*7 }}"]
)
def test_a_host_name_stays_text(name: str) -> None:
    harmless, evil = Reader(page(four())), Reader(page(four(name)))
    assert [tag for tag, _ in evil.tags] == [tag for tag, _ in harmless.tags]
    assert evil.code == harmless.code
    assert f"{name} is slow" in evil.text


def test_plotly_gets_no_markup_from_a_host_name() -> None:
    """Plotly makes links of `<a href=…>` in a label."""
    drawn = Maps(four('<a href="http://evil">').located).figure()  # type: ignore[arg-type]
    shown = [*drawn["data"][0]["x"], *drawn["layout"]["xaxis"]["ticktext"]]
    assert any("&lt;a href" in text for text in shown)
    assert not any("<a" in text for text in shown)


def test_json_cannot_end_its_element() -> None:
    text = script_json({"a": "</script><!--\u2028&"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"a": "</script><!--\u2028&"}


@pytest.mark.parametrize("name", ["\x1b[31mred", "\u202egnp.exe", "half \ud800", "two\nlines"])
def test_odd_characters_cannot_steer_the_page(name: str) -> None:
    text = page(four(name))
    assert text.encode()
    plain = text.replace(max(Reader(text).code, key=len), "")
    assert not re.search("[\x1b\u202e\ud800]", plain)


def test_nothing_is_fetched() -> None:
    text = page(four())
    assert type(text) is str
    read = Reader(text)
    plotly = max(read.code, key=len)
    assert URL.search(plotly), "the search finds nothing even where there are addresses"
    assert not URL.search(text.replace(plotly, ""))
    loaded = {"src", "href", "srcset", "action", "poster"}
    targets = [str(a["href"]) for _, a in read.tags if loaded & set(a)]
    assert "data:," in targets
    assert all(target.startswith("#") for target in targets if target != "data:,")
    (policy,) = [a["content"] for tag, a in read.tags if tag == "meta" and "http-equiv" in a]
    assert str(policy).startswith("default-src 'none'")
    assert "http" not in str(policy) and str(policy).count("'sha256-") == 3


def test_the_slow_row_and_column_are_framed_and_bright() -> None:
    made = four()
    assert made.located is not None
    suspects = suspects_of(made.findings, made.located.nodes)
    drawn = Maps(made.located, suspects).figure()
    measured = drawn["data"][0]
    assert min(measured["z"][2][0], measured["z"][0][2]) >= measured["zmax"]
    assert measured["z"][0][3] == 0, "a usual pair"
    assert "<b>▶ c</b>" in drawn["layout"]["xaxis"]["ticktext"]
    boxes = [(box["x0"], box["x1"], box["y0"], box["y1"]) for box in drawn["layout"]["shapes"]]
    assert boxes == [(-0.5, 3.5, 1.5, 2.5), (1.5, 2.5, -0.5, 3.5)]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("gpu-1.a.example.org", "gpu-2.a.example.org"), ["gpu-1", "gpu-2"]),
        (("gpu-1.a.example.org", "gpu-1.b.example.org"), ["gpu-1.a", "gpu-1.b"]),
        (("10.0.0.1", "10.1.0.1"), ["10.0.0.1", "10.1.0.1"]),
        (("node-0", "node-1.org"), ["node-0", "node-1.org"]),
    ],
)
def test_the_domain_that_all_share_is_left_out_on_the_axes_only(
    names: tuple[str, str], shown: list[str]
) -> None:
    drawn = Maps(located(names, (pair(*names),))).figure()
    assert drawn["layout"]["xaxis"]["ticktext"] == shown
    assert drawn["data"][0]["x"] == list(names), "the hover text has the whole name"


def test_an_unmeasured_pair_is_empty_and_says_so() -> None:
    made = four().located
    assert made is not None
    measured, empty = Maps(made).figure()["data"]
    assert measured["z"][0][1] is None and empty["z"][0][1] == 0
    assert empty["customdata"][0][1] == NOT_MEASURED
    assert measured["z"][0][0] is None and empty["z"][0][0] is None, "a node with itself"


def test_the_hover_text_has_both_figures() -> None:
    made = located(("a", "b"), (pair("a", "b", back=4 * GB), pair("a", "b", 20 * GB, round=1)))
    for quantity in ("bandwidth", "latency"):
        said = Maps(made).figure(quantity)["data"][0]["customdata"]  # type: ignore[arg-type]
        assert said[0][1] == "15.0 GB/s, latency 5.00 µs, medians of 2 readings"
        assert said[1][0] == "12.0 GB/s, latency 5.00 µs, medians of 2 readings"


def test_where_nothing_came_through_the_cell_is_brightest() -> None:
    made = located(("a", "b", "c"), (pair("a", "b"), pair("a", "c", 0.0, latency=None)))
    measured = Maps(made).figure()["data"][0]
    assert measured["z"][0][2] == measured["zmax"]
    assert "nothing came through" in measured["customdata"][0][2]
    empty = Maps(made).figure("latency")["data"][1]
    assert "latency not measured" in empty["customdata"][0][2]


def test_figures_that_are_no_numbers_leave_the_cell_empty() -> None:
    odd = pair("a", "b", float("inf"), latency=float("nan"))
    text = page(run(located(("a", "b", "c"), (odd, pair("a", "c")))))
    assert Reader(text).data["figure-bandwidth"]["data"][0]["z"][0][1] is None


def test_each_rail_has_a_map_and_the_slow_one_is_marked() -> None:
    pairs = tuple(pair("a", "b", (10 - 5 * rail) * GB, rail=rail) for rail in (0, 1))
    text = page(run(located(("a", "b"), pairs), culprit("rail 1", id="LOC-003", kind="rail")))
    read = Reader(text)
    assert {"figure-rail-0", "figure-rail-1"} <= set(read.data)
    assert "Rail 1 ▶ named above" in read.text and "Rail 0 ▶" not in read.text
    scales = {
        json.dumps([figure["data"][0][end] for end in ("zmin", "zmax")])
        for figure in (read.data["figure-rail-0"], read.data["figure-rail-1"])
    }
    assert len(scales) == 1, "rails are compared by colour"


def test_of_many_nodes_the_named_the_slowest_and_the_median_are_shown() -> None:
    names = tuple(f"n{number}" for number in range(MOST_IN_MAP + 72))
    slow = pair("n7", "n9", GB)
    pairs = (*(pair(a, b) for a, b in zip(names[::2], names[1::2], strict=True)), slow)
    made = run(located(names, pairs), culprit("n150"))
    read = Reader(page(made))
    rows = read.data["figure-bandwidth"]["data"][0]["y"]
    assert {"n7", "n9", "n150"} <= set(rows) and len(rows) == 25
    assert rows[-1] == "median of 176 others"
    assert "200 nodes do not fit" in read.text
    assert read.data["figure-bandwidth"]["data"][0]["z"][-1][-1] is not None


def test_without_pairs_it_says_why() -> None:
    read = Reader(page(run(None)))
    assert "no pair of nodes was measured" in read.text
    assert not any("Plotly" in code for code in read.code), "no figure, no plotly"
    assert "maps" not in Reader(page(replace(run(None), command="check"))).ids


def test_a_run_of_check_is_a_page_too(check: Run, bench: Run) -> None:
    for made in (check, bench):
        read = Reader(page(made))
        assert made.verdict in read.text
        for finding in made.findings:
            assert finding.id in read.text


@pytest.mark.parametrize(
    ("kind", "id", "name", "nodes", "members", "links", "rails", "partial"),
    [
        ("node", "LOC-001", "a", ["a"], [], [], [], False),
        ("node", "LOC-001", "gone", [], [], [], [], False),
        ("node", "LOC-007", "a", [], ["a"], [], [], False),
        ("rail", "LOC-003", "rail 1", [], [], [], [1], False),
        ("rail", "LOC-004", "rail 1 of b", ["b"], [], [], [1], False),
        ("link", "LOC-006", "a <-> b", [], ["a", "b"], [("a", "b")], [], False),
        ("link", "LOC-005", "uplink of a, b and 7 more", [], ["a", "b"], [], [], True),
        ("rank", "LOC-001", "rank 3", ["rank 3"], [], [], [], False),
        ("node", "LOC-008", "x, y and 2 more", ["x, y and 2 more"], [], [], [], True),
        ("node", "NODE-001", "a", [], [], [], [], False),
    ],
)
def test_who_is_marked(
    kind: Any,
    id: str,
    name: str,
    nodes: list[str],
    members: list[str],
    links: list[tuple[str, str]],
    rails: list[int],
    partial: bool,
) -> None:
    known = ("a", "b", "rank 3", "x, y and 2 more")
    found = suspects_of([culprit(name, id=id, kind=kind)], known)
    assert (list(found.nodes), list(found.members)) == (nodes, members)
    assert (list(found.links), list(found.rails), found.partial) == (links, rails, partial)


def test_words_of_the_nodes_table_are_aligned_to_the_left(check: Run) -> None:
    (head,) = re.findall(r'<th scope="col" class="left">node</th>.*', page(check))
    assert '<th scope="col" class="left">ranks</th>' in head and "&lt;" not in head
