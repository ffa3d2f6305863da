"""What ranks read from torch's store, where anybody who reaches it can write: over real stores."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from wirespeed.errors import WorldError
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts
from wirespeed.node.identity import Identity, detect
from wirespeed.node.secret import Seal, SealedStore
from wirespeed.plan import LastingPlan, Plan, TrainCase, TrainPlan
from wirespeed.rank.echo_server import EchoServer
from wirespeed.session.joined_world import _refuse_other_plan, _with_local_rank
from wirespeed.session.mailbox import FAILED, ODD, Letters, Mailbox
from wirespeed.session.rendezvous import Rendezvous, publish, read_rendezvous, to_text

pytestmark = pytest.mark.hostile("forged messages")
NONCE = "5ca1ab1e" * 4
SECRET = b"nobody else knows this"
SEALS = {"open": Seal(None, "x"), "sealed": Seal(SECRET, "x")}
PLAN = Plan(command="bench", steps=(), seed=3)


@pytest.fixture
def store(tmp_path: Path) -> dist.Store:
    return dist.FileStore(str(tmp_path / "store"), 2)


@pytest.fixture(params=list(SEALS))
def seal(request: pytest.FixtureRequest) -> Seal:
    return SEALS[request.param]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.session.rendezvous.PATIENCE_S", 0.05)
    monkeypatch.setattr("wirespeed.session.rendezvous.RETRY_S", 0.02)


def rank(number: int, **more: str) -> Identity:
    found = detect({"RANK": str(number), "WORLD_SIZE": "4", **more})
    assert found is not None
    return found


def text() -> bytes:
    return to_text(rank(0), 4711, NONCE, PLAN)


# The rendezvous.


def test_what_rank_0_publishes_is_read(store: dist.Store, seal: Seal) -> None:
    publish(store, text(), seal)
    rendezvous = read_rendezvous(store, seal)
    assert (rendezvous.port, rendezvous.nonce, rendezvous.plan) == (4711, NONCE, PLAN.digests())


@pytest.mark.parametrize("count", ["", "x", "-1", "9" * 30, "0", "161", "²"])
def test_a_count_that_cannot_be_is_told(store: dist.Store, seal: Seal, count: str) -> None:
    publish(store, text(), seal)
    store.set("wirespeed/session", count)
    with pytest.raises(WorldError, match="not its own"):
        read_rendezvous(store, seal)


@pytest.mark.parametrize("piece", ["", "o1 x", "s1 x", "\x00", "A" * 5000])
def test_a_piece_that_was_replaced_is_told(store: dist.Store, seal: Seal, piece: str) -> None:
    publish(store, text(), seal)
    store.set("wirespeed/session/0", piece)
    with pytest.raises(WorldError, match="not its own"):
        read_rendezvous(store, seal)


def test_a_whole_meeting_of_a_stranger_is_refused_with_a_secret(store: dist.Store) -> None:
    for strangers in (SEALS["open"], Seal(b"another", "x")):
        publish(store, text(), strangers)
        with pytest.raises(WorldError, match="one secret for all ranks"):
            read_rendezvous(store, SEALS["sealed"])


def test_a_meeting_of_another_plan_is_never_adopted() -> None:
    lasting = LastingPlan(for_s=9.0, until=0.0, folder="/data")
    case = TrainCase(strategy="ddp", ranks=4, samples=16)
    training = TrainPlan(model="tiny", model_options={}, cases=(case,), lasting=lasting)
    own = Plan(command="train", steps=(), training=training)

    def met(plan: dict[str, str]) -> Rendezvous:
        return Rendezvous(addresses=("10.0.0.1",), port=1, nonce=NONCE, here="node-0/1", plan=plan)

    _refuse_other_plan(rank(1), own, met(own.digests()))
    others = {
        "training.model": {**own.digests(), "training.model": "os:system"},
        "training.lasting.folder": {**own.digests(), "training.lasting.folder": "0" * 16},
        "command, training, training.model": PLAN.digests(),
        "new": {**own.digests(), "new": "0"},
    }
    for named, plan in others.items():
        with pytest.raises(WorldError) as caught:
            _refuse_other_plan(rank(1), own, met(plan))
        told = str(caught.value)
        assert all(name in told for name in named.split(", ")) or "more" in told
        assert (caught.value.exit_code, "rank 1" in told) == (3, True)


# Letters.

NODE = {"host": "node-1", "ranks": [1, 2], "facts": {"kernel": "6"}, "nics": [{"name": "eth0"}]}
PEER = {"rank": 2, "host": "h", "address": "10.0.0.2", "port": 5, "tcp": "", "resolves": []}
PEER = {**PEER, "resolve_error": "", "mtu": 1500, "passes": 1500, "why": "w"}


def test_letters_come_in_order(store: dist.Store, seal: Seal) -> None:
    sealed = SealedStore(store, seal)
    mailbox = Mailbox(sealed, 4)
    letters = Letters(sealed, 1, "node-1")
    letters.record("node", NODE)
    letters.record("peers", {"rank": 1, "peers": [PEER]})
    letters.failed(WorldError("no way"))
    found = list(mailbox.letters())
    assert [one.kind for one in found] == ["node", "peers", FAILED]
    assert found[2].data == {"error": "WorldError: no way"}
    assert found[0].host == "node-1"
    assert list(mailbox.letters()) == []


def _letter(**wrong: Any) -> str:
    good = {"rank": 1, "host": "h", "kind": "failed", "data": {"error": "e"}}
    return json.dumps({**good, **wrong})


POISON = [
    *("", "x", "[]", "null", "{}", "[" * 100_000),
    *(_letter(rank=one) for one in (0, 999, -1, True, "1", None, 10**30)),
    *(_letter(host=one) for one in (None, "\x1b[2J", 5)),
    *(_letter(kind=one) for one in ("joined", "measurement", "outcome", ODD, None, [])),
    *(_letter(data=one) for one in (None, [], {}, {"error": 1}, {"error": "e", "more": 1})),
    _letter(more=1),
    *(
        _letter(kind="node", data={**NODE, **wrong})
        for wrong in (
            *({"ranks": one} for one in ([], [2], [1, 999], ["1"], 1, None)),
            *({"facts": one} for one in ([], None, {"a": [[[[[[[1]]]]]]]})),
            *({"host": 1}, {"nics": ["x"]}, {"environment": {"A": 1}}, {"evil": 1}),
        )
    ),
    *(
        _letter(kind="peers", data={"rank": 1, "peers": one})
        for one in (
            *(None, 1, [1], [{}], [{**PEER, "rank": 999}], [{**PEER, "tcp": 1}]),
            *([{**PEER, "passes": "x"}], [{**PEER, "evil": 1}], [{**PEER, "resolves": [1]}]),
            [{name: value for name, value in PEER.items() if name != "mtu"}],
        )
    ),
    _letter(kind="peers", data={"rank": 2, "peers": []}),
]


def test_a_poisoned_letter_is_told_and_the_next_is_read(store: dist.Store, seal: Seal) -> None:
    sealed = SealedStore(store, seal)
    for poison in POISON:
        number = sealed.add("wirespeed/letters/count", 1) - 1
        sealed.set(f"wirespeed/letters/{number}", poison)
    Letters(sealed, 1, "node-1").failed(WorldError("no way"))
    found = list(Mailbox(sealed, len(POISON)).letters())
    assert [one.kind for one in found[:-1]] == [ODD] * len(POISON)
    assert found[-1].kind == FAILED


def test_with_a_secret_a_strangers_letter_is_odd(store: dist.Store) -> None:
    sealed = SealedStore(store, SEALS["sealed"])
    Letters(SealedStore(store, SEALS["open"]), 1, "node-1").failed(WorldError("forged"))
    Letters(sealed, 1, "node-1").failed(WorldError("true"))
    copied = store.get("wirespeed/letters/1").decode()
    store.set("wirespeed/letters/2", copied)  # it fits its own place only
    found = list(Mailbox(sealed, 4).letters())
    assert [one.kind for one in found] == [ODD, FAILED, ODD]
    assert "mark of this job" in found[0].data["saw"]


def test_many_letters_are_read_in_bounded_number(store: dist.Store) -> None:
    sealed = SealedStore(store, SEALS["open"])
    letters = Letters(sealed, 1, "node-1")
    for _ in range(40):
        letters.failed(WorldError("again"))
    mailbox = Mailbox(sealed, 2)
    assert len(list(mailbox.letters())) == 32
    assert list(mailbox.letters()) == []


# What else stands there.


class Voice:
    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def record(self, kind: str, data: dict[str, Any]) -> None:
        self.records.append((kind, data))

    def failed(self, exception: BaseException) -> None:
        self.records.append(("failed", {}))


def test_a_door_that_is_none_is_left_alone_and_told(store: dist.Store, seal: Seal) -> None:
    sealed, voice = SealedStore(store, seal), Voice()
    node = NodeFacts(
        host="h", ranks=(0,), facts=from_json(Facts, {"net.gloo.address": "127.0.0.1"})
    )
    one_a_node = rank(0, LOCAL_RANK="0", LOCAL_WORLD_SIZE="2")
    with EchoServer(one_a_node, node, sealed, voice, 0.0) as doors:
        doors.joined()
        store.set("wirespeed/echo/1", '{"port": "x"}')
        store.add("wirespeed/echo/ready", 1)
        doors.neighbours()
    assert [kind for kind, _ in voice.records] == [ODD]


def test_a_rank_whose_host_is_forged_ends_in_words(store: dist.Store) -> None:
    sealed = SealedStore(store, SEALS["sealed"])
    for other in range(3):
        sealed.set(f"wirespeed/host/{other}", "node-0")
    assert _with_local_rank(rank(3), sealed).local_rank in (0, 3)
    store.set("wirespeed/host/1", "o1 node-7")
    with pytest.raises(WorldError, match="no rank has told"):
        _with_local_rank(rank(3), sealed)


def test_a_store_that_is_gone_ends_nothing(store: dist.Store) -> None:
    class Gone:
        def check(self, _: list[str]) -> bool:
            raise RuntimeError("Broken pipe")

    mailbox = Mailbox(SealedStore(store, SEALS["open"]), 4)
    mailbox._store = SealedStore(Gone(), SEALS["open"])  # type: ignore[arg-type]
    begin = time.monotonic()
    assert list(mailbox.letters()) == []
    assert time.monotonic() - begin < 10
