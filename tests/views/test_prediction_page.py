"""The page of a prediction: its bands, what was measured, where it stops, refusals, hostile names."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.derived_records import (
    CollectiveTime,
    Estimate,
    Prediction,
    Refusal,
    Source,
    StepTime,
    Stretch,
    WorldSize,
)
from wirespeed.views.html.page import prediction_page

EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}")


def around(value: float) -> Estimate:
    return Estimate(value, value * 0.9, value * 1.2)


def made(name: str = "all_reduce", nodes: tuple[int, ...] = (2, 4, 16)) -> Prediction:
    worlds = [WorldSize(n, 8) for n in nodes]
    return Prediction(
        sources=(Source(id="7f3c0a1b", what=name),),
        models=(),
        collectives=tuple(
            CollectiveTime(
                op=name,
                world=world,
                size_bytes=1 << 20,
                time=around(1e-3),
                busbw=around(2e9),
                measured=2e-3 if world.nodes == 4 else None,
                points=8,
                beyond="4 × the nodes" if world.nodes == 16 else "",
            )
            for world in worlds
        ),
        steps=tuple(
            StepTime(
                world=world,
                strategy=name,
                bucket_mb=bucket,
                step=around(0.1 + bucket / 1000),
                efficiency=around(0.8),
                first=0.5,
                samples=9,
            )
            for world in worlds
            for bucket in (25.0, 1.0)
        ),
        stretches=(
            Stretch(strategy=name, bucket_mb=25.0, bound=0.8, nodes=16, low=4, high=16, looked=16),
        ),
        refusals=(Refusal(what=f"{name} on 99 nodes", because="too far", helps="wirespeed bench"),),
        notes=(name,),
    )


def figures(text: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="figure-([^"]+)">(.*?)</script>', text)
    return {name: json.loads(body) for name, body in found}


def test_a_band_holds_its_line_and_marks_tell_what_is_known() -> None:
    drawn = figures(prediction_page(made()))["collectives-1-chart"]["data"]
    band, line, measured = drawn
    assert band["fill"] == "toself" and band["x"] == [2, 4, 16, 16, 4, 2]
    assert band["y"] == pytest.approx([1.8, 1.8, 1.8, 2.4, 2.4, 2.4])
    assert line["y"] == pytest.approx([2, 2, 2])
    assert line["marker"]["symbol"] == ["circle", "circle", "circle-open"]
    assert (measured["x"], measured["y"]) == ([4], [1.0]), "twice the time is half the bandwidth"


def test_of_each_world_the_quickest_bucket_is_drawn_and_where_it_stops() -> None:
    drawn = figures(prediction_page(made()))
    assert drawn["steps-time"]["data"][1]["y"] == pytest.approx([101.0] * 3)
    assert all(
        text.startswith(("2 × 8: 1 MB", "4 × 8: 1 MB", "16 × 8: 1 MB"))
        for text in drawn["steps-time"]["data"][1]["customdata"]
    )
    stops = drawn["steps-efficiency"]["data"][-1]
    assert (stops["x"], stops["y"]) == ([16], [0.8])


def test_worlds_on_one_machine_are_told_by_their_ranks() -> None:
    one = made()
    on_one = [replace(row, world=WorldSize(1, 8 * row.world.nodes)) for row in one.collectives]
    drawn = figures(prediction_page(replace(one, collectives=tuple(on_one), steps=())))
    assert drawn["collectives-1-chart"]["data"][1]["x"] == [16, 32, 128]


def test_a_refusal_says_why_and_what_would_help() -> None:
    text = prediction_page(made())
    refused = text.partition('<section id="refused">')[2].partition("</section>")[0]
    assert "99 nodes" in refused and "too far" in refused and "wirespeed bench" in refused
    assert 'class="verdict warn"' in text
    nothing = prediction_page(replace(made(), collectives=(), steps=()))
    assert "Nothing could be predicted" in nothing and figures(nothing) == {}


def test_links_of_the_page_lead_somewhere() -> None:
    text = prediction_page(made())
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    links = re.findall(r'href="#([^"]+)"', text)
    assert set(links) - {"content"} <= set(ids) and "steps" in links


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("name", [*EVIL, "a\x1b[31m\u202eb"])
def test_hostile_names_are_text(name: str) -> None:
    text = prediction_page(made(name))
    before, _, _ = text.partition("plotly.js v")
    assert "<script>alert" not in text and "<img src=x" not in text
    assert "\x1b" not in before and "\u202e" not in before
    for drawn in figures(text).values():
        assert all("<" not in trace["name"] for trace in drawn["data"]), "plotly reads HTML there"
