"""A command on every node at once: one process group a node, started, watched and ended."""

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, BinaryIO, Literal

from wirespeed.errors import CannotMeasure
from wirespeed.lab.processes import end_all
from wirespeed.lab.state import Layout, space_path
from wirespeed.process import shell_code
from wirespeed.process.frames import Lines
from wirespeed.process.guard import signal_group

_CHUNK = 65_536
_DRAIN_S = 2.0
"""A process that outlives its command may hold its output open: no longer than this."""


class Captured:
    """Files without a name, so that a command never waits for a reader."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[IO[bytes], IO[bytes]]] = {}
        self._texts: dict[str, tuple[str, str]] = {}

    def open(self, node: str) -> tuple[int | None, int | None]:
        """File descriptors for stdout and stderr of that node's command; None: ours."""
        files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - see close
        self._files[node] = files
        return files[0].fileno(), files[1].fileno()

    def started(self, node: str) -> None:
        """The command runs, and has its own copies."""

    def wait(self, seconds: float) -> None:
        """Spend so much time, at most, with passing output on."""
        time.sleep(seconds)

    def close(self) -> None:
        for node, (out, err) in self._files.items():
            self._texts[node] = _all_of(out), _all_of(err)
        self._files = {}

    def text(self, node: str) -> tuple[str, str]:
        """What was kept of stdout and stderr, after `close`."""
        return self._texts.get(node, ("", ""))


class Shown:
    """The first node's output is ours; each line of the others begins with the node's name."""

    def __init__(self, first: str) -> None:
        self._first = first
        self._ends: dict[str, list[int]] = {}
        self._lines = selectors.DefaultSelector()

    def open(self, node: str) -> tuple[int | None, int | None]:
        if node == self._first:
            return None, None
        ends = []
        for target in (sys.stdout, sys.stderr):
            read, write = os.pipe()
            lines = _Prefixed(f"[{node}] ".encode(), target.buffer)
            self._lines.register(read, selectors.EVENT_READ, lines)
            ends.append(write)
        self._ends[node] = ends
        return ends[0], ends[1]

    def started(self, node: str) -> None:
        for end in self._ends.pop(node, ()):
            os.close(end)

    def wait(self, seconds: float) -> None:
        if not self._lines.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._lines.select(seconds):
            chunk = os.read(key.fd, _CHUNK)
            key.data.take(chunk)
            if not chunk:
                self._forget(key.fd)

    def close(self) -> None:
        deadline = time.monotonic() + _DRAIN_S
        try:
            while self._lines.get_map() and time.monotonic() < deadline:
                self.wait(0.05)
        finally:
            for node in list(self._ends):
                self.started(node)
            for key in list(self._lines.get_map().values()):
                self._forget(key.fd)
            self._lines.close()

    def text(self, node: str) -> tuple[str, str]:
        return "", ""

    def _forget(self, end: int) -> None:
        self._lines.unregister(end)
        os.close(end)


Output = Captured | Shown


class _Prefixed:
    """Whole lines only, so that two nodes never share one."""

    def __init__(self, prefix: bytes, target: BinaryIO) -> None:
        self._prefix, self._target, self._lines = prefix, target, Lines()

    def take(self, chunk: bytes) -> None:
        """An empty chunk is the end."""
        if lines := self._lines.feed(chunk):
            self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._target.flush()


