"""Run a plan on ranks that we start on this machine, and watch them to the end."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path

from wirespeed.launchers.children import Child, Children, private
from wirespeed.model.records import Choice, Finding
from wirespeed.plan import Plan
from wirespeed.process import returncode_text
from wirespeed.session.backends import Backend, StartWorld, Variables
from wirespeed.session.findings import make_finding
from wirespeed.session.folders import new_scratch
from wirespeed.session.recording import Recorder, Session
from wirespeed.session.signals import interrupted_by_signals
from wirespeed.watchdog import LocalProcess, Monitor, Outcome, new_token
from wirespeed.watchdog.findings import exit_hint

POLL_S = 0.05
GRACE_S = 3.0
"""How long ranks have to end by themselves before SIGKILL, as `ranks.forked` gives it to them."""
_REAP_S = 1.0


def interface_choice(environ: Mapping[str, str] | None = None) -> Choice:
    """Local gloo ranks meet on the loopback interface, unless the user said otherwise."""
    asked = (os.environ if environ is None else environ).get("GLOO_SOCKET_IFNAME")
    if asked:
        return Choice("GLOO_SOCKET_IFNAME", asked, "set in the environment")
    return Choice("GLOO_SOCKET_IFNAME", "lo", "all ranks are on this machine")


def local_backend(ranks: int, backend: str, begun: "LocalRanks | None" = None) -> Backend:
    """Processes of this machine.

    begun: for the first world, of its plan and backend, in the environment of this process.
    """
    first = [] if begun is None else [begun]

    def start(recorder: Recorder, plan: Plan, variables: Variables) -> Outcome:
        """Start, watch and stop one world of ranks, whose records go to `recorder`."""
        environ = {k: v for k, v in os.environ.items() if k not in variables}
        environ |= {k: v for k, v in variables.items() if v is not None}
        token, scratch = new_token(), new_scratch()
        local: dict[int, LocalProcess] = {}
        monitor = Monitor(
            ranks,
            token,
            on_record=recorder.on_record,
            op_timeout_s=plan.op_timeout_s,
            startup_timeout_s=plan.startup_timeout_s,
            local=local,
        )
        with interrupted_by_signals(monitor.interrupt):
            started = first.pop() if first else LocalRanks(plan, backend, environ)
            try:
                port = monitor.start()
                recorder.phase(f"starting {ranks} rank" + ("s" if ranks > 1 else ""))
                (scratch / "plan.json").write_text(json.dumps(plan.to_json()))
                told = {
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_WORLD_SIZE": str(ranks),
                    "WIRESPEED_CONSOLE": f"127.0.0.1:{port}",
                    "WIRESPEED_LOGS": str(recorder.logs),
                    "WIRESPEED_PLAN": str(scratch / "plan.json"),
                    "WIRESPEED_STACK": str(scratch / "stack"),
                    "WIRESPEED_STORE": str(scratch / "store"),
                    "WIRESPEED_TOKEN": token,
                }
                started.go_on(ranks, told, local)
                outcome = _watch(monitor, started)
            finally:
                started.stop()
                monitor.close()
                shutil.rmtree(scratch, ignore_errors=True)
        return replace(outcome, findings=(*started.lost(), *outcome.findings))

    @contextmanager
    def opened(_: Session) -> Iterator[StartWorld]:
        yield start

    return opened


def _watch(monitor: Monitor, ranks: "LocalRanks") -> Outcome:
    while True:
        outcome = monitor.wait(POLL_S)
        for rank, code in ranks.ended().items():
            monitor.process_ended(rank, code)
        if outcome is not None:
            return outcome


class LocalRanks:
    """The process that the ranks are forked from (`wirespeed.rank.forked`), and what it reports.

    It imports from its start on, and ends with this process.
    """

    def __init__(self, plan: Plan, backend: str, environ: Mapping[str, str]) -> None:
        """WorldError where it cannot be started."""
        interface = interface_choice(environ)
        variables = {
            **environ,
            interface.name: interface.value,
            "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", "1"),
            "WIRESPEED_BACKEND": backend,
        }
        words = (sys.executable, "-P", "-m", "wirespeed.rank", *_parts(plan))
        self._children = Children()
        self._children.start([Child(0, "the ranks", words, variables)])
        self._process = self._children.process(0)
        for handle in self._handles():
            os.set_blocking(handle, False)
        self._left: set[int] = set()
        self._started: set[int] = set()
        self._local: dict[int, LocalProcess] = {}
        self._stacks = self._log = Path()
        self._rest = b""
        self._lost: int | None = None

    def _handles(self) -> tuple[int, int]:
        """Of its reports, and of what it prints before it has the log of rank 0."""
        out, err = self._process.stdout, self._process.stderr
        return (out.fileno(), err.fileno()) if out and err else (-1, -1)

    def go_on(
        self, size: int, variables: Mapping[str, str], local: dict[int, LocalProcess]
    ) -> None:
        """Have it start the ranks, with these variables more.

        local: filled with each rank's process; until it has one, the process that starts it.
        """
        self._left, self._local = set(range(size)), local
        self._stacks = Path(variables["WIRESPEED_STACK"])
        self._log = Path(variables["WIRESPEED_LOGS"]) / "rank-0.log"
        self._log.touch(0o600)
        local |= dict.fromkeys(range(size), LocalProcess(self._process.pid, self._log))
        if self._process.stdin:
            with suppress(BrokenPipeError):  # it has ended: how, will be seen
                self._process.stdin.write(json.dumps(variables).encode())
                self._process.stdin.close()

    def ended(self) -> dict[int, int]:
        """Return codes of the ranks that ended since the last call (negative: a signal)."""
        over = self._children.ended()  # first: what it has reported by then is read below
        codes = dict(self._heard())
        self._left -= codes.keys()
        if code := over.get(0):
            self._lost = code
            # Those that ran are ended by the kernel together with it.
            codes |= {r: -signal.SIGKILL if r in self._started else code for r in self._left}
        return codes

    def _heard(self) -> Iterator[tuple[int, int]]:
        """Takes in the reports; rank and code of those that tell an end."""
        reports, words = self._handles()
        if said := _read(words):
            with FileIO(self._log, "a", opener=private) as log:
                log.write(said)
        *lines, self._rest = (self._rest + _read(reports)).split(b"\n")
        for rank, pid, *code in (map(int, line.split()) for line in lines):
            self._started.add(rank)
            stacks = self._stacks.with_name(f"{self._stacks.name}-{rank}")
            self._local[rank] = LocalProcess(pid, stacks)
            yield from ((rank, one) for one in code)

    def stop(self) -> None:
        """End all that still run. Bounded."""
        self._children.stop(GRACE_S + _REAP_S)
        self._children.close()

    def lost(self) -> tuple[Finding, ...]:
        """LAUNCH-007 where the process that had started the ranks ended before them."""
        if self._lost is None:
            return ()
        how, because = returncode_text(self._lost), exit_hint(self._lost)
        return (make_finding("starter_lost", how=how, pid=self._process.pid, because=because),)


def _parts(plan: Plan) -> list[str]:
    """What `ranks.program.import_for` shall import for the plan; nothing where no torch is needed."""
    names = ("compute", "pairs", "training", "soak")
    parts = {"steps": True, **{name: getattr(plan, name) for name in names}}
    return [] if plan.facts_only else [name for name, wanted in parts.items() if wanted]


def _read(handle: int) -> bytes:
    """What is there to be read."""
    data = b""
    with suppress(BlockingIOError):
        while more := os.read(handle, 1 << 16):
            data += more
    return data
