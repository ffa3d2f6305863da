"""What the world of a run adds to texts: its backend's advice only, and who chose the ranks."""

from pathlib import Path

import pytest
import yaml

import wirespeed
from usual import node, world
from wirespeed.checks.node_health import shared_cpus
from wirespeed.checks.wording import fitted
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Choice, Finding

ROOMS = ("checks", "watchdog", "session", "launchers", "rank/training")


def advices() -> list[tuple[str, str]]:
    """(id, fix) of every text of the rooms whose findings a run has."""
    found: list[tuple[str, str]] = []

    def walk(tree: object, id: str) -> None:
        if isinstance(tree, list):
            for one in tree:
                walk(one, id)
        elif isinstance(tree, dict):
            id = str(tree.get("id", id))
            found.extend([(id, tree["fix"])] if isinstance(tree.get("fix"), str) else [])
            found.extend((id, fix) for fix in tree.get("fixes", {}).values())
            for key, one in tree.items():
                walk(one, str(key) if "-" in str(key) else id)

    for room in ROOMS:
        text = Path(wirespeed.__path__[0], room, "findings.yaml").read_text()
        walk(yaml.safe_load(text), "")
    return found


def shown(id: str, fix: str, backend: str) -> str:
    finding = Finding(id=id, status="fail", title="", fix=fix)
    (one,) = fitted([finding], world(backend=backend), ())
    return one.fix


@pytest.mark.parametrize(("backend", "other"), [("gloo", "NCCL_"), ("nccl", "GLOO_")])
def test_no_advice_names_a_setting_of_the_other_library(backend: str, other: str) -> None:
    named = [(id, fix) for id, fix in advices() if other in fix]
    assert named, "there is such advice"
    wrong = [
        (id, fix)
        for id, fix in named
        if not id.startswith(("ENV-", "NET-002")) and other in shown(id, fix, backend)
    ]
    assert wrong == []


def test_wrong_data_on_gloo_and_on_nccl() -> None:
    fix = next(fix for _, fix in advices() if "NCCL_NET_PLUGIN" in fix)
    assert "ECC" in shown("COL-001", fix, "gloo")
    assert "NCCL" not in shown("COL-001", fix, "gloo")
    assert shown("COL-001", fix, "nccl") == fix


def test_advice_that_is_all_there_is_stays() -> None:
    assert shown("NODE-900", "set NCCL_X=1", "gloo") == "set NCCL_X=1"


@pytest.mark.parametrize(
    ("choices", "word"),
    [
        ((Choice("ranks", "8", "asked for"),), "8 ranks (as requested) share 2 CPUs"),
        ((Choice("ranks", "8", "no GPU; 8 cores"),), "8 ranks (default) share 2 CPUs"),
        ((), "8 ranks share 2 CPUs"),
    ],
)
def test_who_chose_the_ranks(choices: tuple[Choice, ...], word: str) -> None:
    crowded = world(node("a", *range(8), facts=Facts(cpu_shared=2)), backend="gloo")
    finding = shared_cpus(crowded)
    assert finding is not None
    (told,) = fitted([finding], crowded, choices)
    assert told.title.startswith(word)
