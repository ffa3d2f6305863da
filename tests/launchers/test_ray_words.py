"""What would run for a job on Ray: golden, and nothing of the job on a command line."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.errors import CannotMeasure, UsageError, WirespeedError
from wirespeed.launchers.base import Host, Job, Prepared
from wirespeed.launchers.engines import ray
from wirespeed.launchers.engines.ray import ENGINE
from wirespeed.launchers.ray.cluster import Bundle, Orders, bundles_of
from wirespeed.launchers.ray.keeper import kept

HOSTILE = ("a b", "$(touch x)", '";\n', "--help", "-", "ü", "\udc80", "")
SCRATCH = Path("/scratch")


@pytest.fixture(autouse=True)
def ray_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Ray is installed, and no cluster is named."""
    monkeypatch.setattr(ray, "find_spec", lambda name: object())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def job(**given: object) -> Job:
    return replace(Job(command=("hostname",)), **given)  # type: ignore[arg-type]


def prepared(**given: object) -> Prepared:
    return ENGINE.prepare(job(**given))


def orders(**given: object) -> Orders:
    (piece,) = prepared(**given).pieces(SCRATCH)
    return Orders.from_json(piece.stdin)


def test_golden() -> None:
    done = prepared(ranks_per_node=2, nodes=2, options={"address": "auto", "gpus-per-rank": "1"})
    (piece,) = done.pieces(SCRATCH)
    assert piece.command == (sys.executable, "-P", "-m", "wirespeed.launchers.ray.driver")
    assert (piece.name, piece.environment, piece.files) == ("ray", {}, {})
    assert piece.ends_with_stdin
    assert json.loads(piece.stdin) == {
        "command": ["hostname"],
        "python": "",
        "environment": {},
        "address": "auto",
        "bundles": [{"ranks": 2, "host": ""}, {"ranks": 2, "host": ""}],
        "strategy": "STRICT_SPREAD",
        "cpus": None,
        "gpus": 1.0,
        "place_s": 100.0,
        "grace_s": 5.0,
        "interface": "",
    }


def test_nothing_of_the_job_is_on_the_command_line() -> None:
    given = job(command=HOSTILE, environment={"HF_TOKEN": "hunter2"}, options={"address": "auto"})
    (piece,) = ENGINE.prepare(given).pieces(SCRATCH)
    shown = [*piece.command, *piece.environment.values()]
    assert not [word for word in shown if "hunter2" in word or "touch" in word]


def test_hostile_words_arrive_as_they_are() -> None:
    environment = {f"V{number}": word for number, word in enumerate(HOSTILE)}
    told = orders(command=HOSTILE, environment=environment)
    assert told.command == HOSTILE
    assert told.environment == environment
    assert kept("/usr/bin/python3", told.command)[-len(HOSTILE) :] == list(HOSTILE)


def test_orders_are_one_line_of_ascii() -> None:
    (piece,) = prepared(command=HOSTILE).pieces(SCRATCH)
    assert piece.stdin.isascii()
    assert piece.stdin.count("\n") == 1


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"bundles": [1]}', "{"])
def test_orders_that_nobody_wrote_are_refused(text: str) -> None:
    with pytest.raises(WirespeedError, match="cannot read its orders"):
        Orders.from_json(text)


def test_the_frames_token_is_found() -> None:
    assert orders(environment={"WIRESPEED_FRAMES": "abc,pad"}).token == "abc"
    assert orders().token == ""


@pytest.mark.parametrize(
    ("given", "local", "expected"),
    [
        ({}, True, [1]),
        ({"ranks": 4}, True, [4]),
        ({"ranks": 3}, False, [1, 1, 1]),
        ({"ranks_per_node": 2}, True, [2]),
        ({"ranks_per_node": 2, "nodes": 3}, False, [2, 2, 2]),
        ({"ranks_per_node": 4, "ranks": 6}, False, [4, 2]),
        ({"ranks": 5, "nodes": 2}, False, [3, 2]),
    ],
)
def test_ranks_of_each_node(given: dict[str, int], local: bool, expected: list[int]) -> None:
    found = job(**given)
    bundles = bundles_of(found, local=local)
    assert [bundle.ranks for bundle in bundles] == expected
    assert sum(expected) == found.size


def test_named_hosts_are_bundles_of_their_own() -> None:
    told = orders(hosts=(Host("n-0", 2), Host("10.0.0.7")), options={"address": "auto"})
    assert told.bundles == (Bundle(2, "n-0"), Bundle(1, "10.0.0.7"))
    assert told.strategy == "STRICT_SPREAD"


def test_address_is_local_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert orders().address == "local"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert orders().address == "10.0.0.1:6379"
    assert orders(options={"address": "local"}).address == "local"
    (choice,) = ENGINE.prepare(job()).choices
    assert (choice.value, choice.reason) == ("10.0.0.1:6379", "RAY_ADDRESS")


@pytest.mark.parametrize(
    "options",
    [
        {"address": "nonsense"},
        {"address": "ray://host"},
        {"address": "host:port"},
        {"strategy": "NEAR"},
        {"cpus-per-rank": "-1"},
        {"cpus-per-rank": "nan"},
        {"gpus-per-rank": "all"},
        {"timeout": "inf"},
    ],
)
def test_options_that_say_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        ENGINE.prepare(job(options=options))


@pytest.mark.parametrize("given", [{"nodes": 2}, {"hosts": (Host("n-0"),)}])
def test_a_local_cluster_is_one_machine(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="this machine alone"):
        ENGINE.prepare(job(**given))


@pytest.mark.parametrize("name", ["-oProxyCommand=x", ""])
def test_names_that_are_options_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no node"):
        ENGINE.prepare(job(hosts=(Host(name),), options={"address": "auto"}))


def test_a_longer_wait_for_room_lengthens_the_start() -> None:
    done = prepared(options={"timeout": "300"})
    assert done.job.startup_s > 300
    (piece,) = done.pieces(SCRATCH)
    assert Orders.from_json(piece.stdin).place_s == 300


def test_without_ray_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "find_spec", lambda name: None)
    with pytest.raises(CannotMeasure) as caught:
        ENGINE.prepare(job())
    assert caught.value.next == "pip install 'wirespeed[ray]'"


def test_keyed_options_are_all_in_the_help() -> None:
    names = {option.name for option in ENGINE.options}
    assert names == {"address", "strategy", "cpus-per-rank", "gpus-per-rank", "timeout"}


def test_a_python_named_from_here_is_found_from_anywhere() -> None:
    """Ray's session leaves the working directory, which Ray would put before all modules."""
    assert orders(python="venv/bin/python").python == str(Path("venv/bin/python").absolute())
    assert orders(python="python3").python == "python3"
    there = orders(python="venv/bin/python", options={"address": "auto"})
    assert there.python == "venv/bin/python"
