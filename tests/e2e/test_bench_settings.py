"""`bench --env` on real ranks of gloo: worlds of their own, with the settings that were asked for."""

import os
from typing import Any

import pytest

from wirespeed.model.codec import validated
from wirespeed.model.records import Run

TINY = ("all_reduce", "-b", "1K", "-e", "1K", "-n", "3", "-w", "1", "--ranks", "2", "--rounds", "1")


@pytest.mark.slow
def test_a_setting_that_cannot_work_is_a_finding_of_that_setting_only(cli: Any) -> None:
    done = cli("bench", *TINY, "--env", "GLOO_SOCKET_IFNAME=nosuch", "-o", "json")
    run = done.json
    validated(Run, run, source="stdout")
    assert done.code == 0, done.err
    assert "2 settings (the default among them), 1 round: 2 worlds of 2 ranks" in done.err
    default, bad = run["settings"]
    assert (default["verdict"], default["rounds"]) == ("default", [1])
    assert bad["verdict"] == "failed"
    (told,) = [one for one in run["findings"] if one["id"] == "SET-001"]
    assert "nosuch" in told["saw"]
    assert [m.get("setting") for m in run["measurements"]] == [None]
    assert run == cli.run()


@pytest.mark.slow
def test_through_an_engine_and_apart_from_what_the_environment_sets(cli: Any) -> None:
    """Of this environment's own value no world would live."""
    words = ("--env", "GLOO_SOCKET_IFNAME=lo", "--on", "local", "-o", "json", "-q")
    done = cli("bench", *TINY, *words, env={"GLOO_SOCKET_IFNAME": "nosuch"})
    run = done.json
    assert done.code == 0, done.out
    assert [(s["name"], s["rounds"]) for s in run["settings"]] == [
        ("default", [1]),
        ("GLOO_SOCKET_IFNAME=lo", [1]),
    ]
    (choice,) = [one for one in run["choices"] if one["name"] == "GLOO_SOCKET_IFNAME"]
    assert "not used" in choice["reason"]


def test_as_a_rank_of_somebody_elses_world_it_is_refused(cli: Any) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    place |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": str(os.getpid()),
    }
    done = cli.here("bench", *TINY, "--env", "A=1", env=place)
    assert done.code == 2, done.err
    assert "each combination needs ranks of its own" in done.err
