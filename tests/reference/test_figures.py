"""The table of figures: every row has a source, and what is exported is read again."""

import csv
import io
import re
from dataclasses import replace

import pytest

from wirespeed.errors import InputError
from wirespeed.reference.figures import (
    COLUMNS,
    Figure,
    figures_from_csv,
    figures_to_csv,
    shipped_figures,
)

OWN = Figure(
    name="monday", system="AMD EPYC", gpu="cpu", gpus_per_node=2, nodes=1, interconnect="memory",
    collective="all_gather", size_bytes=1 << 20, busbw=1e9, busbw_range=(9e8, 1.1e9), time_s=5e-4,
    time_range=(4.5e-4, 5.5e-4), source="run 91ae33fe", published="2026-11-03",
)  # fmt: skip


def test_every_shipped_figure_has_a_source_and_a_date() -> None:
    figures = shipped_figures()
    assert len(figures) == 186
    assert all(one.source and one.read for one in figures)
    threads = [one for one in figures if "#" in one.source]
    assert len(threads) == 48
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", one.published) for one in threads)
    assert all(one.busbw and one.interconnect and one.system for one in figures)


@pytest.mark.parametrize(
    ("system", "op", "size", "gbps", "kind"),
    [
        ("A100 SXM x8", "all_reduce", 16 << 30, 234.89, "measured"),
        ("Azure NDv5", "all_reduce", 8 << 30, 460, "gate"),
        ("AWS p5", "all_reduce", 128 << 20, 289, "measured"),
        ("GCP A3 Mega over plain TCP", "all_reduce", None, 4, "untuned"),
        ("one card of 400 Gbit/s a GPU", "all_to_all", None, 48.5, "rule"),
        ("8 cards of 400 Gbit/s", "all_reduce", None, 376, "rule"),
        ("MI300X x2", "all_reduce", 4 << 30, 47.7, "measured"),
        ("A100, 16 nodes", "all_reduce", 512 << 20, 41.33, "measured"),
        ("GB200 NVL72", "all_reduce", 2 << 30, 757.78, "measured"),
        ("H100, 4 a node, 2 nodes", "all_reduce", 8 << 30, 194.5, "measured"),
    ],
)
def test_figures_are_those_of_their_sources(
    system: str, op: str, size: int | None, gbps: float, kind: str
) -> None:
    alike = [one for one in shipped_figures() if (one.system, one.size_bytes) == (system, size)]
    assert [(one.collective, one.kind) for one in alike] == [(op, kind)]
    assert alike[0].busbw == pytest.approx(gbps * 1e9)


@pytest.mark.parametrize(
    ("published", "read", "told"),
    [
        ("2022-11-17", "2026-11", "x#1, 2022-11-17, read 2026-11"),
        ("", "2026-11", "x#1, date unknown, read 2026-11"),
        ("2026-11-03", "", "x#1, 2026-11-03"),
        ("", "", "x#1"),
    ],
)
def test_both_dates_are_told(published: str, read: str, told: str) -> None:
    assert replace(OWN, source="x#1", published=published, read=read).dated == told


def test_what_is_exported_is_read_again() -> None:
    bare = Figure(interconnect="ib", collective="barrier", size_bytes=0, time_s=1e-5, source="x")
    figures = (OWN, bare, *shipped_figures())
    text = figures_to_csv(figures)
    again = figures_from_csv(text, source="x")
    assert figures_to_csv(again) == text
    assert (again[1].collective, again[1].size_bytes, again[1].gpu) == ("barrier", 0, "")
    assert again[0].busbw_range == pytest.approx(OWN.busbw_range)
    assert again[0].time_range == pytest.approx(OWN.time_range)


def test_a_cell_that_a_spreadsheet_would_run_is_inert_and_comes_back() -> None:
    hostile = replace(OWN, system="=cmd|' /C calc'!A0", source="@SUM(1,2)")
    text = figures_to_csv([hostile])
    cells = list(csv.reader(io.StringIO(text)))[1]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    (again,) = figures_from_csv(text, source="x")
    assert (again.system, again.source) == (hostile.system, hostile.source)


