"""`python -m wirespeed.launchers.deepspeed.guard -- WORDS`: DeepSpeed's runner under a guard.

The runner itself must not be asked to end: on SIGTERM and SIGINT it logs in to every host and runs
`pkill -f` there, which also ends other jobs of the same Python (deepspeed/launcher/runner.py); when
it is killed, pdsh and its ssh go on. So this process adopts whatever the runner leaves behind, and
ends exactly that: when told to, or when the other end of its stdin is gone. It holds on to stdin
only if a first line comes from there, so that a script may run it with `< /dev/null`.

pdsh goes on as long as one host does. When a host is lost, or ended with an error, the rest is
ended after a grace.

The ranks' environment, carried around DeepSpeed, whose own ways write it on command lines.

Its pdsh launcher starts a node with `export NAME=VALUE; …` on ssh's command line, and the others
tell mpirun or srun `-x NAME=VALUE` and the like: visible to all in the lists of processes. The pairs
are those of the file that DS_ENV_FILE names and, unasked, the launching process's own variables of
some families (deepspeed/launcher/runner.py and multinode_runner.py, `add_export`). So DeepSpeed is
given neither. Where the engine hands on a variable by its name, all is packed into one. Under pdsh it is
brought to the nodes over ssh's stdin before DeepSpeed starts there: each rank finds a file of its own
in a folder that only this user may enter, reads and removes it; the last one removes the folder. The
path is on command lines, the values never are. `far` unpacks it; `Orders` tell the guard what to carry.
"""

import base64
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError, WirespeedError, WorldError
from wirespeed.node.redact import is_secret, redact_value
from wirespeed.process import shell_code
from wirespeed.process.frames import Lines, write_all
from wirespeed.process.guard import StopRequest, adopt_orphans, death_signal, end_descendants

CARRIED = "WIRESPEED_CARRIED"
"""Holds the ranks' variables where the engine hands on a variable by its name."""
PYTHON_PATH = "PYTHONPATH"
_FAMILIES = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
"""Prefixes of what DeepSpeed exports unasked: EXPORT_ENVS of its runner, and its CUDA part's NCCL."""


