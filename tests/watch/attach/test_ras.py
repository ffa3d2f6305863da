"""NCCL's RAS, spoken by a server of the test."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.process import free_port
from wirespeed.watch.attach.ranks import RankProcess
from wirespeed.watch.attach.ras import addresses, ras_says

OPS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def report(*counts: int) -> str:
    """As RAS prints JSON. counts: AllReduce of each rank."""
    fine = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False}
    ranks = [
        {"rank": rank, "host": "a", "pid": 1, "cuda_dev": rank, "nvml_dev": rank}
        | {"status": fine | {"abort_flag": False}}
        | {"collective_counts": dict.fromkeys(OPS, 5) | {"AllReduce": count}}
        for rank, count in enumerate(counts)
    ]
    comm = {"hash": "0x1", "size": len(counts), "ranks_count": len(counts), "ranks": ranks}
    return json.dumps({"communicators_count": 1, "communicators": [comm | {"missing_ranks": []}]})


class Ras:
    """Answers one caller; `heard` are its lines."""

    def __init__(self, answers: dict[str, str], *, flood: bool = False) -> None:
        self.answers, self.flood = answers, flood
        self.heard: list[str] = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = self.server.getsockname()[:2]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer, _ = self.server.accept()
        # What is left to be written when the caller has gone is refused at the end, too.
        with suppress(OSError), peer, peer.makefile("rw") as stream:
            for line in stream:
                self.heard.append(line.strip())
                answer = self.answers.get(line.split()[0])
                if answer is None:
                    time.sleep(2)  # says nothing
                    return
                try:
                    stream.write(answer)
                    stream.flush()
                    while self.flood and line.startswith("VERBOSE"):
                        stream.write("x" * 65536)
                        stream.flush()
                except OSError:
                    return
                if line.startswith("VERBOSE"):
                    return


GOOD = {"CLIENT": "SERVER PROTOCOL 2\n", "TIMEOUT": "OK\n", "SET": "OK\n"}


@pytest.fixture
def ras() -> Iterator[Callable[..., Ras]]:
    every: list[Ras] = []

    def start(answers: dict[str, str], **options: bool) -> Ras:
        every.append(Ras(answers, **options))
        return every[-1]

    yield start
    for one in every:
        one.server.close()


def test_its_json_becomes_findings(ras) -> None:
    server = ras(GOOD | {"VERBOSE": report(9, 9, 9, 4)})
    ((one,), lines) = ras_says(server.address)
    assert (one.id, one.status, one.subject.name) == ("RAS-104", "fail", "rank 3")
    assert lines == []
    assert server.heard == [
        "CLIENT PROTOCOL 2",
        "TIMEOUT 5",
        "SET FORMAT json",
        "VERBOSE STATUS",
    ]


def test_an_older_one_gives_text_without_what_steers_a_terminal(ras) -> None:
    text = "NCCL version 2.24.3\n\nJob summary\n==== OK\n"
    found, lines = ras_says(ras(GOOD | {"SET": "ERROR: unknown\n", "VERBOSE": text}).address)
    assert found == [] and [line.partition(": ")[2] for line in lines] == [
        "NCCL version 2.24.3",
        "Job summary",
        "==== OK",
    ]


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "answers, told",
    [
        ({"CLIENT": "HTTP/1.1 400\n"}, "no NCCL RAS"),
        ({}, "did not answer in time|timed out"),
        (GOOD | {"VERBOSE": '{"communicators": [{}]}'}, "no whole report"),
        (GOOD | {"VERBOSE": report(1, 1)[:50]}, "no whole report"),
    ],
)
def test_what_is_no_ras_is_told_in_bounded_time(ras, answers, told) -> None:
    with pytest.raises(CannotMeasure, match=told):
        ras_says(ras(answers).address, 0.5)


@pytest.mark.hostile("floods")
def test_a_flood_ends(ras) -> None:
    server = ras(GOOD | {"VERBOSE": "{"}, flood=True)
    with pytest.raises(CannotMeasure, match=r"more than 16 MiB|in time|timed out"):
        ras_says(server.address, 2.0)


def test_nobody_listens() -> None:
    with pytest.raises(CannotMeasure, match="refused"):
        ras_says(("127.0.0.1", free_port()), 0.5)


@pytest.mark.parametrize(
    "named, found",
    [
        (None, [("127.0.0.1", 28028)]),
        ("localhost:4000", [("127.0.0.1", 4000)]),
        ("[::1]:4000", [("::1", 4000)]),
        ("203.0.113.7:4000", []),
        ("example.org:4000", []),
        ("127.0.0.1:99999", []),
        ("nonsense", []),
    ],
)
def test_only_this_machine_is_asked(named, found) -> None:
    environment = {} if named is None else {"NCCL_RAS_ADDR": named}
    one = RankProcess(
        pid=1, parent=1, rank=0, world_size=1, host="a", launcher="", command="",
        environment=environment,
    )  # fmt: skip
    assert addresses([one, one]) == found
