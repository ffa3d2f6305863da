"""`wirespeed compare`, `baseline` and `trend` as a user types them, in this process."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import usual
from wirespeed.cli import run as wirespeed
from wirespeed.model.codec import to_json
from wirespeed.model.records import Run
from wirespeed.runs import jsontext
from wirespeed.runs.store import list_runs, save

JITTER = (0.995, 1.0, 1.006)


@dataclass(frozen=True)
class Shown:
    code: int
    out: str
    err: str


@pytest.fixture
def do(tmp_path, monkeypatch, capsys) -> Callable[..., Shown]:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Shown:
        code = wirespeed(words)
        return Shown(code, *capsys.readouterr())

    return call


def a_run(id: str, time: float, nccl: str = "2.28.9", op: str = "all_reduce") -> Run:
    return usual.run(
        id=id,
        command="bench",
        world=usual.world(usual.node("node-a", 0, 1)),
        versions={"nccl": nccl},
        measurements=(usual.measurement(time, half=0.001, op=op),),
    )


def stored(
    prefix: str, time: float, nccl: str = "2.28.9", factors: Sequence[float] = JITTER
) -> str:
    """Save repeats; their ids with commas, as a side."""
    ids = [f"{prefix}{k:07x}" for k in range(len(factors))]
    for id, factor in zip(ids, factors, strict=True):
        save(a_run(id, time * factor, nccl))
    return ",".join(ids)


def test_a_regression_ends_with_1(do) -> None:  # type: ignore[no-untyped-def]
    before, after = stored("a", 1e-5), stored("b", 1.2e-5, "2.29.1")
    shown = do("compare", before, after)
    assert shown.code == 1
    assert shown.out.startswith("changed between runs: nccl 2.28.9 → 2.29.1")
    assert shown.out.endswith("REGRESSION  1 worse, 0 same, 0 better   exit 1\n")
    assert do("compare", after, before).code == 0
    assert do("compare", before, after, "--fail-on", "30%").code == 0


def test_quiet_tells_by_its_exit_code_only(do) -> None:  # type: ignore[no-untyped-def]
    shown = do("compare", stored("a", 1e-5), stored("b", 1.2e-5), "-q")
    assert (shown.code, shown.out, shown.err) == (1, "", "")


def test_single_runs_are_undecided_until_noise_is_known(do) -> None:  # type: ignore[no-untyped-def]
    stored("a", 1e-5, factors=(1.0,))
    stored("b", 1.002e-5, factors=(1.0,))
    assert do("compare", "a", "b").code == 3
    assert do("compare", "a", "b", "--noise", "1%", "--fail-on", "5%").code == 0
    stored("c", 1e-5, factors=(0.999, 1.0, 1.001, 1.0005))
    shown = do("compare", "a", "b")
    assert shown.code == 0
    assert "stored ones" in shown.out
    assert do("compare", "a", "b", "--no-history").code == 3


def test_paths_and_json(do, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    names = []
    for k, factor in enumerate(JITTER):
        for side, time in (("a", 1e-5), ("b", 1.2e-5)):
            path = tmp_path / f"{side}{k}.json"
            path.write_text(jsontext.dump(to_json(a_run(f"{side}{k}", time * factor))))
            names.append(path.name)
    sides = [",".join(name for name in names if name[0] == side) for side in "ab"]
    shown = do("compare", *sides, "-o", "json")
    assert shown.code == 1
    assert json.loads(shown.out)["versus"][0]["rows"][0]["verdict"] == "WORSE"
    odd = tmp_path / "one, two.json"
    odd.write_text((tmp_path / "a0.json").read_text())
    assert do("compare", str(odd), "b0.json").code == 3


@pytest.mark.parametrize(
    ("command", "config", "line"),
    [
        ("check", {"level": "quick", "ranks": 2, "output": "table", "quiet": True},
         "wirespeed check --level quick --ranks 2"),
        ("check", {"level": "medium", "ranks": None, "only": ["BW-001"], "inject": ["flip:rank=1"]},
         "wirespeed check --only BW-001"),
        ("bench", {"ops": ["all_reduce", "all_gather"], "min_bytes": "1M", "dtypes": ["float32"],
                   "precision": 5.0, "max_time": 0.5, "in_flight": 1, "repeat": 3, "env": []},
         "wirespeed bench all_reduce all_gather --min-bytes 1M --max-time 0.5 --repeat 3"),
        ("train", {"strategy": "naive,ddp", "max_time": 20.0}, None),
        ("import", {"path": "x"}, "wirespeed compare last:3 --baseline"),
        ("launch", {}, "wirespeed compare last:3 --baseline"),
    ],
)  # fmt: skip
def test_a_baseline_is_followed_by_the_command_that_is_judged_against_it(
    do,  # type: ignore[no-untyped-def]
    command: str,
    config: dict[str, object],
    line: str | None,
) -> None:
    for k in range(3):
        save(replace(a_run(f"a{k}000000", 1e-5), command=command, config=config))
    last = do("baseline", "set", "last:3").out.splitlines()[-1]
    if line is None:
        assert last.startswith("next: wirespeed train --")
        return
    assert last == f"next: {line}"


def test_three_runs_against_the_three_before(do) -> None:  # type: ignore[no-untyped-def]
    for k, time in enumerate([1.0, 1.01, 0.99, 1.5, 1.51, 1.49]):
        minute = f"2026-11-03T10:{k:02d}:00.000Z"
        save(replace(a_run(f"a{k}000000", 1e-5 * time), started=minute))
    shown = do("compare", "last~5..last~3", "last:3", "-o", "json")
    (versus,) = json.loads(shown.out)["versus"]
    assert shown.code == 1
    assert versus["before"]["runs"] == ["a0000000", "a1000000", "a2000000"]
    assert versus["after"]["runs"] == ["a3000000", "a4000000", "a5000000"]
    assert do("compare", "last:3", "last:2").code == 2, "a run on both sides"
    assert do("compare", "last:9", "last").code == 2


def test_baseline_from_set_to_rm(do) -> None:  # type: ignore[no-untyped-def]
    side = stored("a", 1e-5)
    worse = stored("b", 1.2e-5)
    assert do("baseline", "list").out.startswith("no baselines")
    shown = do("baseline", "set", *side.split(","))
    assert (shown.code, "3 runs" in shown.out) == (0, True)
    assert shown.out.splitlines()[-1] == "next: wirespeed bench"
    shown = do("compare", worse, "--baseline")
    assert (shown.code, "baseline default" in shown.out) == (1, True)
    for id in side.split(","):
        do("runs", "rm", id, "--yes")
    assert do("compare", worse, "--baseline=default").code == 1
    assert side.split(",")[0] in do("baseline", "show").out
    assert json.loads(do("baseline", "list", "-o", "json").out) == ["default"]
    assert do("baseline", "rm", "default").code == 0
    shown = do("compare", worse, "--baseline")
    assert (shown.code, "no baseline 'default'" in shown.err) == (2, True)


def test_trend_over_the_stored_runs(do) -> None:  # type: ignore[no-untyped-def]
    # Saved one after another: a stored run starts when it is saved.
    for k in range(16):
        save(a_run(f"{k:08x}", 1e-5 * (1.2 if k >= 9 else 1) * (1 + k % 3 / 200)))
    ids = [summary.id for summary in list_runs()]
    shown = do("trend", "--fail-on", "5%")
    assert shown.code == 1
    assert ids[9] in shown.out
    assert do("trend").code == 0
    assert do("trend", "all_reduce", "--last", "6").code == 3
    assert do("trend", "all_gather").code == 2


@pytest.mark.parametrize("value", ["30", "30.0", "30%", '"30"'])
def test_percentages_in_the_configuration_file(do, tmp_path: Path, value: str) -> None:  # type: ignore[no-untyped-def]
    """However it is spelled, 30 are 30 percent: 20 % slower is no regression then."""
    sides = stored("a", 1e-5), stored("b", 1.2e-5)
    assert do("compare", *sides).code == 1
    (tmp_path / "wirespeed.yaml").write_text(f"compare:\n  fail-on: {value}\n")
    assert do("compare", *sides).code == 0
    (tmp_path / "wirespeed.yaml").write_text("compare:\n  fail-no: 30\n")
    assert do("compare", *sides).code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare"], "nothing to compare"),
        (["compare", "a"], "one side only"),
        (["compare", "a", ","], "names no run"),
        (["compare", "a", "nowhere"], "no run"),
        (["compare", "a", "a"], "stands twice"),
        (["compare", "a", "b", "--fail-on", "nan"], "percentage"),
        (["compare", "a", "b", "--fail-on", "-1%"], "percentage"),
        (["compare", "a", "b", "--only", "all_redcue"], "neither an operation nor a strategy"),
        (["baseline", "set", "a", "--name", "../x"], "no name for a baseline"),
        (["baseline", "set", "a", "a"], "stands twice"),
        (["trend", "nothing"], "neither an operation nor a strategy"),
        (["trend", "--runs", "a"], "no figure"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(do, words: list[str], told: str) -> None:  # type: ignore[no-untyped-def]
    stored("a", 1e-5, factors=(1.0,))
    stored("b", 1e-5, factors=(1.0,))
    shown = do(*words)
    assert shown.code == 2
    assert told in shown.err
    assert "Traceback" not in shown.err
