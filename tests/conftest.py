"""Wirespeed as a user starts it: processes of their own, in a home of their own, in bounded time."""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from wirespeed.__main__ import main
from wirespeed.errors import COMMAND_LINE
from worlds import Nursery

BOUND_S = 150.0
"""No command in a test takes longer, however loaded the machine is."""
END_S = 20.0
"""Within this every process of a run is gone after the command ended."""

_NO_PICKLES = Path(__file__).parent / "helpers" / "no_pickles"
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC")
_LAUNCHERS += ("OMPI_", "PMI", "PRTE_", "SLURM_", "CROSS_", "MPI_")
_SETTINGS = ("WIRESPEED", "GLOO_", "NCCL_", "TORCH_", "OMP_", "XDG_", "PYTHON", "NO_COLOR", "COV_")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


NO_CLOUD = {
    f"WIRESPEED_{cloud}_METADATA": "http://127.0.0.1:1" for cloud in ("AWS", "AZURE", "GCP")
}
"""Closed ports: no test asks the metadata service of the cloud that it may run in."""
os.environ.update(NO_CLOUD)
os.environ["WIRESPEED_NEIGHBOURS"] = f"tests of {os.getpid()}"
"""Commands of other tests, which run at the same time, are no neighbours."""

# A shell starts what it puts in the background without SIGINT, and nohup without SIGHUP; every command
# started here would keep that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Running:
    """A command that was started; its output goes to files, so that it never waits for a reader."""

    def __init__(
        self, words: Sequence[str], folder: Path, env: dict[str, str], limits: dict[int, int]
    ) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        self._began = time.monotonic()
        before_exec = _limited(limits) if limits else None
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                list(words),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=env,
                cwd=folder.parent,
                start_new_session=True,
                preexec_fn=before_exec,
            )

    def out(self) -> str:
        return self._out.read_text("utf-8")

    def err(self) -> str:
        return self._err.read_text("utf-8")

    def signal(self, number: signal.Signals) -> None:
        """To this one process, as `kill` does it."""
        self.process.send_signal(number)

    def wait(self, timeout: float = BOUND_S) -> Done:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end after {timeout} s\n{self.out()}\n{self.err()}") from None
        return Done(code, self.out(), self.err(), time.monotonic() - self._began)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_S)


