"""Metaflow's command line and environment, without Metaflow: nothing is started here."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import SCRATCH, Host, Job, Piece, as_sh
from wirespeed.launchers.engines import metaflow as engine
from wirespeed.launchers.engines.metaflow import ENGINE
from wirespeed.launchers.metaflow import CARRY, COMMAND, COMPUTE, FOLDER, PYTHON

GOLDEN = Path(__file__).parents[1] / "golden"
SECRET = "s3cr3t $(id) 'x'"
REMOTE = {"compute": "kubernetes", "datastore": "s3", "root": "s3://flows/mf"}
GPU_NODE = {"image": "registry/wirespeed:1", "gpu": "8", "secrets": "keys,tokens"}


@pytest.fixture(autouse=True)
def _everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: name)


def job(**settings: Any) -> Job:
    told = {"command": ("python", "train.py", "a b"), "nodes": 2, "ranks_per_node": 4}
    told["environment"] = {"MASTER_PORT": "23456", "WIRESPEED_HF_TOKEN": SECRET}
    return Job(**{**told, **settings})


def piece(one: Job, scratch: Path = SCRATCH) -> Piece:
    (found,) = ENGINE.prepare(one).pieces(scratch)
    return found


@pytest.mark.parametrize(
    ("name", "options"), [("local", {}), ("kubernetes", {**REMOTE, **GPU_NODE})]
)
def test_the_script_is_as_reviewed(
    monkeypatch: pytest.MonkeyPatch, name: str, options: Mapping[str, str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/py/bin/python")
    monkeypatch.setattr(engine, "FLOW", Path("/opt/py/ranks/wirespeed_ranks.py"))
    environment = {"MASTER_PORT": "23456", "NCCL_DEBUG": "INFO"}
    one = job(options=options, environment=environment)
    text = as_sh([piece(one)], "2 nodes")
    assert text == (GOLDEN / f"launch.metaflow-{name}.sh").read_text()


@pytest.mark.parametrize("options", [{}, REMOTE])
def test_no_value_is_on_the_command_line(options: Mapping[str, str]) -> None:
    found = piece(job(options=options))
    assert SECRET not in "\0".join(found.command)
    assert "train.py" not in "\0".join(found.command)
    assert found.environment["WIRESPEED_HF_TOKEN"] == SECRET
    assert json.loads(found.environment[COMMAND]) == ["python", "train.py", "a b"]


def test_hostile_words_are_data() -> None:
    words = ("-x", "a b", "$(touch pwned)", ";id", "'\"", "line\nline", "", "é")
    found = piece(job(command=words))
    assert json.loads(found.environment[COMMAND]) == list(words)


def test_state_is_in_the_folder_of_the_job(tmp_path: Path) -> None:
    environment = piece(job(), tmp_path).environment
    for name in ("DATASTORE_SYSROOT_LOCAL", "HOME", "TEMPDIR", "CLIENT_CACHE_PATH"):
        assert environment[f"METAFLOW_{name}"] == str(tmp_path)
    assert environment[FOLDER] == str(tmp_path)
    assert environment["METAFLOW_USER"]
    assert list(tmp_path.iterdir()) == []


def test_other_compute_gets_its_decorator_and_what_the_nodes_need() -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    more = {**REMOTE, **GPU_NODE, "tolerations": json.dumps([toleration])}
    own = {"MASTER_PORT": "23456", "WIRESPEED_HF_TOKEN": SECRET, "WIRESPEED_SECRET": SECRET}
    environment = piece(job(options=more, environment=own)).environment
    attributes = json.loads(environment[COMPUTE])["kubernetes"]
    assert attributes.pop("secrets") == ["keys", "tokens"]
    assert attributes.pop("tolerations") == [toleration]
    assert attributes == {"image": "registry/wirespeed:1", "gpu": "8"}
    assert environment["METAFLOW_DATASTORE_SYSROOT_S3"] == "s3://flows/mf"
    carried = environment[CARRY].split(",")
    # Not the secret by which ranks know each other: whoever reads job definitions would.
    assert {"MASTER_PORT", "WIRESPEED_HF_TOKEN", COMMAND, COMPUTE, CARRY} == set(carried)
    # A user's own settings name the service and the bucket.
    assert not {"METAFLOW_HOME", "METAFLOW_USER"} & set(environment)


def test_an_interpreter_on_the_nodes_is_not_ours() -> None:
    found = piece(job(options=REMOTE, python="/opt/py/bin/python"))
    assert found.command[0] == sys.executable
    assert found.environment[PYTHON] == "/opt/py/bin/python"
    assert PYTHON in found.environment[CARRY].split(",")


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"nodes": 2, "ranks_per_node": 4}, (2, 4)),
        ({"nodes": 2, "ranks_per_node": None}, (2, 1)),
        ({"nodes": None, "ranks_per_node": None, "ranks": 4}, (1, 4)),
        ({"nodes": 2, "ranks_per_node": None, "ranks": 8}, (2, 4)),
        ({"nodes": None, "ranks_per_node": 4, "ranks": 8}, (2, 4)),
    ],
)
def test_nodes_and_ranks(settings: Mapping[str, Any], shape: tuple[int, int]) -> None:
    prepared = ENGINE.prepare(job(**settings)).job
    assert (prepared.nodes, prepared.ranks_per_node) == shape
    assert prepared.size == shape[0] * shape[1]
    words = piece(job(**settings)).command
    assert words[-5:] == ("run", "--nodes", str(shape[0]), "--ranks-per-node", str(shape[1]))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hosts": (Host("node-0"),)}, "hosts"),
        ({"nodes": 2, "ranks_per_node": None, "ranks": 5}, "5 ranks on 2 nodes"),
        ({"options": {"compute": "argo"}}, "compute=argo"),
        ({"options": {"datastore": "nfs"}}, "datastore=nfs"),
        ({"options": {"image": "x"}}, "--with image"),
        ({"options": {**REMOTE, "queue": "q"}}, "--with queue"),
        ({"options": {"compute": "batch", "datastore": "local"}}, "local datastore"),
        ({"options": {**REMOTE, "tolerations": "{"}}, "tolerations"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: Mapping[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        piece(job(**settings))
    assert caught.value.expected


@pytest.mark.parametrize(
    ("options", "missing", "pip"),
    [
        ({}, "metaflow", "wirespeed[metaflow]"),
        (REMOTE, "kubernetes", "pip install 'kubernetes<37'"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str], missing: str, pip: str
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(CannotMeasure, match=f"no {missing}") as caught:
        ENGINE.prepare(job(options=options))
    assert pip in caught.value.next


def test_another_interpreter_is_asked_itself() -> None:
    with pytest.raises(CannotMeasure, match="cannot be asked"):
        ENGINE.prepare(job(python="/nowhere/python"))


def test_each_option_belongs_to_a_compute() -> None:
    """So that no option is listed that is refused everywhere."""
    computes = set(next(one.values for one in ENGINE.options if one.name == "compute"))
    owned = {option.name: set(option.of) for option in ENGINE.options if option.of}
    assert all(owners <= computes for owners in owned.values())
    assert {option.name for option in ENGINE.options} - {"compute", "datastore", "root"} == set(
        owned
    )
