"""`python -m wirespeed.launchers.rank_wrapper -- COMMAND`: one rank, whatever started it.

Tells the command its rank as torchrun would (RANK, WORLD_SIZE, LOCAL_RANK, …), forwards signals,
frames its output, and says how it ended. With it ends all that it has started: also when what had
started the wrapper is gone, and by the kernel when the wrapper itself is killed. Without
`WIRESPEED_FRAMES` it becomes the command. Standard library only, so that it starts at once.

`--job BASE64` in place of `-- COMMAND` takes the words as base64 of a JSON list, for engines that
pass words through a shell.
"""

import base64
import codecs
import json
import os
import select
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.launchers.watch_relay import VARIABLE as WATCH
from wirespeed.launchers.watch_relay import WatchRelay
from wirespeed.node.identity import Identity, detect, port_of
from wirespeed.process import frames, shell_code
from wirespeed.process.guard import death_signal, signal_group
from wirespeed.process.lookup import explain

MASTER = "WIRESPEED_MASTER"
"""Where rank 0 is, `HOST` or `HOST:PORT`: for commands under engines that do not tell MASTER_ADDR."""
DIRECTORY = "WIRESPEED_DIRECTORY"
"""Where the command shall run; the home folder where there is no such folder on this node."""
SLOTS = "WIRESPEED_SLOTS"
"""Ranks of each node in the order of ranks, `8,8,4`: for engines that do not tell a rank its node."""
THREADS = "OMP_NUM_THREADS"
GRACE = "WIRESPEED_GRACE"
"""Seconds between SIGTERM and SIGKILL."""
GRACE_S = 5.0
_OVERTAKEN_S = 0.5
"""A scheduler's order reaches a command and its wrapper so far apart at most."""
LINGER_S = 2.0
"""A failed rank's wrapper stays so long, since some engines kill all others within milliseconds of
the first end, before these can say what they know."""
SETTLE_S = 5.0
"""A padded rank that has just said much stays until its engine has surely handed it on, so long at
most: Open MPI 5 forgets what is on its way when the last rank ends."""
_HANDED_ON = 20e6
"""Bytes a second, of all ranks together."""
LOOK_S = 0.2
DRAIN_S = 1.0
"""How long output is still read after the command itself has ended (a child may hold the pipe)."""
_READ = 1 << 16
_LONGEST = 1 << 16
"""Characters of a line that are held back; a longer one is sent in parts as it comes."""


def wrapped(python: str, command: Sequence[str], *, encoded: bool = False) -> list[str]:
    """The words that run `command` as a rank; `encoded` where a shell would see them."""
    words = [python, "-P", "-m", "wirespeed.launchers.rank_wrapper"]
    if encoded:
        text = base64.urlsafe_b64encode(json.dumps(list(command)).encode()).decode()
        return [*words, "--job", text]
    return [*words, "--", *command]


def rank_variables(
    *, rank: int, size: int, local: int, local_size: int, node: int
) -> dict[str, str]:
    """What tells a rank its place, where no launcher does."""
    numbers = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": local_size, "NODE_RANK": node}
    numbers |= {"GROUP_RANK": node, "RANK": rank, "LOCAL_RANK": local}
    return {name: str(number) for name, number in numbers.items()}


def main(arguments: Sequence[str]) -> int:
    """Run the rank; the exit code of its command (128 + n for signal n)."""
    try:
        command = _command(arguments)
        identity = detect(os.environ)
        if identity is None:
            raise UsageError("no launcher has given this process a rank", expected="RANK and such")
        environment = _environment(os.environ, identity)
    except WirespeedError as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return error.exit_code
    _go_to(os.environ.get(DIRECTORY, ""))
    told = os.environ.get(frames.VARIABLE, "")
    if not told:
        _become(command, environment)
    token, _, pad = told.partition(",")
    writer = frames.Writer(token, identity.rank, os.uname().nodename, pad=pad == "pad")
    return _Rank(writer, command, environment).run()


def _command(arguments: Sequence[str]) -> list[str]:
    if len(arguments) >= 2 and arguments[0] == "--job":
        return [str(word) for word in json.loads(base64.urlsafe_b64decode(arguments[1]))]
    words = list(arguments)
    # DeepSpeed and old torchruns put --local_rank=N before or after a program's own words.
    if words and words[0].startswith(("--local_rank", "--local-rank")):
        words = words[1:]
    if len(words) < 2 or words[0] != "--":
        raise UsageError(f"no command: {shlex.join(arguments)}", expected="-- COMMAND …")
    return words[1:]