def _all_of(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


_MARK = "WIRESPEED_LAB_RUN"
_LOOK_S, _END_S, _KILL_S, _BOUND_S = 0.03, 5.0, 5.0, 10.0
TIMED_OUT = 3

Reason = Literal["", "timeout", "grace", "interrupted"]
"""Why a command was ended: not at all, it took too long, another one failed, Ctrl-C."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """How the command of one node ended."""

    node: str
    returncode: int
    """As subprocess has it: below zero is the number of a signal."""
    stdout: str
    stderr: str
    ended: Reason = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a command meets on one node, apart from its network and its name."""

    cgroups: Sequence[str] = ()
    """Files to which it writes its process id."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Stronger than any other: the node is set up so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start on one node."""

    node: str
    words: Sequence[str]
    """The whole command, the entry into the node included."""
    environment: Mapping[str, str]


def enter_words(layout: Layout, node: str, entry: Entry, words: Sequence[str]) -> list[str]:
    """The command that runs `words` on that node: its network, host name, /etc/hosts and entry."""
    facts = {
        "net": str(space_path(layout.space(node))),
        "host": node,
        "hosts": str(layout.hosts(node)),
        "cgroups": list(entry.cgroups),
        "environment": dict(entry.environment),
    }
    return [*layout.script("enter"), json.dumps(facts), *words]


def free_port(layout: Layout, node: str) -> int:
    """A TCP port on which nobody listens on that node at this moment."""
    facts = json.dumps({"net": str(space_path(layout.space(node)))})
    words = [*layout.script("enter"), facts, *layout.script("port")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_BOUND_S, check=False)
    if done.returncode:
        raise CannotMeasure(f"no free port on {node}: {done.stderr.strip()}")
    return int(done.stdout)


def plan(
    layout: Layout,
    entries: Mapping[str, Entry],
    words: Sequence[str],
    port: int,
    env: Mapping[str, str],
    *,
    ranks: bool = True,
) -> list[Plan]:
    """The command for each node of `entries`, with its place among them and where the first is."""
    master = layout.address(next(iter(entries)))
    # Each node takes all cores for its own: so many spinning threads would starve each other.
    threads = len(os.sched_getaffinity(0)) // len(layout.nodes)
    cores = {"OMP_NUM_THREADS": str(max(1, threads))}
    plans = []
    for rank, (node, entry) in enumerate(entries.items()):
        told = {"rank": str(rank), "nodes": str(len(entries)), "master": master, "port": str(port)}
        own = {**_variables(told, ranks), "WIRESPEED_LAB": layout.name}
        filled = [_fill(word, told) for word in words]
        entered = enter_words(layout, node, entry, filled)
        plans.append(Plan(node, entered, {**cores, **os.environ, **own, **env}))
    return plans


def _variables(told: Mapping[str, str], ranks: bool) -> dict[str, str]:
    """What torchrun sets for one rank a node (torchrun itself overwrites it for its own ranks)."""
    variables = {
        "NODE_RANK": told["rank"],
        "NNODES": told["nodes"],
        "MASTER_ADDR": told["master"],
        "MASTER_PORT": told["port"],
    }
    if ranks:
        variables |= {"RANK": told["rank"], "WORLD_SIZE": told["nodes"]}
        variables |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return variables


class Running:
    """Started commands. `wait` for them, or `end` them; both leave none of them running."""

    def __init__(
        self, layout: Layout, plans: Sequence[Plan], output: Output, port: int = 0
    ) -> None:
        self.port = port
        """What `{port}` is in these commands."""
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        self._spaces = [layout.space(one.node) for one in plans]
        self._output = output
        self._groups: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: dict[str, Reason] = {}
        self._results: list[NodeResult] | None = None
        try:
            for one in plans:
                self._start(one)
        except BaseException:
            self.end("interrupted", within_s=0.0)
            raise

    @property
    def pids(self) -> dict[str, int]:
        """Process and process group id of each node's command."""
        return {node: group.pid for node, group in self._groups.items()}

    def alive(self) -> list[str]:
        """The nodes whose command has not ended."""
        return [node for node, group in self._groups.items() if group.poll() is None]

    def wait(self, timeout: float, grace: float) -> list[NodeResult]:
        """Until all have ended; seconds.

        Once one has failed the others have `grace` left, and nobody has more than `timeout`.
        """
        deadline = time.monotonic() + timeout
        reason: Reason = "timeout"
        failed = False
        while self.alive() and time.monotonic() < deadline:
            self._output.wait(_LOOK_S)
            if not failed and self._failed():
                failed = True
                if time.monotonic() + grace < deadline:
                    deadline, reason = time.monotonic() + grace, "grace"
        return self.end(reason)

    def end(
        self,
        reason: Reason = "interrupted",
        first: signal.Signals = signal.SIGTERM,
        within_s: float = _END_S,
    ) -> list[NodeResult]:
        """End what still runs: `first`, SIGTERM, then SIGKILL, with `within_s` for each."""
        if self._results is None:
            self._end(reason, first, within_s)
            self._results = [self._result(node) for node in self._groups]
        return self._results

    def _end(self, reason: Reason, first: signal.Signals, within_s: float) -> None:
        try:
            self._ended.update(dict.fromkeys(self.alive(), reason))
            for number in dict.fromkeys((first, signal.SIGTERM)):
                if self.alive():
                    self._signal(number)
                    self._until_none(within_s)
        finally:
            # After a good end a daemon that a command left in a session of its own may stay.
            good = not self._ended and not self._failed()
            groups = self.pids.values() if good else ()
            end_all(self._spaces, _KILL_S, self._mark, groups)
            self._signal(signal.SIGKILL)
            for group in self._groups.values():
                with suppress(subprocess.TimeoutExpired):
                    group.wait(_KILL_S)
            self._output.close()

    def _start(self, one: Plan) -> None:
        name, _, token = self._mark.partition("=")
        out, err = self._output.open(one.node)
        try:
            self._groups[one.node] = subprocess.Popen(
                list(one.words),
                env={**one.environment, name: token},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        finally:
            self._output.started(one.node)

    def _failed(self) -> bool:
        return any(group.poll() not in (None, 0) for group in self._groups.values())

    def _signal(self, number: signal.Signals) -> None:
        """To the process group of each command that runs; its id is nobody else's until then."""
        for node in self.alive():
            signal_group(self._groups[node].pid, number, signal.SIGCONT)

    def _until_none(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            self._output.wait(_LOOK_S)

    def _result(self, node: str) -> NodeResult:
        code = self._groups[node].returncode
        code = -signal.SIGKILL if code is None else code
        return NodeResult(node, code, *self._output.text(node), self._ended.get(node, ""))


def exit_code(results: Sequence[NodeResult]) -> int:
    """The largest of those that ended by themselves (128 + n for signal n); 3 when time ran out."""
    own = [result.returncode for result in results if not result.ended]
    codes = [shell_code(code) for code in own]
    if any(result.ended == "timeout" for result in results):
        codes.append(TIMED_OUT)
    return max(codes, default=130)


def _fill(word: str, told: Mapping[str, str]) -> str:
    for name, value in told.items():
        word = word.replace("{" + name + "}", value)
    return word