class Cli:
    """Starts commands in one folder, and knows what is theirs: their environment names its home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._started: list[Running] = []
        self._commands = 0
        (folder / "tmp").mkdir()

    # Starting.

    def __call__(self, *arguments: str, timeout: float = BOUND_S, **options: Any) -> Done:
        """Run `wirespeed ARGUMENTS` to its end."""
        return self.start(*arguments, **options).wait(timeout)

    def here(self, *arguments: str, env: dict[str, str] | None = None) -> Done:
        """The same in this process, at a tenth of the price: for what starts no ranks."""
        folder, environment = self._place(env)
        out, err = folder / "stdout", folder / "stderr"
        before, handlers = dict(os.environ), {n: signal.getsignal(n) for n in _HANDLED}
        began = time.monotonic()
        with ExitStack() as stack:
            stack.callback(_set_environment, before)
            stack.callback(_set_handlers, handlers)
            stack.enter_context(chdir(self.folder))
            stack.enter_context(redirect_stdout(stack.enter_context(_to(1, out))))
            stack.enter_context(redirect_stderr(stack.enter_context(_to(2, err))))
            _set_environment(environment)
            code = _ended(arguments)
        return Done(code, out.read_text("utf-8"), err.read_text("utf-8"), time.monotonic() - began)

    def start(self, *arguments: str, **options: Any) -> Running:
        return self.start_words([sys.executable, "-m", "wirespeed", *arguments], **options)

    def start_words(
        self,
        words: Sequence[str],
        *,
        env: dict[str, str] | None = None,
        limits: dict[int, int] | None = None,
    ) -> Running:
        """Start any command; `limits` by resource, such as `{resource.RLIMIT_FSIZE: 1000}`."""
        folder, environment = self._place(env)
        if limits:
            # Python would write bytecode cut at the limit, and every later command would read it.
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        running = Running(words, folder, environment, limits or {})
        self._started.append(running)
        return running

    def _place(self, env: dict[str, str] | None) -> tuple[Path, dict[str, str]]:
        """A new folder for what one command prints, and its environment."""
        folder = self.folder / f"command-{self._commands}"
        self._commands += 1
        folder.mkdir()
        return folder, {**self.environment(), "WIRESPEED_NEIGHBOURS": str(folder), **(env or {})}

    def environment(self) -> dict[str, str]:
        """Ours, without a word of any launcher or setting."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_LAUNCHERS + _SETTINGS)
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
        kept |= NO_CLOUD
        places = {"TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder)}
        return {**kept, **places, "PATH": path, "WIRESPEED_HOME": str(self.home)}

    def no_pickles(self) -> dict[str, str]:
        """What makes ranks raise where they send a pickle; see `without_pickles`."""
        return {"PYTHONPATH": str(_NO_PICKLES), "NO_PICKLES": str(self.folder / "no-pickles")}

    def without_pickles(self) -> int:
        """In how many processes that was in force, without those that only forked others."""
        lines = (self.folder / "no-pickles").read_text().splitlines()
        pids, parents = zip(*(line.split() for line in lines), strict=True)
        return len({*pids} - {*parents})

    # What runs.

    def processes(self) -> dict[int, dict[str, str]]:
        """Environment by pid of every process that carries this home."""
        mark = f"WIRESPEED_HOME={self.home}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    words = (entry / "environ").read_bytes().split(b"\0")
                    if mark in words:
                        pairs = (word.decode("utf-8", "replace").partition("=") for word in words)
                        found[int(entry.name)] = {name: value for name, _, value in pairs}
        return found

    def ranks(self) -> dict[int, int]:
        """Pid by rank, as a user finds them: by their names, or RANK in the environment of a process."""
        found = {}
        for pid, env in self.processes().items():
            name = _name(pid)
            if "RANK" in env or name.startswith("rank "):
                found[int(env.get("RANK") or name.removeprefix("rank "))] = pid
        return found

    def nothing_runs(self, timeout: float = END_S) -> None:
        """Fails when a process of ours still runs after `timeout` seconds; it is ended then."""
        with suppress(AssertionError):
            self.until(lambda: not self.processes(), timeout)
        left = {pid: _command_line(pid) for pid in self.processes()}
        self.end_all()
        assert not left, f"processes left: {left}"

    def end_all(self) -> None:
        for running in self._started:
            running.kill()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def until(self, true: Callable[[], Any], timeout: float = BOUND_S) -> Any:
        """Wait until `true()` is; its value."""
        deadline = time.monotonic() + timeout
        while not (value := true()):
            assert time.monotonic() < deadline, f"not within {timeout} s; {self._said()}"
            time.sleep(0.02)
        return value

    def measuring(self, ranks: int, least: int = 1) -> dict[int, int]:
        """Wait until a run has stored `least` measurements; pid by rank."""
        self.until(lambda: len(self.stored("measurement")) >= least)
        return self.until(lambda: found if len(found := self.ranks()) == ranks else None)

    # What was stored.

    def folders(self) -> list[Path]:
        return sorted((self.home / "runs").glob("*-*"))

    def run(self) -> dict[str, Any]:
        """The only run of this home."""
        (folder,) = self.folders()
        found: dict[str, Any] = json.loads((folder / "run.json").read_text())
        return found

    def stored(self, kind: str) -> list[dict[str, Any]]:
        """Records of that kind, of all runs, whole lines only."""
        texts = [path.read_text() for path in (self.home / "runs").glob("*/records.jsonl")]
        lines = [line for text in texts for line in text.splitlines(True) if line.endswith("\n")]
        return [record["data"] for line in lines if (record := json.loads(line))["kind"] == kind]

    def _said(self) -> str:
        return "\n".join(f"{running.out()}\n{running.err()}" for running in self._started)


def _limited(limits: dict[int, int]) -> Callable[[], None]:
    def apply() -> None:
        for name, most in limits.items():
            resource.setrlimit(name, (most, most))

    return apply


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def _set_handlers(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _set_environment(wanted: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(wanted)


@contextmanager
def _to(descriptor: int, file: Path) -> Iterator[TextIO]:
    """That descriptor writes to the file, for our own processes too; a stream on it."""
    kept = os.dup(descriptor)
    with file.open("wb") as opened:
        os.dup2(opened.fileno(), descriptor)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) as stream:
            yield stream
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def _ended(arguments: Sequence[str]) -> int:
    """The exit code of `wirespeed ARGUMENTS`, in this process."""
    before, sys.argv = sys.argv, ["wirespeed", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return "gone"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """`cli("check", "-l", "quick")`: a command, run to its end; nothing of it may run afterwards."""
    started = Cli(tmp_path)
    yield started
    started.nothing_runs()


@pytest.fixture(scope="module")
def new_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Cli]]:
    """`new_cli()` is a `cli` for a run that several tests of a module read."""
    made: list[Cli] = []

    def make() -> Cli:
        made.append(Cli(tmp_path_factory.mktemp("cli")))
        return made[-1]

    yield make
    for one in made:
        one.nothing_runs()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Any]:
    """What forks the ranks of all worlds of tests that start no command."""
    with Nursery() as started:
        yield started


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nursery: Any
) -> Callable[..., list[Any]]:
    """world("function", ranks=2, arguments={...}) -> what it returned, by rank.

    The function is one of the test's own file, or of `file`.
    """
    folder = tmp_path_factory.mktemp("world")

    def start(function: str, *, file: Path = request.path, **options: Any) -> list[Any]:
        found: list[Any] = nursery.run(file, function, folder=folder, **options)
        return found

    return start


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: looking for garbage in it takes a third of the time.

    Libraries that are imported now use one thread: workers share the cores, and threads that wait for
    each other's turn made 25 s of 1 s of work. Commands of tests find the variable as it was.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        del os.environ["OMP_NUM_THREADS"]
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def finding(run: dict[str, Any], id: str) -> dict[str, Any]:
    found = [one for one in run["findings"] if one["id"] == id]
    assert found, f"no {id} in {[(one['id'], one['title']) for one in run['findings']]}"
    return found[0]


