"""A thousand ranks, played by one process, under one monitor thread."""

import resource
import selectors
import time
from typing import Any

import pytest

from wirespeed.watchdog import Monitor
from wirespeed.watchdog.protocol import Abort, Beat, LineBuffer, StackText, decode

OP = "all_reduce float32 1 MiB"


class Swarm:
    """Simulated ranks: each joins, beats every 0.5 s and answers requests."""

    def __init__(self, speaker: Any, port: int, size: int, sequences: dict[int, int]) -> None:
        self.size, self.sequences = size, sequences
        self.aborted: set[int] = set()
        self.selector = selectors.DefaultSelector()
        self.speakers = []
        for rank in range(size):
            one = speaker(port, "t")
            one.send(one.hello(rank, size, f"node-{rank // 8}", rank + 1))
            self.selector.register(one.socket, selectors.EVENT_READ, (rank, LineBuffer(1 << 20)))
            self.speakers.append(one)

    def beat(self) -> None:
        for rank, one in enumerate(self.speakers):
            sequence = self.sequences.get(rank, 6)
            one.send(one.sealed(Beat("running", "", OP, sequence, 0, 0.0, 0.0)))

    def answer(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                rank, lines = key.data
                data = key.fileobj.recv(65536)
                if not data:
                    self.selector.unregister(key.fileobj)
                for line in lines.feed(data):
                    self.obey(rank, decode(self.speakers[rank].to_rank.opened(line)))

    def obey(self, rank: int, message: object) -> None:
        if isinstance(message, Abort):
            self.aborted.add(rank)
        elif type(message).__name__ == "StackRequest":
            one = self.speakers[rank]
            one.send(one.sealed(StackText(f"stack of {rank}", [[1, OP]])))

    def close(self) -> None:
        self.selector.close()
        for one in self.speakers:
            one.socket.close()


@pytest.mark.slow
def test_a_thousand_ranks_and_the_one_that_is_behind(speaker):
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    size = min(1000, (allowed - 100) // 2)
    culprit = size // 2 + 1
    with Monitor(size, "t", on_record=lambda *_: None, op_timeout_s=3.0) as monitor:
        swarm = Swarm(speaker, monitor.start(), size, {culprit: 5})
        try:
            deadline = time.monotonic() + 60
            while monitor.outcome() is None:
                assert time.monotonic() < deadline
                swarm.beat()
                swarm.answer(0.5)
            swarm.answer(1.0)
        finally:
            swarm.close()
        outcome = monitor.outcome()
    assert outcome is not None
    assert [(f.id, f.subject.name) for f in outcome.findings] == [("HANG-002", f"rank {culprit}")]
    assert f"stack of {culprit}" in outcome.findings[0].evidence
    assert f"{size - 1} in {OP} (operation 6)" in outcome.findings[0].costs
    assert len(swarm.aborted) == size
