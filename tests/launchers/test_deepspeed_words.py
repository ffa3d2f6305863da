"""DeepSpeed's command lines, hostfile and orders for its guard: nothing is started here."""

import base64
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure, InputError, UsageError
from wirespeed.launchers.base import SCRATCH, Host, Job, Piece, as_sh
from wirespeed.launchers.deepspeed import command_line as deepspeed_nodes
from wirespeed.launchers.deepspeed.command_line import (
    chosen,
    first_devices,
    hostfile,
    is_here,
    require_deepspeed,
    require_programs,
)
from wirespeed.launchers.deepspeed.guard import (
    Node,
    Orders,
    bare,
    carried,
    folder_of,
    pack,
    unpack,
)
from wirespeed.launchers.engines import deepspeed as engine
from wirespeed.launchers.engines.deepspeed import ENGINE, Seen
from wirespeed.launchers.node.probe import Facts
from wirespeed.launchers.rank_wrapper import MASTER

GOLDEN = Path(__file__).parents[1] / "golden"
PYTHON = "/opt/py/bin/python"
SECRET = "s3cr3t"
HOSTILE = [
    "a b",
    "  led and trailed\t ",
    "'",
    '"',
    ";id",
    "$(touch pwned)",
    "`touch pwned`",
    "%h %n %%",
    "\\",
    "x\\",
    "$HOME",
    "!!",
    "*",
    "~",
    "é ü",
    "",
    "-x",
    "a=b",
    "'\"'\"'",
]
FIRST = Facts(
    python="3.11.2",
    executable=PYTHON,
    port=40123,
    host="node-0",
    interfaces=(
        ("lo", "127.0.0.1", "255.0.0.0"),
        ("eth0", "10.0.0.1", "255.255.255.0"),
        ("ib0", "10.9.0.1", "255.255.255.0"),
    ),
    reached="10.0.0.1",
)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine is in the words."""
    monkeypatch.setattr(sys, "executable", PYTHON)
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR", "PYTHONPATH", "PDSH_SSH_ARGS_APPEND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(deepspeed_nodes, "require_deepspeed", lambda python: None)
    monkeypatch.setattr(deepspeed_nodes, "require_programs", lambda launcher: None)
    monkeypatch.setattr(deepspeed_nodes, "has_accelerator", lambda: False)
    monkeypatch.setattr(deepspeed_nodes, "slots_here", lambda environ: 1)
    monkeypatch.setattr(engine, "free_port", lambda: 40001)
    monkeypatch.setattr(engine, "look_at_nodes", look)


def look(job: Job) -> Seen:
    hosts = tuple(Host(h.name, h.slots or job.ranks_per_node or 1) for h in job.hosts)
    told = {hosts[0].name: FIRST, "node-1": replace(FIRST, port=40321, reached="10.9.0.1")}
    return Seen(hosts, (), told)


def job(*hosts: str, env: dict[str, str] | None = None, **more: Any) -> Job:
    options = {key.replace("_", "-"): value for key, value in more.pop("options", {}).items()}
    named = tuple(Host(h.partition(":")[0], int(h.partition(":")[2] or 0) or None) for h in hosts)
    environment = {"WIRESPEED_DIRECTORY": "/home/me", **(env or {})}
    return Job(
        command=("python", "train.py"),
        hosts=named,
        environment=environment,
        options=options,
        token="t",
        **more,
    )


def pieces(made: Job) -> list[Piece]:
    return ENGINE.prepare(made).pieces(SCRATCH)


def rank_words(piece: Piece) -> list[str]:
    found: list[str] = json.loads(base64.urlsafe_b64decode(piece.command[-1]))
    return found


def after(piece: Piece, word: str) -> str:
    return piece.command[piece.command.index(word) + 1]


def orders(piece: Piece) -> Orders:
    """As the guard reads them."""
    path = next(path for path in piece.files if path.endswith("/orders"))
    told = json.loads(piece.files[path])
    nodes = [Node(tuple(n["words"]), n["number"], tuple(n["ranks"])) for n in told["nodes"]]
    return Orders(names=tuple(told["names"]), folder=told["folder"], nodes=nodes)


def shown(piece: Piece, *values: str) -> None:
    """No value is where others see it, or where it stays."""
    for value in values:
        assert value in piece.environment.values()
        assert all(value not in word for word in piece.command)
        assert value not in str(piece.files) + piece.stdin


def golden(name: str, made: Job) -> None:
    text = as_sh(pieces(made), f"deepspeed, {name}")
    path = GOLDEN / f"launch.deepspeed-{name}.sh"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


# The forms.


def test_the_words_of_each_form() -> None:
    golden("local", job(ranks=2))
    golden("no-ssh", job(nodes=2, ranks_per_node=2, options={"no_ssh": "yes"}))
    golden("pdsh", job("node-0:2", "me@node-1", env={"NCCL_DEBUG": "INFO", "NCCL_ALGO": "a b"}))


def test_this_machine_by_name_is_the_local_form() -> None:
    for name in ("localhost", "127.0.0.1", os.uname().nodename):
        (piece,) = pieces(job(f"{name}:3"))
        assert after(piece, "--num_gpus") == "3"
        assert after(piece, "--hostfile") == "/dev/null"


def test_one_remote_host_is_no_local_form() -> None:
    (piece,) = pieces(job("node-0:2"))
    assert "--force_multi" in piece.command
    assert piece.files[str(SCRATCH / "hostfile")] == "node-0 slots=2\n"


def test_the_size_of_the_world() -> None:
    assert ENGINE.prepare(job(ranks=3)).job.size == 3
    assert ENGINE.prepare(job("node-0:2", "node-1:4")).job.size == 6
    assert ENGINE.prepare(job("node-0", "node-1", ranks_per_node=8)).job.size == 16
    only = {"include": "node-1:0,3@node-0"}
    assert ENGINE.prepare(job("node-0:2", "node-1:4", options=only)).job.size == 4
    local = {"include": "localhost:1"}
    assert ENGINE.prepare(job("localhost:2", options=local)).job.size == 1


def test_one_node_of_several_starts_only_its_ranks() -> None:
    how = {"no_ssh": "yes", "node_rank": "1", "master_port": "1234"}
    prepared = ENGINE.prepare(job("a:1", "b:3", options=how))
    (piece,) = prepared.pieces(SCRATCH)
    assert prepared.job.size == 3
    assert after(piece, "--node_rank") == "1"
    assert (after(piece, "--master_addr"), after(piece, "--master_port")) == ("a", "1234")


def test_this_machine_is_found_among_the_hosts() -> None:
    how = {"no_ssh": "yes"}
    (piece,) = pieces(job("other", os.uname().nodename, options=how))
    assert after(piece, "--node_rank") == "1"
    with pytest.raises(UsageError, match="none of other, another is this machine"):
        ENGINE.prepare(job("other", "another", options=how))


def test_a_verb_needs_all_ranks() -> None:
    how = {"no_ssh": "yes", "node_rank": "0"}
    with pytest.raises(UsageError, match="a verb needs all"):
        pieces(job("a", "b", options=how, env={"WIRESPEED_JOB": "x"}))


def test_where_rank_0_is() -> None:
    (piece,) = pieces(job("node-0", "node-1"))
    assert (after(piece, "--master_addr"), after(piece, "--master_port")) == ("10.0.0.1", "40123")
    (piece,) = pieces(job("node-0", "node-1", interface="ib0"))
    assert after(piece, "--master_addr") == "10.9.0.1"
    assert piece.environment["NCCL_SOCKET_IFNAME"] == "ib0"
    given = {"master_addr": "10.1.1.1", "master_port": "5"}
    (piece,) = pieces(job("node-0", "node-1", options=given))
    assert (after(piece, "--master_addr"), after(piece, "--master_port")) == ("10.1.1.1", "5")


def test_rank_0_is_on_the_first_host_that_is_used() -> None:
    (piece,) = pieces(job("node-0", "node-1", options={"exclude": "node-0"}))
    assert (after(piece, "--master_addr"), after(piece, "--master_port")) == ("10.9.0.1", "40321")
    how = {"no_ssh": "yes", "exclude": "other"}
    (piece,) = pieces(job("other", "localhost", options=how))
    assert (piece.name, after(piece, "--node_rank")) == ("localhost", "0")
    assert after(piece, "--master_addr") == "127.0.0.1"


# Other launchers.


def test_an_mpirun_is_told_one_name() -> None:
    env = {"MY_TOKEN": SECRET, "NCCL_ALGO": "a b", "WIRESPEED_FRAMES": "abc"}
    (piece,) = pieces(job("a:2", "b:2", options={"launcher": "openmpi"}, env=env))
    told = next(word for word in piece.command if word.startswith("--launcher_args="))
    assert told == "--launcher_args=-x WIRESPEED_CARRIED"
    names = orders(piece).names
    assert names == ("MY_TOKEN", "NCCL_ALGO", "WIRESPEED_DIRECTORY", "WIRESPEED_FRAMES", MASTER)
    assert orders(piece).nodes == []
    assert piece.environment["WIRESPEED_FRAMES"] == "abc,pad"
    assert piece.environment[MASTER] == "10.0.0.1:40123"
    shown(piece, SECRET, "a b")


def test_launchers_that_want_a_script_get_one() -> None:
    for launcher in ("slurm", "mpich"):
        (piece,) = pieces(job("a:2", "b:2", options={"launcher": launcher}))
        assert "--no_python" not in piece.command
        assert piece.command[-3].endswith("deepspeed/far.py")
    (piece,) = pieces(job("a:2", "b:2", options={"launcher": "slurm"}))
    assert "--launcher_args=--nodelist=a,b --nodes=2 --ntasks-per-node=2" in piece.command


@pytest.mark.parametrize("launcher", ["slurm", "mpich", "impi"])
def test_different_slots_are_refused_where_deepspeed_cannot(launcher: str) -> None:
    with pytest.raises(UsageError, match="as many ranks"):
        pieces(job("a:2", "b:1", options={"launcher": launcher}))


# Secrets.


def test_the_local_form_passes_secrets_as_environment_alone() -> None:
    (piece,) = pieces(job(ranks=1, env={"MY_TOKEN": SECRET}))
    assert piece.environment["MY_TOKEN"] == SECRET
    assert SECRET not in str(piece.command) + str(piece.files) + piece.stdin


def test_pdsh_shows_no_value() -> None:
    env = {"MY_TOKEN": SECRET, "NCCL_DEBUG": "TRACE", "NCCL_ODD": "a\nb"}
    (piece,) = pieces(job("a:2", "me@b", env=env, options={"ssh_port": "2222"}))
    shown(piece, SECRET, "TRACE", "a\nb")
    told = orders(piece)
    assert told.folder == after(piece, "--carried") == folder_of("t")
    assert [(node.number, node.ranks) for node in told.nodes] == [(0, (0, 1)), (1, (2,))]
    assert [node.words[-2:] for node in told.nodes] == [("--", "a"), ("--", "me@b")]
    assert all("2222" in node.words for node in told.nodes)


def test_only_hosts_that_are_used_get_anything() -> None:
    (piece,) = pieces(job("a:2", "b:3", options={"include": "b:0,2"}))
    assert [(node.words[-1], node.ranks) for node in orders(piece).nodes] == [("b", (0, 1))]


def test_what_is_carried_and_what_deepspeed_sees() -> None:
    own = {"MY_TOKEN": "x", "GLOO_X": "y"}
    unasked = {"MLFLOW_RUN": "r", "UCX_TLS": "tcp", "PYTHONPATH": "/a b"}
    secret = {"MLFLOW_TRACKING_TOKEN": "x", "MLFLOW_TRACKING_URI": "https://u:p@host"}
    environ = {**own, **unasked, **secret, "OTHER": "z"}
    assert carried(environ, [*own, "NOT_SET"]) == {**own, **unasked}
    assert bare(environ) == {**own, "OTHER": "z"}
    odd = {f"NCCL_V{number}": value for number, value in enumerate(HOSTILE)}
    assert unpack(pack(odd)) == odd


# What is refused.


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=id", "a b", "node-[0-3]", "^file", "a;id", "fe80::1"]
)
def test_names_that_mean_more_than_a_host(name: str) -> None:
    with pytest.raises(UsageError, match="hostfile"):
        hostfile((Host(name),))


def test_hosts_are_checked_before_ssh_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "look_at_nodes", lambda *_: pytest.fail("asked"))
    with pytest.raises(UsageError, match="hostfile"):
        ENGINE.prepare(Job(command=("x",), hosts=(Host("a;id"), Host("b"))))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"launcher": "mvapich"}, "launcher=mvapich"),
        ({"launcher": "openmpi", "include": "a"}, "neither include nor exclude"),
        ({"node_rank": "1"}, "says nothing without no-ssh"),
        ({"no_ssh": "yes", "node_rank": "2"}, "node-rank=2"),
        ({"master_port": "0"}, "master-port=0"),
        ({"ssh_port": "ssh"}, "ssh-port=ssh"),
        ({"ssh_config": "/nowhere"}, "ssh-config=/nowhere"),
        ({"include": "c"}, "names 'c'"),
        ({"include": "a:1"}, "slot '1' of a"),
        ({"include": "a:x"}, "slot 'x' of a"),
        ({"exclude": "a@b"}, "leaves no slot"),
        ({"include": "a", "exclude": "b"}, "include and --with exclude"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(word)):
        pieces(job("a", "b", options=options))


def test_nodes_without_names_are_no_hosts() -> None:
    with pytest.raises(UsageError, match="only hosts that are named"):
        ENGINE.prepare(job(nodes=2))


def test_a_python_that_a_shell_would_read_otherwise() -> None:
    with pytest.raises(UsageError, match="unquoted"):
        pieces(job("a", "b", python="/opt/my py/python"))
    assert rank_words(pieces(job(ranks=1, python="/opt/my py/python"))[0]) == ["python", "train.py"]


def test_a_configuration_that_pdsh_would_split(tmp_path: Path) -> None:
    config = tmp_path / "my config"
    config.write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        pieces(job("a", "b", options={"ssh_config": str(config)}))
    plain = tmp_path / "config%h"
    plain.write_text("")
    (piece,) = pieces(job("a", "b", options={"ssh_config": str(plain)}))
    assert f"-F {tmp_path}/config%%h" in piece.environment["PDSH_SSH_ARGS_APPEND"]


def test_filters_as_deepspeed_reads_them() -> None:
    hosts = (Host("a", 4), Host("b", 2))
    assert chosen(hosts, {}) == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert chosen(hosts, {"include": "b@a:2,0"}) == {"a": [0, 2], "b": [0, 1]}
    assert chosen(hosts, {"exclude": "b@a:2,0"}) == {"a": [1, 3]}
    with pytest.raises(UsageError, match="user@host"):
        chosen((Host("me@a", 1),), {"include": "a"})


# This machine.


def test_gpus_that_the_user_chose() -> None:
    assert first_devices({}, 2) == ""
    assert first_devices({"CUDA_VISIBLE_DEVICES": "2,3,5"}, 2) == "2,3"
    assert first_devices({"CUDA_VISIBLE_DEVICES": "2", "DS_ACCELERATOR": "cpu"}, 2) == ""
    with pytest.raises(UsageError, match="leaves 1 GPUs"):
        first_devices({"CUDA_VISIBLE_DEVICES": "2"}, 2)
    with pytest.raises(UsageError, match="numbers only"):
        first_devices({"CUDA_VISIBLE_DEVICES": "GPU-1234"}, 1)


def test_the_accelerator_is_said_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pieces(job(ranks=1))[0].environment["DS_ACCELERATOR"] == "cpu"
    said = job(ranks=1, env={"DS_ACCELERATOR": "cuda"})
    assert pieces(said)[0].environment["DS_ACCELERATOR"] == "cuda"
    monkeypatch.setattr(deepspeed_nodes, "has_accelerator", lambda: True)
    assert "DS_ACCELERATOR" not in pieces(job(ranks=1))[0].environment


def test_names_of_this_machine() -> None:
    assert all(map(is_here, ("localhost", "127.0.0.1", "me@localhost", os.uname().nodename)))
    assert not any(map(is_here, ("node-17", "192.0.2.1")))


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotMeasure, match="pdsh is not on PATH"):
        require_programs("pdsh")
    monkeypatch.setattr(deepspeed_nodes, "find_spec", lambda name: None)
    with pytest.raises(CannotMeasure) as error:
        require_deepspeed(PYTHON)
    assert "pip install 'wirespeed[deepspeed]'" in str(error.value)
    with pytest.raises(UsageError, match="does not run on this machine"):
        require_deepspeed(str(tmp_path / "python"))
