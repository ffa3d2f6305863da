"""`--on k8s` for verbs: one report of pods on nodes of their own."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.system

BOUND_S = 170.0
WHERE = ("--on", "k8s", "--cluster", "demo", "-q")
Find = Callable[[dict[str, Any], str], dict[str, Any]]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch", reason="Requires: torch")


def last(kube: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kube.cli.folders()[-1] / "run.json").read_text())
    return found


@pytest.mark.timeout(600)
def test_a_check_of_two_pods_and_of_those_that_are_left(kube: Any, finding: Find) -> None:
    kube.file()
    done = kube.cli("cluster", "deploy", "demo", "--nodes", "3", timeout=BOUND_S)
    assert done.code == 0, done.out + done.err
    two = ("--hosts", "demo-0,demo-2")
    done = kube.cli("check", "-l", "quick", *WHERE, *two, timeout=BOUND_S)
    run = last(kube)
    assert (done.code, run["verdict"]) == (0, "READY"), done.out + done.err
    assert run["speed_judged"] is False
    assert [node["host"] for node in run["world"]["nodes"]] == ["demo-0", "demo-2"]
    assert finding(run, "PLACE-001")["status"] in ("pass", "warn")
    tiny = ("--strategy", "ddp", "--rounds", "2", "--max-time", "20", "--no-prove")
    done = kube.cli("train", *tiny, *WHERE, *two, timeout=BOUND_S)
    assert done.code == 0, done.out + done.err
    assert last(kube)["training"]

    kube("delete", "pod", "demo-1", "--wait=false")
    done = kube.cli("check", "--only", "COL-001", *WHERE, timeout=BOUND_S)
    run = last(kube)
    assert (done.code, run["verdict"]) == (1, "FAILED"), done.out + done.err
    assert finding(run, "COL-001")["status"] == "pass"
    (gone,) = [one for one in run["findings"] if one["status"] == "fail"]
    assert gone["id"] in ("CLUSTER-027", "CLUSTER-040")

    stop = ("--only", "correctness", "--timeout", "5", "--inject", "stop:rank=1,after=1")
    done = kube.cli("check", *stop, *WHERE, *two, timeout=BOUND_S)
    hang = finding(last(kube), "HANG-001")
    assert (done.code, hang["subject"]["name"]) == (1, "rank 1"), done.out + done.err
    assert "demo-2" in hang["title"]


def test_locate_in_an_environment_of_its_own(kube: Any) -> None:
    kube.file()
    # A threshold that no noise of a busy machine reaches: nothing is measured again for it.
    done = kube.cli("locate", "--nodes", "3", "--threshold", "100", *WHERE, timeout=BOUND_S)
    run = last(kube)
    assert done.code in (0, 1), done.out + done.err
    assert len(run["located"]["nodes"]) == 3
