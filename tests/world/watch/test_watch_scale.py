"""A thousand ranks, played by one process, under one monitor thread."""

import resource
import selectors
import socket
import time

from wirespeed.world.watch import Monitor
from wirespeed.world.watch.protocol import Abort, Beat, Hello, LineBuffer, StackText, decode, encode

OP = "all_reduce float32 1 MiB"


class Swarm:
    """Simulated ranks: each joins, beats every 0.5 s and answers requests."""

    def __init__(self, port: int, size: int, sequences: dict[int, int]) -> None:
        self.size, self.sequences = size, sequences
        self.aborted: set[int] = set()
        self.selector = selectors.DefaultSelector()
        self.sockets = []
        for rank in range(size):
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            connection.sendall(encode(Hello("t", rank, size, f"node-{rank // 8}", rank + 1)))
            self.selector.register(connection, selectors.EVENT_READ, (rank, LineBuffer(1 << 20)))
            self.sockets.append(connection)

    def beat(self) -> None:
        for rank, connection in enumerate(self.sockets):
            sequence = self.sequences.get(rank, 6)
            connection.sendall(encode(Beat("running", "", OP, sequence, 0, 0.0, 0.0)))

    def answer(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                rank, lines = key.data
                data = key.fileobj.recv(65536)
                if not data:
                    self.selector.unregister(key.fileobj)
                for line in lines.feed(data):
                    self.obey(rank, key.fileobj, decode(line))

    def obey(self, rank: int, connection: socket.socket, message: object) -> None:
        if isinstance(message, Abort):
            self.aborted.add(rank)
        elif type(message).__name__ == "StackRequest":
            connection.sendall(encode(StackText(f"stack of {rank}", [[1, OP]])))

    def close(self) -> None:
        self.selector.close()
        for connection in self.sockets:
            connection.close()


def test_a_thousand_ranks_and_the_one_that_is_behind():
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    size = min(1000, (allowed - 100) // 2)
    culprit = size // 2 + 1
    with Monitor(size, "t", on_record=lambda *_: None, op_timeout_s=3.0) as monitor:
        swarm = Swarm(monitor.start(), size, {culprit: 5})
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