def carried(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What ranks get: the job's variables, and what DeepSpeed would have exported without secrets."""
    asked = {name: environ[name] for name in names if name in environ}
    unasked = {
        name: value
        for name, value in environ.items()
        if name.startswith(_FAMILIES) and not is_secret(name) and redact_value(value) == value
    }
    return {**unasked, **asked}


def bare(environ: Mapping[str, str]) -> dict[str, str]:
    """Without anything that DeepSpeed would write on a command line of its own accord."""
    return {name: value for name, value in environ.items() if not name.startswith(_FAMILIES)}


def pack(environment: Mapping[str, str]) -> str:
    """One word."""
    return base64.urlsafe_b64encode(json.dumps(dict(environment)).encode()).decode()


def unpack(text: str) -> dict[str, str]:
    """The variables of `pack`; ValueError for anything else."""
    told = json.loads(base64.urlsafe_b64decode(text))
    return {str(name): str(value) for name, value in told.items()}


BRING_S = 30.0
FORGET_S = 5.0
_BRING = (
    'umask 077; folder=$1; shift; rm -rf -- "$folder"; mkdir -- "$folder" && read -r told || exit 1; '
    'for rank in "$@"; do printf %s "$told" > "$folder/$rank" || exit 1; done'
)
_FORGET = 'rm -rf -- "$1"'


@dataclass(frozen=True, slots=True)
class Node:
    """A node that the environment is brought to."""

    words: tuple[str, ...]
    """ssh to it, before the word for the far shell."""
    number: int
    """Among the nodes, as DeepSpeed tells it in CROSS_RANK: nodes may share a file system."""
    ranks: tuple[int, ...]
    """Their global ranks: DeepSpeed's local ones are in no order where slots differ."""


def folder_of(token: str) -> str:
    """What the folders' names begin with; the token itself, which asks for trust, is not in it."""
    return f"/tmp/wirespeed-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def bring(nodes: Sequence[Node], folder: str, told: str) -> None:
    """To all at once; CannotMeasure names what ssh said where it could not be."""
    troubles = _run(nodes, _BRING, folder, f"{told}\n", BRING_S)
    if troubles:
        raise CannotMeasure(
            f"the environment could not be brought to all nodes: {'; '.join(troubles)}",
            expected="ssh, and a folder in /tmp of each node",
        )


def forget(nodes: Sequence[Node], folder: str) -> None:
    """What ranks that never started have left; a node that cannot be asked keeps its folder."""
    _run(nodes, _FORGET, folder, "", FORGET_S)


def take(folder: str, node: int, rank: int) -> dict[str, str]:
    """This rank's variables, which nobody finds again; WorldError where there are none."""
    path = Path(_own(folder, node)) / str(rank)
    try:
        if path.stat().st_uid != os.geteuid():
            raise PermissionError(None, "it belongs to another user")
        told = unpack(path.read_text("ascii"))
        path.unlink()
    except (OSError, ValueError) as error:
        raise WorldError(
            f"{path}: {error}", expected="this rank's environment, as it was brought here"
        ) from error
    with suppress(OSError):
        path.parent.rmdir()  # the last one can
    return told


def _own(folder: str, node: int) -> str:
    return f"{folder}-{node}"


def _run(
    nodes: Sequence[Node], program: str, folder: str, stdin: str, within_s: float
) -> list[str]:
    """What went wrong, a text for each node that it did on."""

    def run(node: Node) -> str:
        words = ["sh", "-c", program, "sh", _own(folder, node.number), *map(str, node.ranks)]
        try:
            done = subprocess.run(
                [*node.words, f"exec {shlex.join(words)}"],
                input=stdin.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                timeout=within_s,
            )
        except OSError as error:
            raise CannotMeasure(f"{node.words[0]} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            return f"no answer within {within_s:g} s"
        said = done.stderr.decode("utf-8", "replace").strip()
        return (said or str(done.returncode)) if done.returncode else ""

    with ThreadPoolExecutor(max(len(nodes), 1)) as threads:
        return list(filter(None, threads.map(run, nodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Names only: the values are the guard's own environment."""

    names: tuple[str, ...]
    """Variables that ranks shall get."""
    folder: str = ""
    """Where a node's ranks find them, under pdsh."""
    nodes: Sequence[Node] = ()
    """Under pdsh: to whom they are brought."""


def orders_text(orders: Orders) -> str:
    """As a file, for `read_orders`."""
    nodes = [asdict(node) for node in orders.nodes]
    told = {"names": sorted(orders.names), "folder": orders.folder, "nodes": nodes}
    return json.dumps(told) + "\n"


def read_orders(path: str) -> Orders:
    """UsageError where there are none."""
    try:
        told = json.loads(Path(path).read_text("utf-8"))
        nodes = [
            Node(tuple(one["words"]), int(one["number"]), tuple(map(int, one["ranks"])))
            for one in told["nodes"]
        ]
        return Orders(names=tuple(told["names"]), folder=told["folder"], nodes=nodes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: {error}", expected="orders for DeepSpeed's guard") from error


HOLD = "hold\n"
"""First line on stdin: from now on, end when stdin ends."""
ORDERLY_S = 5.0
"""From SIGTERM to SIGKILL, below the 8 s that `supervise` waits for us."""
LOOK_S = 0.1
_READ = 1 << 16
AS_IS = "as-is"
"""In place of orders: the ranks' environment is ours."""
_PATH = "WIRESPEED_PATH"
_RUN = (
    "import os, runpy, sys; sys.path[:0] = os.environ.pop('WIRESPEED_PATH').split(os.pathsep); "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""A module with PYTHONPATH's folders, which DeepSpeed does not see as PYTHONPATH and export."""
_HOST_ENDED = re.compile(rb"^pdsh@\S+: (\S+): ssh exited with exit code (\d+)")


def guarded(python: str, words: Sequence[str], grace_s: float, *, orders: str = "") -> list[str]:
    """The words that run `words` under it; `orders`: the file of `orders`, for ranks elsewhere."""
    module = "wirespeed.launchers.deepspeed.guard"
    return [python, "-P", "-m", module, f"{grace_s:g}", orders or AS_IS, "--", *words]


def main(arguments: Sequence[str]) -> int:
    """Run it; its exit code (128 + n for signal n)."""
    try:
        if len(arguments) < 4 or arguments[2] != "--":
            expected = f"SECONDS ORDERS|{AS_IS} -- WORDS"
            raise UsageError(f"no command: {shlex.join(arguments)}", expected=expected)
        words, grace_s = arguments[3:], float(arguments[0])
        if arguments[1] == AS_IS:
            return _Guard(words, dict(os.environ), grace_s).run()
        return _carrying(words, read_orders(arguments[1]), grace_s)
    except WirespeedError as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return error.exit_code


def _carrying(words: Sequence[str], orders: Orders, grace_s: float) -> int:
    """With the ranks' environment carried around DeepSpeed."""
    told = pack(carried(os.environ, orders.names))
    environment, words = _for_runner(words)
    if not orders.nodes:
        # First: Hydra loses the last of its variables.
        return _Guard(words, {CARRIED: told, **environment}, grace_s).run()
    guard = _Guard(words, environment, grace_s)
    bring(orders.nodes, orders.folder, told)
    code = guard.run()
    if code:
        forget(orders.nodes, orders.folder)
    return code


def _for_runner(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """DeepSpeed's own environment, and its words, which do not need PYTHONPATH to find it."""
    environment = {**bare(os.environ), "DS_ENV_FILE": os.devnull}
    path = os.environ.get(PYTHON_PATH, "")
    if not path or list(words[1:3]) != ["-P", "-m"]:
        return environment, list(words)
    return {**environment, _PATH: path}, [words[0], "-P", "-c", _RUN, *words[3:]]


class _Guard:
    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], grace_s: float
    ) -> None:
        self._words = list(words)
        self._environment = environment
        self._grace_s = grace_s
        self._end_at = float("inf")
        self._lines = Lines()

    def run(self) -> int:
        stop = StopRequest(stdin="held")
        adopt_orphans()
        process, below = self._start()
        while process.poll() is None and not stop.reason and time.monotonic() < self._end_at:
            if stop.wait(LOOK_S, below) and not self._hear(below):
                time.sleep(LOOK_S)
        code = process.poll()
        # First the runner, which then logs in nowhere; what it leaves becomes ours, pdsh and its ssh.
        process.kill()
        process.wait()
        end_descendants(ORDERLY_S)
        while self._hear(below, wait=False):
            pass
        os.close(below)
        return 128 + signal.SIGTERM if code is None else shell_code(code)

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        """The runner, and where its stderr is read."""
        # With the hostfile's whole path, which may be relative in a script written for later.
        pairs = zip(["", *self._words], self._words, strict=False)
        words = [
            str(Path(word).absolute()) if before == "--hostfile" else word for before, word in pairs
        ]
        os.chdir("/")  # DeepSpeed writes its folder, unquoted, on the far shells' command lines
        below, above = os.pipe()
        os.set_blocking(below, False)
        try:
            process = subprocess.Popen(
                words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stderr=above,
                start_new_session=True,
                preexec_fn=death_signal(),
            )
        except OSError as error:
            raise UsageError(f"{self._words[0]} cannot be started: {error.strerror}") from error
        finally:
            os.close(above)
        return process, below

    def _hear(self, pipe: int, *, wait: bool = True) -> bool:
        """Pass on what the runner and the hosts say on stderr; False when there is no more."""
        try:
            data = os.read(pipe, _READ)
        except BlockingIOError:
            return wait
        write_all(2, data)  # nobody listens: then stdin ends too
        if any(_HOST_ENDED.match(line) for line in self._lines.feed(data)):
            self._end_at = min(self._end_at, time.monotonic() + self._grace_s)
        return bool(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
