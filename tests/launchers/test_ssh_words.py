"""Words for ssh and torchrun, slots, and what ssh's words mean: nothing is started here."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed import __version__
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Host, Job, as_sh
from wirespeed.launchers.engines.ssh import ENGINE, SshAsking, SshPrepared, ssh_words
from wirespeed.launchers.node.probe import Answer, Facts, _read, ask_all, differing, with_slots
from wirespeed.launchers.node.snapshot import MARK
from wirespeed.launchers.node.torchrun import Found, NodeFound, probe_words

GOLDEN = Path(__file__).parents[1] / "golden" / "launch.ssh.sh"
NASTY = [
    "a b",
    "'",
    '"',
    ";",
    "$(id)",
    "`id`",
    "-o",
    "--",
    "",
    "two\nlines",
    "$$",
    "${local_rank}",
    "*",
    "\\",
    "!x",
    "ü",
]
GOOD = Facts(
    python="3.11.2",
    executable="/opt/py/bin/python",
    asked="/opt/py/bin/python",
    wirespeed=__version__,
    torch="2.13.0",
    port=40123,
    host="node-0",
    interfaces=(("lo", "127.0.0.1", "255.0.0.0"), ("eth0", "10.0.0.1", "255.255.255.0")),
    reached="10.0.0.1",
)
ASKING = SshAsking("/my config", ["/opt/py/bin/python", "python3"], 15)


def hosts(*names: str, **slots: int) -> tuple[Host, ...]:
    return tuple(Host(name, slots.get(name)) for name in names)


def prepared(job: Job, **nodes: str) -> SshPrepared:
    """As `prepare` leaves it, with an address for each node."""
    found = {
        host: NodeFound("/opt/py/bin/python", address, "eth0") for host, address in nodes.items()
    }
    job = replace(job, python="/opt/py/bin/python", token="secret-token")
    return SshPrepared(job=job, found=Found("10.0.0.1", 29400, found))


def pieces(tmp_path: Path, *, options: dict[str, str] | None = None, **slots: int) -> Any:
    job = Job(
        command=("python", "train.py", *NASTY),
        hosts=hosts("a", "b", **{"a": 1, "b": 1, **slots}),
        environment={"WIRESPEED_FRAMES": "secret-frames", "HF_TOKEN": "two\nlines"},
        options=options or {},
    )
    return prepared(job, a="10.0.0.1", b="10.0.0.2").pieces(tmp_path)


# Hosts.


@pytest.mark.parametrize("name", ["-oProxyCommand=id", "", "a b", "a\nb", "me@-x", "a\0"])
def test_what_can_be_no_host_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no host name"):
        ENGINE.prepare(Job(command=("true",), hosts=hosts("good", name)))


@pytest.mark.parametrize(
    "bad", ["hosts", "twice", "port", "rendezvous", "both", "config", "silence"]
)
def test_a_job_that_cannot_be_meant_is_refused(bad: str) -> None:
    options = {
        "port": {"port": "70000"},
        "rendezvous": {"rendezvous": "etcd"},
        "both": {"rendezvous": "c10d", "torchrun": "no"},
        "config": {"config": "/no/such/file"},
        "silence": {"silence": "never"},
    }
    named = {"hosts": (), "twice": hosts("a", "a")}.get(bad, hosts("a"))
    with pytest.raises(UsageError) as error:
        ENGINE.prepare(Job(command=("true",), hosts=named, options=options.get(bad, {})))
    assert error.value.expected


def test_without_a_usable_node_there_is_nothing_to_run(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="no node can be used"):
        SshPrepared(job=Job(command=("true",))).pieces(tmp_path)


# Words.


def test_the_far_side_reads_what_was_meant() -> None:
    """ssh hands its last word to the login shell: each shell that is here reads it."""
    shown = [sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *NASTY]
    words = ssh_words("", "me@node", shown)
    assert words[-3:-1] == ("--", "me@node")
    for shell in ("sh", "bash"):
        done = subprocess.run(
            [shell, "-c", words[-1]], capture_output=True, text=True, timeout=30, check=True
        )
        assert json.loads(done.stdout) == NASTY


def test_nothing_of_the_users_configuration_is_overridden_but_what_must() -> None:
    words = ssh_words("/my config", "node", ["true"])
    assert words[:3] == ("ssh", "-F", "/my config")
    keys = {
        word.partition("=")[0]
        for word, before in zip(words[1:], words, strict=False)
        if before == "-o"
    }
    assert keys == {
        "BatchMode",
        "ConnectTimeout",
        "ServerAliveInterval",
        "ServerAliveCountMax",
        "ClearAllForwardings",
        "RemoteCommand",
    }


def test_the_first_python_that_is_there_is_asked() -> None:
    words = probe_words(["/no/such/python", sys.executable])
    program = "import os; print(os.environ['WIRESPEED_ASKED'])"
    done = subprocess.run(
        words, input=program, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.strip() == sys.executable
    done = subprocess.run(
        probe_words(["/no/such/python"]), input="", capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr.strip()) == (127, "not there: /no/such/python")


def test_secrets_and_arguments_go_over_stdin_only(tmp_path: Path) -> None:
    for piece in pieces(tmp_path):
        seen = "\0".join(piece.command)
        for word in ("secret", "two", "train.py", "HF_TOKEN"):
            assert word not in seen
        order = json.loads(piece.stdin)
        assert piece.stdin.count("\n") == 1
        assert order["environment"]["HF_TOKEN"] == "two\nlines"
        (start,) = order["start"]
        assert "secret" not in "\0".join(start["words"])
        assert piece.ends_with_stdin
        assert piece.nodes == (piece.name,)


def test_static_rendezvous_numbers_the_nodes_and_c10d_does_not(tmp_path: Path) -> None:
    words = [json.loads(piece.stdin)["start"][0]["words"] for piece in pieces(tmp_path)]
    for index, one in enumerate(words):
        assert f"--node-rank={index}" in one
        assert {"--master-addr=10.0.0.1", "--master-port=29400", "--nnodes=2"} < set(one)
    c10d = pieces(tmp_path, options={"rendezvous": "c10d"})
    words = [json.loads(piece.stdin)["start"][0]["words"] for piece in c10d]
    assert not any("--node-rank" in word for one in words for word in one)
    assert "--rdzv-conf=is_host=1" in words[0]
    assert "--rdzv-conf=is_host=0" in words[1]
    assert words[1].count("--rdzv-endpoint=10.0.0.1:29400") == 1
    ids = {word for one in words for word in one if word.startswith("--rdzv-id=")}
    assert len(ids) == 1
    assert "secret" not in ids.pop()


def test_without_torchrun_every_rank_is_told_its_place(tmp_path: Path) -> None:
    found = [
        start["environment"]
        for piece in pieces(tmp_path, options={"torchrun": "no"}, a=2, b=3)
        for start in json.loads(piece.stdin)["start"]
    ]
    assert [one["RANK"] for one in found] == ["0", "1", "2", "3", "4"]
    assert [one["LOCAL_RANK"] for one in found] == ["0", "1", "0", "1", "2"]
    assert {one["WORLD_SIZE"] for one in found} == {"5"}
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in found} == {("10.0.0.1", "29400")}


def test_dry_run_as_a_script() -> None:
    job = Job(
        command=("python", "train.py", "--name", "it's"),
        hosts=hosts("node-0", "me@node-1", **{"node-0": 2, "me@node-1": 2}),
        environment={"NCCL_DEBUG": "INFO", "WIRESPEED_DIRECTORY": "/home/me"},
        options={"config": "/home/me/ssh config"},
    )
    seen = prepared(job, **{"node-0": "10.0.0.1", "me@node-1": "10.0.0.2"})
    text = as_sh(seen.pieces(Path("scratch")), "two nodes", ["HF_TOKEN"])
    assert text.replace(__version__, "VERSION") == GOLDEN.read_text()


# What a node says.


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": "8"},
        {"gpus": 10**9},
        {"gpus": True},
        {"port": -1},
        {"executable": ["/bin/sh"]},
        {"told": [1]},
        {"interfaces": [["eth0", "evil", "255.0.0.0"]]},
        {"interfaces": [[1, "10.0.0.1", "255.0.0.0"]]},
        {"reached": ["::evil"]},
        {"unknown": 1},
    ],
)
def test_an_answer_that_no_node_gives_is_none(change: dict[str, Any]) -> None:
    """It ended the command with a traceback, or asked for a billion ranks."""
    told = {**_as_dict(GOOD), "reached": ["10.0.0.1"], "told": []}
    told.pop("zone")
    assert _read(MARK + json.dumps(told))[0] == GOOD
    assert _read(MARK + json.dumps({**told, **change}))[0] is None
    assert _read(MARK + "[" * 90_000)[0] is None


# Slots.


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(command=(), hosts=hosts("a", "b")), [8, 1]),
        (Job(command=(), hosts=hosts("a", "b"), ranks_per_node=2), [2, 2]),
        (Job(command=(), hosts=hosts("a", "b", b=3), ranks_per_node=2), [2, 3]),
        (Job(command=(), hosts=hosts("a", "b"), ranks=5), [3, 2]),
        (Job(command=(), hosts=hosts("a", "b"), ranks=1), [1]),
        (Job(command=(), hosts=hosts("a", "b", a=2, b=4), ranks=3), [2, 1]),
        (Job(command=(), hosts=hosts("a", "b", a=2, b=4), ranks=2), [2]),
    ],
)
def test_slots(job: Job, expected: list[int]) -> None:
    eight = Facts(python="3.11.2", executable="python", gpus=8)
    assert [host.slots for host in with_slots(job, {"a": eight, "b": GOOD})] == expected


def test_more_ranks_than_slots_are_refused() -> None:
    job = Job(command=(), hosts=hosts("a", "b", a=2, b=4), ranks=7)
    with pytest.raises(UsageError, match="the nodes take 6"):
        with_slots(job, {})


# What nodes told.


def test_the_address_that_ssh_reached_is_the_nodes_own_or_another_is_taken() -> None:
    assert GOOD.address == "10.0.0.1"
    behind = Facts(**{**_as_dict(GOOD), "reached": "203.0.113.7"})
    assert behind.address == "10.0.0.1"
    alone = Facts(**{**_as_dict(GOOD), "interfaces": GOOD.interfaces[:1], "reached": "127.0.0.1"})
    assert alone.address == ""


def test_the_interface_is_that_of_the_first_nodes_network() -> None:
    two = (*GOOD.interfaces, ("ib0", "10.9.0.1", "255.255.0.0"))
    facts = Facts(**{**_as_dict(GOOD), "interfaces": two})
    assert facts.interface_to("10.9.3.4")[0] == "ib0"
    assert facts.interface_to("10.0.0.9")[0] == "eth0"
    assert facts.interface_to("172.16.0.1") == ("eth0", "the node was reached there")
    behind = Facts(**{**_as_dict(facts), "reached": "203.0.113.7"})
    assert behind.interface_to("172.16.0.1") == ("", "")


@pytest.mark.slow
def test_an_answer_is_found_among_a_shells_words_and_silence_is_bounded() -> None:
    noise = f"echo welcome; exec {shlex.join([sys.executable, '-'])}"
    commands = {
        "good": ["sh", "-c", noise],
        "silent": ["sleep", "60"],
        "odd": ["sh", "-c", "echo only words; echo trouble >&2; exit 3"],
    }
    answers = ask_all(commands, "/no/such/directory '\n", 10)
    good = answers["good"].facts
    assert good is not None
    assert (good.wirespeed, good.directory) == (__version__, False)
    assert good.python == sys.version.split()[0]
    assert 0 < good.port < 65536
    assert ("lo", "127.0.0.1", "255.0.0.0") in good.interfaces
    assert answers["good"].said == ("welcome",)
    assert answers["silent"] == Answer(None, None, ())
    assert answers["odd"] == Answer(None, 3, ("only words", "trouble"))


def test_without_ssh_the_package_is_named() -> None:
    with pytest.raises(CannotMeasure) as error:
        ask_all({"a": ["/no/such/ssh"]}, "", 5)
    assert error.value.next == "apt-get install openssh-client"


def test_the_program_says_old_on_an_old_python() -> None:
    """Its first part is what an old Python runs."""
    from wirespeed.launchers.node import snapshot as facts

    text = Path(facts.__file__).read_text().replace("_OLDEST = (3, 11)", "_OLDEST = (99,)")
    done = subprocess.run(
        [sys.executable, "-"], input=text, capture_output=True, text=True, timeout=30, check=True
    )
    told = json.loads(done.stdout.removeprefix(MARK))
    assert told["old"]
    trouble = ASKING.trouble_of("a", Answer(Facts(**told), 0, ()))
    assert trouble is not None
    assert (trouble.id, trouble.subject.name) == ("LAUNCH-004", "a")


# What ssh's words mean.

CHANGED = (
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
    "Offending ED25519 key in /home/me/.ssh/known_hosts:2",
    "  remove with:",
    '  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "a"',
    "Host key for a has changed and you have requested strict checking.",
    "Host key verification failed.",
)


@pytest.mark.parametrize(
    ("said", "id", "saw", "fix"),
    [
        (
            ("ssh: Could not resolve hostname a: Name or service not known",),
            "LAUNCH-001",
            "not resolve",
            "~/.ssh/config",
        ),
        (
            ("ssh: connect to host a port 22: Connection refused",),
            "LAUNCH-001",
            "refused",
            "systemctl start ssh",
        ),
        (
            ("ssh: connect to host a port 22: Connection timed out",),
            "LAUNCH-001",
            "timed out",
            "port 22",
        ),
        (("me@a: Permission denied (publickey).",), "LAUNCH-002", "publickey", "ssh-copy-id -F"),
        (CHANGED, "LAUNCH-003", "has changed", 'ssh-keygen -f "/home/me/.ssh/known_hosts" -R "a"'),
        (
            (
                "No ED25519 host key is known for a and you have requested strict checking.",
                "Host key verification failed.",
            ),
            "LAUNCH-003",
            "is known for a",
            "fingerprint",
        ),
    ],
)
def test_ssh_failed(said: tuple[str, ...], id: str, saw: str, fix: str) -> None:
    found = ASKING.trouble_of("a", Answer(None, 255, said))
    assert found is not None
    assert (found.id, found.status, found.subject.kind, found.subject.name) == (
        id,
        "fail",
        "node",
        "a",
    )
    assert saw in found.saw
    assert fix in found.fix
    assert "a" in shlex.split(found.next)
    assert set(found.evidence) <= set(said)
    assert found.evidence


@pytest.mark.parametrize(
    ("answer", "id", "words"),
    [
        (Answer(None, None, ()), "LAUNCH-001", "no answer within 15 s"),
        (Answer(None, 127, ("not there: /opt/py/bin/python python3",)), "LAUNCH-004", "not there"),
        (Answer(None, 1, ("This account is currently not available.",)), "LAUNCH-004", "account"),
        (Answer(None, 0, ()), "LAUNCH-004", "without a word"),
    ],
)
def test_no_answer(answer: Answer, id: str, words: str) -> None:
    found = ASKING.trouble_of("a", answer)
    assert found is not None
    assert found.id == id
    assert words in found.saw


@pytest.mark.parametrize(
    ("change", "id", "words"),
    [
        ({}, "", ""),
        ({"wirespeed": "", "trouble": "No module named 'wirespeed'"}, "LAUNCH-005", "pip install"),
        ({"wirespeed": "9.9"}, "LAUNCH-006", f"wirespeed=={__version__}"),
        ({"asked": "python3"}, "", ""),
        ({"asked": "python3", "wirespeed": ""}, "LAUNCH-004", "--python"),
        ({"asked": "python3", "wirespeed": "9.9"}, "LAUNCH-004", "--python"),
    ],
)
def test_software(change: dict[str, str], id: str, words: str) -> None:
    found = ASKING.trouble_of("a", Answer(Facts(**{**_as_dict(GOOD), **change}), 0, ()))
    assert (found.id if found else "") == id
    assert words in (found.fix + found.next if found else "")


def test_nodes_that_differ_in_python_or_torch_are_warned_of() -> None:
    other = Facts(**{**_as_dict(GOOD), "torch": "2.9.0"})
    (found,) = differing({"a": GOOD, "b": other, "c": GOOD})
    assert (found.id, found.status, found.subject.name) == ("LAUNCH-006", "warn", "b")
    assert differing({"a": GOOD, "c": GOOD}) == []


def _as_dict(facts: Facts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in Facts.__slots__}
