"""Run a plan on ranks that we start on this machine, and watch them to the end."""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirespeed.console.session import Session
from wirespeed.launchers.base import RankSpec
from wirespeed.launchers.local import LocalLauncher
from wirespeed.plan import Plan
from wirespeed.records import Choice, Run
from wirespeed.world.watch import LocalProcess, Monitor, Outcome, new_token

__all__ = ["interface_choice", "run_local"]

POLL_S = 0.05
GRACE_S = 3.0
"""How long ranks have to end by themselves before SIGKILL."""


def interface_choice() -> Choice:
    """Local gloo ranks meet on the loopback interface, unless the user said otherwise."""
    asked = os.environ.get("GLOO_SOCKET_IFNAME")
    if asked:
        return Choice("GLOO_SOCKET_IFNAME", asked, "set in the environment")
    return Choice("GLOO_SOCKET_IFNAME", "lo", "all ranks are on this machine")


def run_local(session: Session, plan: Plan, ranks: int, backend: str) -> Run:
    """Start, watch, stop, judge. A signal ends the ranks and gives a run with exit code 130."""
    token = new_token()
    local: dict[int, LocalProcess] = {}
    scratch = Path(tempfile.mkdtemp(prefix="wirespeed-"))
    launcher = LocalLauncher()
    monitor = Monitor(
        ranks,
        token,
        on_record=session.on_record,
        op_timeout_s=plan.op_timeout_s,
        startup_timeout_s=plan.startup_timeout_s,
        local=local,
    )
    with _interrupted_by_signals(monitor):
        try:
            port = monitor.start()
            session.phase(f"starting {ranks} rank" + ("s" if ranks > 1 else ""))
            launcher.start(_specs(session, plan, ranks, backend, port, token, scratch))
            for rank, pid in launcher.pids().items():
                local[rank] = LocalProcess(pid, _stack_file(scratch, rank))
            outcome = _watch(monitor, launcher)
        finally:
            launcher.stop(GRACE_S)
            monitor.close()
            shutil.rmtree(scratch, ignore_errors=True)
        return session.close(outcome)


@contextmanager
def _interrupted_by_signals(monitor: Monitor) -> Iterator[None]:
    """Ctrl-C, a scheduler's SIGTERM or a lost terminal end the run in order, however often.

    What the caller told this process to ignore (nohup, a job in the background) stays ignored.
    """
    words = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
    before = {
        number: signal.signal(number, lambda n, _: monitor.interrupt(words[signal.Signals(n)]))
        for number in words
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(monitor: Monitor, launcher: LocalLauncher) -> Outcome:
    while True:
        outcome = monitor.wait(POLL_S)
        for rank, code in launcher.ended().items():
            monitor.process_ended(rank, code)
        if outcome is not None:
            return outcome


def _stack_file(scratch: Path, rank: int) -> Path:
    return scratch / f"stack-{rank}"


def _specs(
    session: Session,
    plan: Plan,
    ranks: int,
    backend: str,
    port: int,
    token: str,
    scratch: Path,
) -> list[RankSpec]:
    plan_file = scratch / "plan.json"
    plan_file.write_text(json.dumps(plan.to_json()))
    interface = interface_choice()
    shared = {
        **os.environ,
        interface.name: interface.value,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "WIRESPEED_BACKEND": backend,
        "WIRESPEED_CONSOLE": f"127.0.0.1:{port}",
        "WIRESPEED_PLAN": str(plan_file),
        "WIRESPEED_STORE": str(scratch / "store"),
        "WIRESPEED_TOKEN": token,
    }
    return [
        RankSpec(
            rank=rank,
            command=(sys.executable, "-m", "wirespeed.ranks"),
            environment={
                **shared,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WIRESPEED_STACK": str(_stack_file(scratch, rank)),
            },
            log=session.folder.log_path(rank),
        )
        for rank in range(ranks)
    ]