GOOD = "collective,interconnect,source,busbw_GBps,size\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no column collective, interconnect, source"),
        ("a,b\n1,2\n", "no column"),
        (GOOD + "all_reduce,ib,me,0,8G\n", "f.csv:2: busbw_GBps is '0'"),
        (GOOD + "all_reduce,ib,me,nan,8G\n", "f.csv:2: busbw_GBps is 'nan'"),
        (GOOD + "all_reduce,ib,me,1e99,8G\n", "busbw_GBps is '1e99'"),
        (GOOD + "all_reduce,ib,me,,8G\n", "busbw_GBps is ''"),
        (GOOD + "all_reduce,ib,me,5,8X\n", "f.csv:2: '8X' is not a size"),
        (GOOD + "all_reduce,wifi,me,5,8G\n", "interconnect is 'wifi'"),
        (GOOD + "all_reduce,ib,,5,8G\n", "source is ''"),
        (GOOD + "all_reduce,ib,me,5,8G\nall_deduce,ib,me,5,8G\n", "f.csv:3: unknown operation"),
        (GOOD + 'all_reduce,ib,"me,5,8G\n', "unexpected end of data"),
        (GOOD + "all_reduce\n", "interconnect is ''"),
    ],
)
def test_a_wrong_row_is_named_by_line_and_column(text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        figures_from_csv(text, source="f.csv")
    assert told in caught.value.saw
    assert caught.value.expected


def test_columns_may_come_in_any_order_and_unknown_ones_are_left() -> None:
    text = "mine,source,busbw_GBps,interconnect,collective\n1,me,5,ib,allreduce_perf\n"
    (one,) = figures_from_csv(text.replace("allreduce_perf", "all-reduce"), source="x", name="n")
    assert (one.name, one.collective, one.busbw, one.size_bytes) == ("n", "all_reduce", 5e9, None)
    assert set(COLUMNS) >= {"gpu", "nodes", "kind", "published"}


EXPECTED = """\
system,collective,size,busbw_GBps,kind
H100 SXM x8,all_reduce,8G,478.87,measured
H200 SXM x8,reduce_scatter,16G,362.9,measured
A100 x16 nodes,all_reduce,1G,45.42,measured
H100 64 GPUs,all_reduce,8G,386.6,measured
H100 A3 Mega untuned,all_reduce,,4,untuned
400G IB,alltoall,,48.5,rule
H100 NVLink,all_reduce,,450,rule
H100 NVLink,all_gather,,400,rule
H100 NVLink,send_recv,,100,rule
H100 x4 a node,all_reduce,8G,194.62,measured
"""
"""Of the systems that wirespeed stands in for, as their pages print them."""


@pytest.mark.parametrize("row", list(csv.DictReader(io.StringIO(EXPECTED))), ids=str)
def test_what_the_older_systems_expect_is_known(row: dict[str, str]) -> None:
    known = {
        (one.collective, one.size_bytes, one.kind)
        for one in shipped_figures()
        if one.busbw == pytest.approx(float(row["busbw_GBps"]) * 1e9)
    }
    wanted = figures_from_csv(
        "collective,interconnect,source,size,busbw_GBps,kind\n"
        f"{row['collective']},ib,x,{row['size']},{row['busbw_GBps']},{row['kind']}\n",
        source="x",
    )[0]
    assert (wanted.collective, wanted.size_bytes, wanted.kind) in known


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "send_recv"])
def test_h100s_collectives_are_known(op: str) -> None:
    from wirespeed.reference.known import find
    from wirespeed.reference.shape import shape_told

    match = find(shipped_figures(), shape_told("H100", per_node=8, nodes=1), op, 8 << 30)
    assert match is not None
    told = match.expectation("reference")
    assert told.may_fail == (op == "all_reduce"), "a rule of thumb fails nobody"
