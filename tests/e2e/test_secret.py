"""Ranks that another launcher starts, with and without a secret, and with another command."""

import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from wirespeed.errors import WorldError
from wirespeed.node.secret import VARIABLE, Seal, SealedStore, new_secret
from wirespeed.session.mailbox import Letters
from wirespeed.session.rendezvous import read_rendezvous

Find = Callable[[dict[str, Any], str], dict[str, Any]]
NODES = ("check", "--only", "nodes", "-o", "json")


def by_hand(cli: Any, *ranks: tuple[Sequence[str], dict[str, str]]) -> list[Any]:
    """One process a rank, as somebody starts them with these words and variables; rank 0 last."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    world = {"WORLD_SIZE": str(len(ranks)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = []
    for rank, (words, env) in reversed(list(enumerate(ranks))):
        started.append(cli.start(*words, env={**world, "RANK": str(rank), **env}))
    return [running.wait() for running in reversed(started)]


def attack(port: int, secret: bytes | None) -> None:
    """A stranger's word where rank 1's first letter should stand, and then a letter of rank 1."""
    import torch.distributed as dist

    bare = dist.PrefixStore(
        "wirespeed/0", dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    )
    rendezvous = read_rendezvous(bare, Seal(secret, "rendezvous"))
    bare.add("wirespeed/letters/count", 1)
    bare.set("wirespeed/letters/0", "no letter")
    sealed = SealedStore(bare, Seal(secret, f"store {rendezvous.nonce}"))
    Letters(sealed, 1, "node-1").failed(WorldError("no way"))


def trusts(run: dict[str, Any]) -> list[str]:
    return [one["value"] for one in run["choices"] if one["name"] == "trust"]


@pytest.mark.slow
def test_ranks_with_a_secret_meet_and_nobody_is_told(cli: Any) -> None:
    secret = new_secret()
    file = cli.folder / "secret"
    file.write_text(secret)
    file.chmod(0o600)
    of_file = ([*NODES, "--secret-file", str(file)], {})
    first, second = by_hand(cli, (NODES, {VARIABLE: secret}), of_file)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert trusts(first.json) == []
    kept = [one.read_text() for one in cli.home.rglob("*") if one.is_file()]
    assert kept
    assert secret not in "".join([first.out, first.err, second.out, second.err, *kept])


@pytest.mark.slow
def test_without_one_it_is_said_once_that_the_network_is_trusted(cli: Any) -> None:
    first, second = by_hand(cli, (NODES, {}), (NODES, {}))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert trusts(first.json) == ["the network"]
    assert first.err.count("this run trusts the network") == 1
    assert VARIABLE in first.err
    assert "trusts" not in second.err
    alone = cli(*NODES)
    assert trusts(alone.json) == []
    assert "trusts" not in alone.err


@pytest.mark.slow
def test_a_secret_survives_the_new_start_under_mpirun(cli: Any) -> None:
    """There a rank starts itself anew, so that it can be told from its environment."""
    secret = {VARIABLE: new_secret()}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}
    world["OMPI_COMM_WORLD_SIZE"] = "2"
    second, first = [
        cli.start(*NODES, env={**world, **secret, "OMPI_COMM_WORLD_RANK": rank}) for rank in "10"
    ]
    done = first.wait()
    assert (done.code, second.wait().code) == (0, 0), done.err
    assert trusts(done.json) == []


@pytest.mark.slow
def test_an_engine_of_ours_hands_one_over(cli: Any) -> None:
    done = cli(*NODES, "--on", "local", "--ranks", "2", env={VARIABLE: new_secret()})
    assert done.code == 0, done.err
    assert trusts(done.json) == []
    dry = cli.here(*NODES, "--on", "local", "--ranks", "2", "--dry-run")
    assert dry.code == 0, dry.err
    assert VARIABLE not in dry.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (("check", "--only", "nodes"), ("topo",), "command"),
        (("topo",), ("topo", "--startup-timeout", "50"), "startup_timeout_s"),
    ],
)
def test_a_rank_that_was_asked_for_something_else_ends_the_run_in_words(
    cli: Any, finding: Find, first: Sequence[str], second: Sequence[str], named: str
) -> None:
    ours, theirs = by_hand(cli, ([*first, "-q", "-o", "json"], {}), ([*second, "-q"], {}))
    assert ours.code == 3, ours.out + ours.err
    assert ours.json["verdict"] == "UNKNOWN"
    found = finding(ours.json, "WORLD-002")
    assert "rank 1" in found["saw"]
    assert named in found["saw"]
    assert theirs.code != 0
    assert "Traceback" not in ours.err + theirs.err + json.dumps(ours.json)


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize("secret", [None, new_secret()], ids=["open", "sealed"])
@pytest.mark.slow
def test_a_malformed_letter_ends_nothing_and_is_told(
    cli: Any, finding: Find, secret: str | None
) -> None:
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    world = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env = {**world, **({VARIABLE: secret} if secret else {})}
    running = cli.start("bench", "barrier", "-q", "-o", "json", env=env)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    cli.until(listens)
    attack(port, secret.encode() if secret else None)
    done = running.wait()
    assert done.code in (1, 3), done.err
    told = [one["saw"] + one["title"] for one in done.json["findings"]]
    assert any("no way" in one for one in told), told
    assert finding(done.json, "WORLD-004")["status"] == "warn"
    assert "Traceback" not in done.err
