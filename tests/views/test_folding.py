"""The default table in few lines: what is folded, what never is, and that nothing is lost on the way."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.records import Finding, Run, Status, Subject
from wirespeed.views import Style, render
from wirespeed.views.findings import folded, short_ids


def finding(id: str, status: Status, title: str = "fine", **more: Any) -> Finding:
    return Finding(id=id, status=status, title=title, **more)


def wrong(number: int, op: str, rank: int = 1, **more: Any) -> Finding:
    fields = {"because": "bit flip", "fix": "look", "saw": f"{number} wrong", **more}
    return finding(
        f"COL-{number:03}",
        "fail",
        f"{op} delivers wrong data on rank {rank}",
        subject=Subject("rank", f"rank {rank}"),
        **fields,
    )


def lines(run: Run, *findings: Finding, command: str = "check") -> list[tuple[str, str, str]]:
    """(status, ids, title) of what is shown."""
    shown = folded(replace(run, command=command, findings=findings))
    return [(one.status, one.id, one.title) for one in shown]


def test_a_long_check_is_a_screen(flip: Run) -> None:
    def count(verbose: bool) -> int:
        text = render(flip, "table", Style(verbose=verbose))
        return len(text.split("\n\noperation")[0].splitlines())

    assert count(verbose=True) > 100
    assert count(verbose=False) < 35


def test_every_id_is_shown_or_counted(flip: Run) -> None:
    shown = folded(flip)
    hidden = len(flip.findings) - len(shown)
    assert hidden > 20
    whole = [one for one in shown if one in flip.findings]
    assert {one.id for one in whole if one.status == "fail"} == {"COL-001"}
    first_of_each = {one.id.split("…")[0].split(",")[0].split(" ")[0] for one in shown}
    assert first_of_each <= {one.id for one in flip.findings}


def test_a_warning_and_a_failure_stay_whole(flip: Run) -> None:
    warned = finding("SKEW-001", "warn", "rank 2 is a straggler", saw="2×", fix="look")
    failed = wrong(1, "all_reduce", evidence=("a", "b"))
    shown = folded(replace(flip, findings=(warned, failed, finding("COL-002", "pass"))))
    assert warned in shown
    assert failed in shown


def test_the_same_failure_again_is_named_in_one_line(flip: Run) -> None:
    found = [wrong(1, "all_reduce"), wrong(2, "reduce_scatter"), wrong(3, "all_gather")]
    shown = folded(replace(flip, findings=tuple(found)))
    assert shown[0] == found[0]
    (rest,) = shown[1:]
    assert (rest.status, rest.id) == ("fail", "COL-002, 003")
    assert rest.title == "the same in 2 more: reduce_scatter, all_gather (-v shows each)"
    assert rest.saw == rest.fix == "", "no details of one in the name of all"


@pytest.mark.parametrize("change", [{"rank": 2}, {"because": "stale"}, {"fix": "else"}])
def test_another_cause_is_another_failure(change: dict[str, Any], flip: Run) -> None:
    found = (wrong(1, "all_reduce"), wrong(2, "all_gather", **change))
    assert folded(replace(flip, findings=found)) == list(found)


def test_failures_of_one_cause_without_common_words_keep_a_line_each(flip: Run) -> None:
    found = [replace(wrong(n, "x"), title=title) for n, title in ((1, "one thing"), (2, "another"))]
    first, second = folded(replace(flip, findings=tuple(found)))
    assert first == found[0]
    assert (second.title, second.saw) == ("another", "")


def test_nodes_that_differ_in_different_ways_stay_whole(flip: Run) -> None:
    def node(name: str, saw: str) -> Finding:
        about = Subject("node", name)
        title = f"{name} has another kernel than node-a"
        return finding("NODE-001", "fail", title, subject=about, saw=saw, because="x", fix="y")

    found = (node("node-b", "5.1"), node("node-c", "5.2"), node("node-d", "5.1"))
    assert [one[2] for one in lines(flip, *found)] == [
        found[0].title,
        "the same in 1 more: node-d (-v shows each)",
        found[1].title,
    ]


def test_unchecked_for_one_reason_share_a_line(flip: Run) -> None:
    found = [
        finding("GPU-001", "not_checked", "PCIe links not checked", because="no NVML"),
        finding("GPU-002", "not_checked", "MIG mode not checked", because="no NVML"),
        finding("GPU-003", "not_checked", "clocks not checked", because="no right to"),
    ]
    assert lines(flip, *found) == [
        ("not_checked", "GPU-001, 002", "PCIe links, MIG mode not checked"),
        ("not_checked", "GPU-003", "clocks not checked"),
    ]
    text = render(replace(flip, findings=tuple(found)), "table", Style())
    assert "PCIe links, MIG mode not checked: no NVML" in text


def test_a_unit_stays_with_its_number(flip: Run) -> None:
    full = [finding(f"NODE-00{n}", "pass", f"disk {n} is {n}8 % full now") for n in (1, 2)]
    assert lines(flip, *full) == [
        ("pass", "NODE-001, 002", "disk 1 is 18 %, disk 2 is 28 % full now"),
    ]
    slow = [
        finding(f"BW-00{n}", "warn", f"{op} 1 KiB: {n} µs (±{n}4 %, n=57)", because="load", fix="x")
        for n, op in enumerate(("all_reduce", "gather"), 1)
    ]
    assert [title for _, _, title in lines(flip, *slow)] == [one.title for one in slow]


def test_uncertain_figures_are_named_calmly_with_one_hint(flip: Run) -> None:
    def uncertain(id: str, op: str) -> Finding:
        title, fix = f"{op} 1 KiB: 1 ms (±90 %, n=3)", "try a quieter machine"
        return finding(id, "measured", title, because="interval wider", fix=fix, next="bench")

    found = (
        uncertain("LAT-001", "all_reduce"),
        uncertain("LAT-002", "gather"),
        uncertain("BW-001", "all_reduce"),
    )
    assert [title for _, _, title in lines(flip, *found)] == [
        "2 operations, 543 µs to 7.53 ms (all_reduce, gather), not judged",
        "1 operation, 0.264 GB/s busbw (all_reduce), not judged",
    ]


def test_what_passed_is_told_with_figures(flip: Run) -> None:
    shown = {one.id: one.title for one in folded(flip) if one.status == "pass"}
    exact = next(title for id, title in shown.items() if id.startswith("COL"))
    assert exact == "2 operations deliver exact data in 2 configurations; barrier holds"
    latency = next(title for id, title in shown.items() if id.startswith("LAT"))
    assert latency == "7 operations, 418 µs to 3.73 ms; no reference for this hardware"
    bandwidth = next(title for id, title in shown.items() if id.startswith("BW"))
    assert bandwidth.startswith("8 operations, 0.253 to 1.18 GB/s busbw; ")


def test_wrong_configurations_never_count_as_exact(flip: Run) -> None:
    passed = tuple(
        finding(f"COL-{n:03}", "pass", f"{op}: data exact")
        for n, op in enumerate(("all_reduce", "reduce"), 1)
    )
    (_, _, title), *_ = lines(flip, *passed)
    assert title == "2 operations deliver exact data in 1 configuration"


def test_nodes_alike_share_a_line(flip: Run) -> None:
    found = [
        finding(f"NODE-00{n}", "pass", f"{name} identical on 2 nodes")
        for n, name in enumerate(("software", "CPUs and memory", "GPUs"), 1)
    ]
    expected = "software, CPUs and memory, GPUs identical on 2 nodes"
    assert lines(flip, *found) == [("pass", "NODE-001…003", expected)]


def test_bench_tells_about_its_figures_only(flip: Run) -> None:
    passed = [finding(id, "pass") for id in ("WORLD-001", "NODE-007", "COL-001", "COL-003")]
    aside = finding("NODE-001", "not_checked", "software not compared", because="one node")
    capable = finding("CAP-001", "not_checked", "2 configurations not checked", because="no float8")
    warned = finding("GPU-001", "warn", "GPU5 at PCIe x8", saw="x8")
    refused = finding("WORLD-002", "not_checked", "cannot be measured", because="no GPU", next="x")
    shown = lines(flip, *passed, aside, capable, warned, refused, command="bench")
    assert [ids for _, ids, _ in shown] == ["WORLD-002", "COL-001, 003", "CAP-001", "GPU-001"]


def test_wide_json_and_verbose_hold_every_finding(flip: Run) -> None:
    texts = [render(flip, format, Style()) for format in ("wide", "json", "jsonl", "md")]
    for text in (*texts, render(flip, "table", Style(verbose=True))):
        assert all(one.id in text for one in flip.findings)


def test_the_counts_are_those_of_all_findings(flip: Run) -> None:
    last = render(flip, "table", Style()).splitlines()[-2]
    assert "9 failed, 21 passed, 20 not checked" in last


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (["COL-001"], "COL-001"),
        (["COL-001", "COL-002"], "COL-001, 002"),
        ([f"COL-{n:03}" for n in range(1, 13)], "COL-001…012"),
        (["A-001", "A-002", "A-003", "B-001"], "A-001 +3"),
        (["A-001", "B-001"], "A-001, B-001"),
        (["LAT-002", "LAT-004", "LAT-006"], "LAT-002 +2"),
        (["CAP-001", "CAP-001"], "CAP-001"),
        (["odd", "A-x"], "odd, A-x"),
    ],
)
def test_short_ids(ids: list[str], shown: str) -> None:
    assert short_ids(finding(id, "pass") for id in ids) == shown


@pytest.mark.parametrize(
    ("config", "launcher", "command"),
    [
        ({"level": "quick"}, "local", "wirespeed check"),
        ({"level": "quick", "ranks": 2, "only": "COL"}, "local", "wirespeed check --ranks 2 --only COL"),
        ({"level": "medium", "backend": "gloo"}, "local", "wirespeed check -l long --backend gloo"),
        ({"level": "long"}, "local", "wirespeed runs show f11b0001 -o wide"),
        ({"level": "quick"}, "torchrun", "wirespeed runs show f11b0001 -o wide"),
    ],
)  # fmt: skip
def test_a_good_check_leads_to_the_next_level(
    config: dict[str, Any], launcher: str, command: str, flip: Run
) -> None:
    good = tuple(one for one in flip.findings if one.status != "fail")
    world = replace(flip.world, launcher=launcher)
    run = replace(flip, verdict="READY", findings=good, config=config, world=world)
    assert render(run, "table", Style()).splitlines()[-1] == f"next: {command}"


def test_a_warning_leads_before_that_and_uncertain_figures_never(flip: Run) -> None:
    good = tuple(one for one in flip.findings if one.status != "fail")
    assert any(one.next for one in good), "uncertain figures have a command of their own"
    warned = finding("SKEW-001", "warn", next="wirespeed bench all_reduce -o wide")
    run = replace(flip, verdict="READY", findings=(*good, warned))
    assert render(run, "table", Style()).endswith(f"next: {warned.next}\n")


def test_long_evidence_is_cut_in_the_table_only(flip: Run) -> None:
    failed = wrong(1, "all_reduce", evidence=("word " * 60 + "end",))
    run = replace(flip, findings=(failed,))
    assert "end" not in render(run, "table", Style()).split("evidence")[1].split("\n\n")[0]
    for text in (render(run, "table", Style(verbose=True)), render(run, "wide", Style())):
        assert "end" in text.split("evidence")[1].split("\n\n")[0]


def test_a_list_is_not_cut_from_what_introduces_it(flip: Run) -> None:
    """Two lines that end with the same list stay two sentences."""
    types = "float32, float64, int8"
    shown = lines(
        flip,
        finding("COMP-001", "pass", f"products of 1 device are right: {types}"),
        finding("COMP-002", "pass", f"repeats of a product give the same bits: {types}"),
    )
    (only,) = [title for _, ids, title in shown if ids.startswith("COMP")]
    assert ":," not in only
    assert only.count(types) == 2