@pytest.fixture(name="finding")
def _finding() -> Callable[[dict[str, Any], str], dict[str, Any]]:
    """`finding(run, "DIED-001")`: the first finding of that id; fails when there is none."""
    return finding


@pytest.fixture(scope="session")
def says_clearly() -> Callable[[Done, int], str]:
    """`says_clearly(done, 2)`: it ended with that code and told why, without a traceback."""

    def check(done: Done, code: int) -> str:
        assert done.code == code, done.err
        assert "Traceback" not in done.err + done.out
        assert done.err.strip(), "an error without a word"
        return done.err

    return check


@pytest.fixture
def count_attacks(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """`count_attacks("floods", 500)`: so many were made; a hostile test that says nothing made one."""

    def count(kind: str, made: int) -> None:
        request.node.user_properties.append(("attacks", [kind, made]))

    return count


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    mark = item.get_closest_marker("hostile")
    counted = any(name == "attacks" for name, _ in item.user_properties)
    if mark and call.when == "call" and not counted:
        item.user_properties.append(("attacks", [mark.args[0], 1]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many attacks of each kind were made; reports come from the workers of xdist, too."""
    made, tests = Counter[str](), Counter[str]()
    for report in (
        one for name in ("passed", "failed") for one in terminalreporter.stats.get(name, ())
    ):
        told = [value for name, value in report.user_properties if name == "attacks"]
        if report.when == "call":
            tests.update({kind for kind, _ in told})
            for kind, number in told:
                made[kind] += number
    if made:
        terminalreporter.section("attacks made")
        for kind in sorted(made):
            terminalreporter.write_line(f"{made[kind]:>10,}  {kind} (tests: {tests[kind]})")
        terminalreporter.write_line(f"{made.total():>10,}  in all")


@pytest.fixture(autouse=True)
def _nothing_typed() -> Iterator[None]:
    """A command that a test runs in this process is no other test's."""
    yield
    COMMAND_LINE.clear()
