"""A small world of real processes under a real monitor; and a rank's side spoken by hand."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wirespeed.watchdog import LocalProcess, Monitor, Outcome, RankStatus, new_token
from wirespeed.watchdog.protocol import Hello, Message, decode, encode, hello_seal, session_seals

PROGRAM = Path(__file__).parent / "rank_program.py"


class WatchedWorld:
    """Starts one process a list of steps (None: that rank is never started)."""

    def __init__(self, folder: Path, scripts: list, *, own: bool = True, **bounds: float) -> None:
        self.records: list[tuple[int, str, dict]] = []
        self.token = new_token()
        self.local: dict[int, LocalProcess] = {}
        self.own = own
        self.folder = folder
        bounds = {"op_timeout_s": 2.0, "startup_timeout_s": 20.0, **bounds}
        self.monitor = Monitor(
            len(scripts), self.token, on_record=self.take, local=self.local, **bounds
        )
        self.port = self.monitor.start()
        self.processes: dict[int, subprocess.Popen] = {}
        self.reported: set[int] = set()
        for rank, steps in enumerate(scripts):
            if steps is not None:
                self.spawn(rank, len(scripts), steps)

    def take(self, rank: int, kind: str, data: dict) -> None:
        self.records.append((rank, kind, data))

    def spawn(self, rank: int, size: int, steps: list) -> None:
        stack_file = self.folder / f"stack-{id(self)}-{rank}.txt"
        words = [self.port, self.token, rank, size, stack_file, json.dumps(steps)]
        with (self.folder / f"rank-{rank}.log").open("w") as log:
            self.processes[rank] = subprocess.Popen(
                [sys.executable, str(PROGRAM), *map(str, words)], stdout=log, stderr=log
            )
        if self.own:
            self.local[rank] = LocalProcess(self.processes[rank].pid, stack_file)

    def reap(self) -> None:
        for rank, process in self.processes.items():
            if process.poll() is not None and rank not in self.reported:
                self.reported.add(rank)
                if self.own:
                    self.monitor.process_ended(rank, process.returncode)

    def until(self, true: Callable[[], bool], timeout: float = 20.0) -> None:
        deadline = time.monotonic() + timeout
        while not true():
            assert time.monotonic() < deadline, self.monitor.statuses()
            self.reap()
            time.sleep(0.01)

    def reached(self, sequence: int, *ranks: int) -> None:
        """Wait until the ranks have begun that many operations."""
        self.until(lambda: all(self.status(rank).sequence >= sequence for rank in ranks))

    def status(self, rank: int) -> RankStatus:
        return self.monitor.statuses()[rank]

    def outcome(self, timeout: float = 20.0) -> Outcome:
        self.until(lambda: self.monitor.outcome() is not None, timeout)
        return self.monitor.outcome()

    def all_end(self, timeout: float = 5.0) -> None:
        """The ranks end by themselves (a stopped one is let go on by its owner's SIGKILL)."""
        self.until(lambda: all(p.poll() is not None for p in self.processes.values()), timeout)

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def log(self, rank: int) -> str:
        return (self.folder / f"rank-{rank}.log").read_text()

    def close(self) -> None:
        self.monitor.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(10)


class Speaker:
    """A caller that was greeted; with the right `token` a rank, sealed line by sealed line."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.token = token
        self.greeted = json.loads(self.line())["nonce"]
        self.to_session, self.to_rank = session_seals(token, self.greeted, "nonce")

    def hello(self, rank: int = 0, size: int = 2, host: str = "node-a", pid: int = 1) -> bytes:
        hello = Hello("nonce", rank, size, host, pid)
        return hello_seal(self.token, self.greeted).sealed(encode(hello))

    def sealed(self, *messages: Message) -> bytes:
        return b"".join(self.to_session.sealed(encode(message)) for message in messages)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """Without its newline; empty when the session closed the connection."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                byte = self.socket.recv(1)
            except ConnectionResetError:
                return b""
            if not byte:
                return b""
            line += byte
        return line[:-1]

    def hear(self) -> Message | None:
        """The next message; None when the session closed the connection."""
        line = self.line()
        return decode(self.to_rank.opened(line)) if line else None

    def __enter__(self) -> "Speaker":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.fixture
def speaker() -> Callable[[int, str], Speaker]:
    """`speaker(port, token)`, a context."""
    return Speaker


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[..., WatchedWorld]]:
    """`watched(scripts, own=True, op_timeout_s=2.0, …)`: a world that is ended after the test."""
    worlds: list[WatchedWorld] = []

    def start(scripts: list, **options: object) -> WatchedWorld:
        worlds.append(WatchedWorld(tmp_path, scripts, **options))
        return worlds[-1]

    yield start
    for world in worlds:
        world.close()