def _environment(environ: Mapping[str, str], identity: Identity) -> dict[str, str]:
    """What the command finds: its rank under the names that every library knows."""
    node = _node_rank(identity, environ.get(SLOTS, ""))
    numbers: dict[str, int | None] = {"RANK": identity.rank, "WORLD_SIZE": identity.world_size}
    numbers |= {"LOCAL_RANK": identity.local_rank, "LOCAL_WORLD_SIZE": identity.local_world_size}
    numbers |= {"NODE_RANK": node, "GROUP_RANK": node}
    own = {name: str(number) for name, number in numbers.items() if number is not None}
    # Slurm tells its ranks the nodes of their step, and so where rank 0 is.
    host, _, port = (environ.get(MASTER) or identity.master_addr or "").partition(":")
    if host and "MASTER_ADDR" not in environ:
        own["MASTER_ADDR"] = host
        own["MASTER_PORT"] = port or str(port_of(identity.job or host))
    # As torchrun: ranks of one node that all use all of its cores spend their time waiting for them.
    if (identity.local_world_size or 1) > 1 and THREADS not in environ:
        own[THREADS] = "1"
    hidden = (frames.VARIABLE, MASTER, GRACE, DIRECTORY, SLOTS, WATCH)
    return {**{k: v for k, v in environ.items() if k not in hidden}, **own}


def _node_rank(identity: Identity, slots: str) -> int | None:
    """As the launcher tells it, else by the nodes' slots, else of nodes of one size filled in order.

    None: nobody tells, and a guess could be wrong.
    """
    if identity.node_rank is not None:
        return identity.node_rank
    rank, local, each = identity.rank, identity.local_rank, identity.local_world_size
    first = 0
    for node, count in enumerate(int(one) for one in slots.split(",") if one.isdecimal()):
        if first <= rank < first + count:
            return node if local in (None, rank - first) else None
        first += count
    if not each or local is None or identity.world_size % each or rank % each != local:
        return None
    return rank // each


def _go_to(directory: str) -> None:
    if not directory:
        return
    for place in (directory, os.environ.get("HOME", "/")):
        with suppress(OSError):
            os.chdir(place)
            return


def _become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        problem = explain(error, command[0], environment.get("PATH"))
        sys.stderr.write(f"wirespeed: {problem.text()}\n")
        sys.exit(problem.exit_code)


