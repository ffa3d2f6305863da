"""`--max-time` bounds all measuring of a command, and what it left out is named."""

from typing import Any

import pytest

OPS = ("bench", "all_reduce", "--ranks", "2", "-q")


def left_out(run: dict[str, Any]) -> list[str]:
    return [
        label for one in run["findings"] if one["id"] == "TIME-001" for label in one["evidence"]
    ]


def test_what_did_not_fit_is_named(cli: Any) -> None:
    """The last size is so large that its data check alone takes longer; a busy machine may do none."""
    done = cli(*OPS, "--sizes", "1K,64M", "--max-time", "0.05", "-o", "json")
    run = cli.run()
    measured = [one["size_bytes"] for one in run["measurements"]]
    assert (done.code, measured) in ((0, [1024]), (3, [])), done.err
    small = [] if measured else ["all_reduce float32 1 KiB"]
    assert left_out(run) == [*small, "all_reduce float32 64 MiB"]
    finding = next(one for one in run["findings"] if one["id"] == "TIME-001")
    assert finding["status"] == "not_checked"
    assert finding["next"].startswith("wirespeed bench all_reduce --ranks 2")
    assert finding["next"].endswith("--max-time 0.1")


def test_nothing_measured_is_unknown(cli: Any) -> None:
    done = cli(*OPS, "--sizes", "64M", "--max-time", "0.01")
    assert (done.code, cli.run()["verdict"]) == (3, "UNKNOWN")
    assert left_out(cli.run()) == ["all_reduce float32 64 MiB"]


@pytest.mark.slow
def test_each_size_has_a_share(cli: Any) -> None:
    """Without a bound on the whole, a size takes as long as it may; with one, they share it."""
    words = ("--sizes", "1K,2K,4K,8K", "--precision", "0.1")
    assert cli(*OPS, *words, "--max-time", "6").code == 0
    run = cli.run()
    assert (len(run["measurements"]), left_out(run)) == (4, [])
    spent = [one["iterations"] * one["time_us"]["median"] / 1e6 for one in run["measurements"]]
    assert sum(spent) < 6


@pytest.mark.slow
def test_training_leaves_out_what_comes_last(cli: Any) -> None:
    words = ("train", "--ranks", "2", "--strategy", "none,ddp,bucketed", "--no-prove", "-q")
    assert cli(*words, "--max-time", "0.1").code == 0
    run = cli.run()
    assert {one["rounds"] for one in run["training"]} == {2}
    assert "the cost model and its bucket size" in left_out(run)


@pytest.mark.slow
def test_compared_settings_start_no_world_that_does_not_fit(cli: Any) -> None:
    words = ("--sizes", "1K", "--env", "OMP_NUM_THREADS=1,2", "--max-time", "0.1")
    cli(*OPS, *words)
    assert [label for label in left_out(cli.run()) if "worlds" in label]


@pytest.mark.slow
def test_a_grid_names_the_worlds_that_it_left_out(cli: Any) -> None:
    words = ("bench", "all_reduce", "--ranks", "2,3", "--sizes", "1K", "--max-time", "0.1", "-q")
    cli(*words)
    reasons = {one["ranks"]: one["reason"] for one in cli.run()["grid"]}
    assert reasons[3] == ""  # the largest world comes first
    assert "--max-time" in reasons[2]


def test_the_estimate_comes_before_the_ranks(cli: Any) -> None:
    words = ("bench", "all_reduce", "--ranks", "2", "--sizes", "8", "-c", "0", "--precision", "100")
    done = cli(*words, "--max-time", "20", "-o", "json")
    first = done.err.splitlines()[0]
    assert first.startswith("wirespeed: about 20 s at most")
    quiet = cli(*words, "--max-time", "20", "-q")
    assert quiet.err == ""
