"""Findings about a folder, from what was seen of it."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.checks.storage import storage_findings
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.records import Finding
from wirespeed.model.storage_records import Storage, StorageFigure, StorageNode, StorageTrouble

GIB = 1 << 30


def middle(value: float, spread: float = 0.1, samples: int = 8) -> MedianTime:
    low, high = value * (1 - spread), value * (1 + spread)
    return MedianTime(median=value, low=low, high=high, samples=samples)


def figure(access: Any, **told: Any) -> StorageFigure:
    usual: dict[str, Any] = {
        "engine": "own",
        "ranks": 2,
        "size": GIB,
        "calls": 1,
        "rate": middle(1e9),
        "latency": middle(0.1),
        "p95": 0.2,
        "p99": 0.2,
        "max": 0.3,
    }
    return StorageFigure(access=access, **(usual | told))


def node(host: str, **told: Any) -> StorageNode:
    usual: dict[str, Any] = {
        "filesystem": "nfs4",
        "source": "srv:/data",
        "options": "hard",
        "direct": True,
        "total": 1000 * GIB,
        "free": 500 * GIB,
        "inodes": 1000,
        "free_inodes": 500,
        "same": True,
        "change_seen": 0.0,
        "name_seen": 0.1,
    }
    return StorageNode(host=host, **(usual | told))


GOOD = Storage(
    folder="/data",
    nodes=(node("a"), node("b")),
    figures=(
        *(figure(name) for name in ("write", "read", "save", "load")),
        figure("open", per_s=middle(1000), slowest="b", slowest_ratio=middle(1.1)),
        figure("random read", per_s=middle(5000)),
    ),
    compared=GIB,
    complete=True,
    sample=1 << 17,
)


def told(storage: Storage) -> dict[str, Finding]:
    return {one.id: one for one in storage_findings(storage)}


def trouble(kind: Any, error: str = "", **more: Any) -> StorageTrouble:
    return StorageTrouble(kind=kind, rank=1, host="b", doing="write", text="x", error=error, **more)


def test_all_is_good() -> None:
    found = told(GOOD)
    assert sorted(found) == [f"STOR-00{number}" for number in range(1, 9)]
    assert {one.status for one in found.values()} == {"pass"}


def test_on_one_node_nobody_else_sees_it() -> None:
    one = node("a", same=None, change_seen=None, name_seen=None)
    assert told(replace(GOOD, nodes=(one,)))["STOR-001"].status == "not_applicable"


def test_no_folder_is_not_checked() -> None:
    (one,) = storage_findings(Storage(folder="", sample=0))
    assert (one.status, one.because) == ("not_checked", "no --data given")


@pytest.mark.parametrize(
    ("seen", "status", "said"),
    [
        ({"same": False, "change_seen": None, "name_seen": None}, "fail", "another folder"),
        ({"change_seen": None}, "fail", "old data"),
        ({"name_seen": None}, "warn", "late"),
        ({"name_seen": 3.0}, "warn", "late"),
    ],
)
def test_nodes_that_see_it_otherwise(seen: dict[str, Any], status: str, said: str) -> None:
    one = told(replace(GOOD, nodes=(node("a"), node("b", **seen))))["STOR-001"]
    assert (one.status, one.subject.name) == (status, "b")
    assert said in one.title


def test_what_hangs_is_named_with_the_place_and_nothing_else_passes() -> None:
    hung = trouble("hung", waited=30.0, where="python: state D in rpc_wait_bit_killable")
    found = told(replace(GOOD, complete=False, troubles=(hung, replace(hung, kind="left"))))
    one = found["STOR-002"]
    assert (one.status, one.subject.name) == ("fail", "b")
    assert "no answer to write for 30.0 s" in one.title
    assert "rpc_wait_bit_killable" in one.saw
    assert found["STOR-008"].status == "warn"
    assert not {"STOR-004", "STOR-005", "STOR-006"} & found.keys()


@pytest.mark.parametrize(
    ("error", "id", "said"),
    [
        ("ENOSPC", "STOR-003", "is full"),
        ("EDQUOT", "STOR-003", "quota"),
        ("ENOENT", "STOR-002", "has no /data"),
        ("EACCES", "STOR-002", "may not be written"),
        ("EROFS", "STOR-002", "read-only"),
        ("ESTALE", "STOR-002", "does not know"),
        ("EIO", "STOR-002", "fails on b"),
        ("", "STOR-002", "was not measured"),
    ],
)
def test_errors_by_their_meaning(error: str, id: str, said: str) -> None:
    found = told(replace(GOOD, complete=False, troubles=(trouble("error", error),)))
    assert found[id].status == "fail"
    assert said in found[id].title


def test_a_folder_with_a_blank_can_be_pasted_from_what_to_do_next() -> None:
    one = told(replace(GOOD, folder="/mnt/my data", troubles=(trouble("left"),)))["STOR-008"]
    assert one.next == "wirespeed check --only storage --data '/mnt/my data'"


@pytest.mark.parametrize(
    ("room", "said"),
    [
        ({"free": 10 * GIB}, "10 GiB of"),
        ({"free_inodes": 3}, "3 of 1,000 files"),
        ({"quota": GIB}, "1 GiB of"),
    ],
)
def test_little_room_warns(room: dict[str, Any], said: str) -> None:
    one = told(replace(GOOD, nodes=(node("a", **room),)))["STOR-003"]
    assert one.status == "warn"
    assert said in one.title


def test_a_folder_that_is_too_full_fails_and_no_figure_is_told() -> None:
    found = told(replace(GOOD, refused="4 MiB may be written", figures=()))
    assert found["STOR-003"].status == "fail"
    assert "STOR-004" not in found


@pytest.mark.parametrize(("gigabytes", "status"), [(80, "pass"), (200, "warn")])
def test_what_a_checkpoint_takes(gigabytes: int, status: str) -> None:
    model = {"model": "llama-8b", "checkpoint": gigabytes * 10**9}
    one = told(replace(GOOD, **model))["STOR-004"]
    assert one.status == status
    assert "llama-8b" in one.title
    few = told(replace(GOOD, nodes=(node("a", free=300 * 10**9),), **model))["STOR-003"]
    assert few.status == ("warn" if gigabytes == 200 else "pass")


@pytest.mark.parametrize(("need", "status"), [(800, "pass"), (3000, "warn"), (9000, "fail")])
def test_samples_against_what_steps_need(need: float, status: str) -> None:
    one = told(replace(GOOD, needed_per_s=need, needed_from="train run 7f3c"))["STOR-006"]
    assert (one.status, "train run 7f3c" in one.expected) == (status, True)


def test_a_node_that_is_slower_than_the_others() -> None:
    slow = figure("write", slowest="b", slowest_ratio=middle(2.5))
    one = told(replace(GOOD, figures=(*GOOD.figures, slow)))["STOR-007"]
    assert (one.status, one.subject.name) == ("warn", "b")
    unsure = figure("write", slowest="b", slowest_ratio=middle(2.5, samples=4))
    assert told(replace(GOOD, figures=(*GOOD.figures, unsure)))["STOR-007"].status == "pass"


def test_wrong_data_and_files_that_are_left() -> None:
    found = told(replace(GOOD, complete=False, troubles=(trouble("wrong"), trouble("left"))))
    assert (found["STOR-005"].status, found["STOR-008"].status) == ("fail", "warn")


def test_few_rounds_have_no_interval() -> None:
    few = tuple(replace(one, rate=middle(1e9, samples=2)) for one in GOOD.figures)
    assert "too few for an interval" in told(replace(GOOD, figures=few))["STOR-004"].title


@pytest.mark.parametrize("id", ["STOR-004", "STOR-006"])
def test_few_rounds_support_no_verdict(id: str) -> None:
    few = middle(0.5e9, samples=5)
    figures = tuple(replace(one, rate=few, per_s=one.per_s and few) for one in GOOD.figures)
    needs = {"model": "llama-8b", "checkpoint": 200 * 10**9, "needed_per_s": 1e12}
    assert told(replace(GOOD, figures=figures, **needs))[id].status == "measured"
    assert told(replace(GOOD, **needs))[id].status in ("warn", "fail")
