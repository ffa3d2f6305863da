"""Run a plan on ranks that we start on this machine, and watch them to the end."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from wirespeed.console.book import Book
from wirespeed.console.scratch import new_scratch
from wirespeed.console.session import Session
from wirespeed.console.signals import interrupted_by_signals
from wirespeed.launchers.children import Child, Children
from wirespeed.plan import Plan
from wirespeed.records import Choice, Run
from wirespeed.world.watch import LocalProcess, Monitor, Outcome, new_token

__all__ = ["interface_choice", "ran_local", "run_local"]

POLL_S = 0.05
GRACE_S = 3.0
"""How long ranks have to end by themselves before SIGKILL."""


def interface_choice(environ: Mapping[str, str] | None = None) -> Choice:
    """Local gloo ranks meet on the loopback interface, unless the user said otherwise."""
    asked = (os.environ if environ is None else environ).get("GLOO_SOCKET_IFNAME")
    if asked:
        return Choice("GLOO_SOCKET_IFNAME", asked, "set in the environment")
    return Choice("GLOO_SOCKET_IFNAME", "lo", "all ranks are on this machine")


def run_local(session: Session, plan: Plan, ranks: int, backend: str) -> Run:
    """Start, watch, stop, judge. A signal ends the ranks and gives a run with exit code 130."""
    with interrupted_by_signals(lambda _: None):  # what has been measured is written in any case
        return session.close(ran_local(session, plan, ranks, backend, os.environ))


def ran_local(
    book: Book, plan: Plan, ranks: int, backend: str, environ: Mapping[str, str]
) -> Outcome:
    """Start, watch and stop one world of ranks, whose records go to `book`."""
    token = new_token()
    local: dict[int, LocalProcess] = {}
    scratch = new_scratch()
    children = Children()
    monitor = Monitor(
        ranks,
        token,
        on_record=book.on_record,
        op_timeout_s=plan.op_timeout_s,
        startup_timeout_s=plan.startup_timeout_s,
        local=local,
    )
    with interrupted_by_signals(monitor.interrupt):
        try:
            port = monitor.start()
            book.phase(f"starting {ranks} rank" + ("s" if ranks > 1 else ""))
            children.start(_children(book, plan, ranks, backend, environ, port, token, scratch))
            for rank, pid in children.pids().items():
                local[rank] = LocalProcess(pid, _stack_file(scratch, rank))
            outcome = _watch(monitor, children)
        finally:
            children.stop(GRACE_S)
            monitor.close()
            shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def _watch(monitor: Monitor, children: Children) -> Outcome:
    while True:
        outcome = monitor.wait(POLL_S)
        for rank, code in children.ended().items():
            monitor.process_ended(rank, code)
        if outcome is not None:
            return outcome


def _stack_file(scratch: Path, rank: int) -> Path:
    return scratch / f"stack-{rank}"


def _children(
    book: Book,
    plan: Plan,
    ranks: int,
    backend: str,
    environ: Mapping[str, str],
    port: int,
    token: str,
    scratch: Path,
) -> list[Child]:
    plan_file = scratch / "plan.json"
    plan_file.write_text(json.dumps(plan.to_json()))
    interface = interface_choice(environ)
    shared = {
        **environ,
        interface.name: interface.value,
        "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", "1"),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "WIRESPEED_BACKEND": backend,
        "WIRESPEED_CONSOLE": f"127.0.0.1:{port}",
        "WIRESPEED_PLAN": str(plan_file),
        "WIRESPEED_STORE": str(scratch / "store"),
        "WIRESPEED_TOKEN": token,
    }
    return [
        Child(
            number=rank,
            name=f"rank {rank}",
            command=(sys.executable, "-P", "-m", "wirespeed.ranks"),
            environment={
                **shared,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WIRESPEED_STACK": str(_stack_file(scratch, rank)),
                "WIRESPEED_LOG": str(book.logs / f"rank-{rank}.log"),
            },
            log=book.logs / f"rank-{rank}.log",
        )
        for rank in range(ranks)
    ]