class _Rank:
    """The command's process, its two pipes, and what is said of it."""

    def __init__(
        self, writer: frames.Writer, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._writer = writer
        self._command = command
        self._environment = environment
        self._parent = os.getppid()
        self._grace = float(os.environ.get(GRACE, GRACE_S))
        self._texts = {frames.OUT: "", frames.ERR: ""}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {kind: decoder("replace") for kind in self._texts}
        self._kill_at = float("inf")
        # Open MPI 4 gives ranks a terminal as stdout, and reads it with cuts at any byte; stderr is a
        # pipe, which is read in whole frames.
        self._out = 2 if os.isatty(1) else 1
        self._heard = True
        """Whether anybody reads what we say."""
        self._told_to_end = False
        self._watch: WatchRelay | None = None
        self._rate = _HANDED_ON / int(environment["WORLD_SIZE"]) if writer.pad else 1e18
        self._on_its_way = 0.0
        """Bytes, at `_said_at`."""
        self._said_at = time.monotonic()

    def run(self) -> int:
        if os.environ.get(WATCH):
            try:
                self._watch = WatchRelay()
            except OSError as error:
                self._say(frames.ERR, f"wirespeed: this rank is not watched: {error}")
        try:
            return self._run()
        finally:
            if self._watch is not None:
                self._watch.close()

    def _whole_environment(self) -> dict[str, str]:
        own = dict(self._environment)
        return own | self._watch.environment(own) if self._watch is not None else own

    def _run(self) -> int:
        try:
            process = subprocess.Popen(
                list(self._command),
                env=self._whole_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=death_signal(),
            )
        except OSError as error:
            problem = explain(error, self._command[0], self._environment.get("PATH"))
            self._say(frames.ERR, f"wirespeed: {problem.text()}")
            self._write(self._writer.frame(frames.EXIT, str(problem.exit_code)))
            return self._end(problem.exit_code)
        self._write(self._writer.frame(frames.HELLO, str(process.pid)))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, partial(self._forward, process))
        self._pump(process)
        signal_group(process.pid, signal.SIGKILL)  # whatever it has left behind in its group
        code = process.wait()
        self._overtaken(code)
        asked = f" {frames.ASKED}" if self._told_to_end else ""
        self._write(self._writer.frame(frames.EXIT, f"{code}{asked}"))
        return self._end(code)

    def _overtaken(self, code: int) -> None:
        """Wait for the order to end that the command has heard before us."""
        until = time.monotonic() + (_OVERTAKEN_S if code == -signal.SIGTERM else 0.0)
        while not self._told_to_end and time.monotonic() < until:
            time.sleep(LOOK_S / 10)

    def _pump(self, process: subprocess.Popen[bytes]) -> None:
        """Until the command has ended and its pipes are empty."""
        over_at = float("inf")
        with selectors.DefaultSelector() as pipes:
            for pipe, kind in ((process.stdout, frames.OUT), (process.stderr, frames.ERR)):
                if pipe is not None:
                    pipes.register(pipe, selectors.EVENT_READ, kind)
            while pipes.get_map() and time.monotonic() < over_at:
                ready = pipes.select(LOOK_S)
                for key, _ in ready:
                    self._read(pipes, key)
                if not ready:
                    self._flush()
                self._look(process)
                self._hand_on()
                if process.poll() is not None and over_at == float("inf"):
                    over_at = time.monotonic() + DRAIN_S
            while process.poll() is None:
                self._look(process)
                self._hand_on()
                time.sleep(LOOK_S / 10)
        self._hand_on()
        self._flush(last=True)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, pipes: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        kind = key.data
        data = os.read(key.fd, _READ)
        if not data:
            pipes.unregister(key.fileobj)
            return
        *lines, rest = (self._texts[kind] + self._decoders[kind].decode(data)).split("\n")
        for line in lines:
            self._say(kind, line)
        if len(rest) > _LONGEST:
            self._say(_PART[kind], rest)
            rest = ""
        self._texts[kind] = rest

    def _flush(self, *, last: bool = False) -> None:
        """A line that has begun is shown while its end is waited for."""
        for kind, text in self._texts.items():
            if text:
                self._say(kind if last else _PART[kind], text)
                self._texts[kind] = ""

    def _hand_on(self) -> None:
        """What the watched command tells of itself, as far as it is taken away from us."""
        if self._watch is None:
            return
        for text in (*self._watch.read(), *self._watch.look()):
            if _takes(self._out):
                self._say(frames.WATCH, text)

    def _say(self, kind: str, text: str) -> None:
        part = _PART.get(kind, kind)
        for frame in self._writer.pieces(text, part, kind):
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        now = time.monotonic()
        waned = (now - self._said_at) * self._rate
        self._on_its_way, self._said_at = max(self._on_its_way - waned, 0.0) + len(frame), now
        self._heard = self._heard and frames.write_all(self._out, frame)

    def _look(self, process: subprocess.Popen[bytes]) -> None:
        """End the command if nobody is left to read of it, and kill what does not end."""
        self._heard = self._heard and not _is_deaf(self._out)
        if (not self._heard or os.getppid() != self._parent) and not self._told_to_end:
            self._forward(process, signal.SIGTERM, None)
        if time.monotonic() > self._kill_at:
            signal_group(process.pid, signal.SIGKILL)

    def _forward(self, process: subprocess.Popen[bytes], number: int, _: object) -> None:
        self._told_to_end = True
        self._kill_at = min(self._kill_at, time.monotonic() + self._grace)
        signal_group(process.pid, number, signal.SIGCONT)

    def _end(self, code: int) -> int:
        settle = min(self._on_its_way / self._rate, SETTLE_S)
        until = time.monotonic() + max(settle, LINGER_S if code else 0.0)
        while not self._told_to_end and self._heard and time.monotonic() < until:
            if os.getppid() != self._parent:
                break
            time.sleep(min(LOOK_S / 4, settle or LOOK_S))
        return shell_code(code)


_PART = {
    frames.OUT: frames.OUT_PART,
    frames.ERR: frames.ERR_PART,
    frames.WATCH: frames.WATCH_PART,
}


def _takes(handle: int) -> bool:
    """Whether it would take a block at once."""
    return bool(select.select([], [handle], [], 0)[1])


def _is_deaf(handle: int) -> bool:
    """Whether the other end of our output is gone, told without writing: for ranks that say nothing.

    So it is when sshd has lost its connection; what had started us need not end then.
    """
    poll = select.poll()
    poll.register(handle, 0)  # errors and hang-ups are told unasked
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
