"""Act as one rank of a world that somebody else's launcher made; global rank 0 is the session too.

Rank 0's session runs in a thread, since its main thread is a rank and may hang in a collective with
the rest. When the watchdog ends the run, that thread judges, prints and ends the process.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from wirespeed.errors import WirespeedError, WorldError
from wirespeed.model.records import Choice
from wirespeed.node.identity import Identity, local_from_hosts
from wirespeed.node.secret import VARIABLE as SECRET
from wirespeed.node.secret import Seal, SealedStore
from wirespeed.plan import Plan
from wirespeed.rank.program import RankProgram, leave_at_once, stay_away_if_told, told
from wirespeed.session.mailbox import FAILED, Mailbox, explain_by_letter
from wirespeed.session.plain_rendezvous import find_rendezvous, meets_plainly, tell_rendezvous
from wirespeed.session.rendezvous import (
    Rendezvous,
    forget_rendezvous_file,
    listening_address,
    namespace,
    on_one_machine,
    open_store,
    publish,
    reached_at,
    read_rendezvous,
    session_address,
    session_key,
    to_text,
)
from wirespeed.watchdog import Monitor, Outcome, new_token
from wirespeed.watchdog.heartbeat import ABORTED, SESSION_LOST, Heartbeat

if TYPE_CHECKING:
    import torch.distributed as dist

TRUSTS_NETWORK = Choice(
    "trust",
    "the network",
    "no secret was given: whoever reaches the master port can pass for a rank; give every rank one by "
    "WIRESPEED_SECRET or --secret-file (docs/security.md)",
)
CONNECT_S = 20.0
LETTERS_S = 0.5
"""How often letters are looked for, until every rank is here."""
_NAMED = 6
"""Parts of a plan that are named."""
LAST_WAIT_S = 30.0
"""How long the end of the run is waited for after this rank's own end."""
LAUNCHER_PATIENCE_S = 1.5
"""After a launcher's SIGTERM: time for the watchdog to name who died first."""
MPIRUN_PATIENCE_S = 0.06
"""Open MPI 5 sends SIGKILL 0.24 s after SIGTERM: the report must be out by then."""


class Recorder(Protocol):
    """Takes what the ranks say and how it ended: a session that judges, or one that hands it on."""

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None: ...

    def phase(self, text: str) -> None: ...

    def finish(self, outcome: Outcome) -> int:
        """Close the recorder, tell who reads it; the exit code of this process."""
        ...


def trusts_network(identity: Identity, secret: bytes | None) -> bool:
    """Whether others can pass for a rank of this job; where ranks meet by a file, only this user can."""
    by_network = identity.master_port is not None or not on_one_machine(identity)
    return secret is None and identity.world_size > 1 and by_network


def carry_rank_in_environment(identity: Identity, secret: bytes | None) -> None:
    """Start this process anew (same pid) with RANK, WORLD_SIZE, LOCAL_RANK, as torchrun sets them.

    So a rank can be told from its environment under every launcher. Returns if they are there. The
    secret, which was taken out of the environment, goes along for this process's new self to take.
    """
    wanted = {"RANK": identity.rank, "WORLD_SIZE": identity.world_size}
    if identity.local_rank is not None:
        wanted["LOCAL_RANK"] = identity.local_rank
    if all(name in os.environ for name in wanted):
        return
    environ = {**os.environ, **{name: str(value) for name, value in wanted.items()}}
    environ["WIRESPEED_LAUNCHER"] = identity.launcher
    if secret is not None:
        environ[SECRET] = secret.decode()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def run_joined(
    identity: Identity,
    plan: Plan,
    backend: str,
    open_recorder: Callable[[], Recorder],
    secret: bytes | None,
) -> int:
    """Run this rank to its end; the exit code. Only rank 0 opens a recorder."""
    # Else every rank prints pages of C++ stacks when rank 0's store goes away at the end.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if identity.rank > 0:
        _follow(identity, plan, backend, secret)
    return _FirstRank(identity, plan, backend, open_recorder, secret).run()


def _follow(identity: Identity, plan: Plan, backend: str, secret: bytes | None) -> NoReturn:
    """Any other rank: the session ends it, or the loss of the session does; no signal is needed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay_away_if_told(plan, identity.rank)
    store, rendezvous = _meet(identity, plan, secret)
    host = rendezvous.here.partition("/")[0]
    try:
        address = session_address(rendezvous)
    except WorldError as error:
        if store is not None:
            known = _with_local_rank(identity, store)
            explain_by_letter(known, store, error, plan.startup_timeout_s)
        raise
    heartbeat = Heartbeat(
        address,
        rendezvous.port,
        session_key(secret, rendezvous.nonce),
        identity.rank,
        identity.world_size,
        on_abort=abort_quietly(identity, host),
    )
    heartbeat.connect(CONNECT_S)
    watch_session(identity, plan, heartbeat, host)
    try:
        with told(identity, heartbeat):
            _refuse_other_plan(identity, plan, rendezvous)
            identity = _with_local_rank(_if_so_near(identity, plan, rendezvous), store)
        RankProgram(identity, plan, heartbeat, lambda: _needed(store), backend).run()
    except Exception:
        # The session has the traceback; it ends this process, or its loss does.
        time.sleep(LAST_WAIT_S)
        leave_at_once(1)
    leave_at_once(0)


def _meet(
    identity: Identity, plan: Plan, secret: bytes | None
) -> tuple[SealedStore | None, Rendezvous]:
    """Where all ranks meet, and what rank 0 tells there; no store where none of them needs torch."""
    seal = Seal(secret, "rendezvous")
    if meets_plainly(plan):
        return None, find_rendezvous(identity, plan.startup_timeout_s, seal)
    store = open_store(identity, plan.startup_timeout_s)
    rendezvous = read_rendezvous(store, seal)
    return _sealed(store, secret, rendezvous.nonce), rendezvous


def _sealed(store: "dist.Store", secret: bytes | None, nonce: str) -> SealedStore:
    """What ranks leave there for each other in this run."""
    return SealedStore(store, Seal(secret, f"store {nonce}"))


def _refuse_other_plan(identity: Identity, plan: Plan, rendezvous: Rendezvous) -> None:
    """What this rank does comes from its own command line; WorldError where rank 0's says another."""
    own = plan.digests()
    names = [
        name for name in {**own, **rendezvous.plan} if own.get(name) != rendezvous.plan.get(name)
    ]
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise WorldError(
            f"rank {identity.rank} on {socket.gethostname()} was asked for something else than "
            f"rank 0: {', '.join(names[:_NAMED])}{more}",
            expected="one command with the same options, settings (WIRESPEED_…, wirespeed.yaml) and "
            "version on every node, and GPUs on all of them or on none",
            next=f"on both nodes: wirespeed {plan.command} … --print-config",
        )


def _needed(store: SealedStore | None) -> SealedStore:
    if store is None:
        raise WorldError("these ranks met without a store, and this plan needs one")
    return store


def _if_so_near(identity: Identity, plan: Plan, rendezvous: Rendezvous) -> Identity:
    """Without local ranks where the launcher believes that all are on rank 0's node and errs.

    A launcher counts namespaces of one machine as one node; each tells its facts for itself then.
    """
    if meets_plainly(plan) and on_one_machine(identity) and rendezvous.here != namespace():
        return replace(identity, local_rank=None, local_world_size=None)
    return identity


def _with_local_rank(identity: Identity, store: SealedStore | None) -> Identity:
    """Where the launcher tells no local rank, count the ranks of the same host before this one.

    WorldError where somebody else has told a rank's host.
    """
    if store is None or (identity.local_rank is not None and identity.local_world_size is not None):
        return identity
    store.set(f"wirespeed/host/{identity.rank}", socket.gethostname())
    keys = [f"wirespeed/host/{rank}" for rank in range(identity.world_size)]
    try:
        hosts = [store.get(key).decode() for key in keys]
    except ValueError as error:
        raise WorldError(
            f"the store holds a rank's host that no rank has told: {error}",
            expected="nobody else who writes to the store",
        ) from error
    local_rank, local_size = local_from_hosts(hosts, identity.rank)
    return replace(identity, local_rank=local_rank, local_world_size=local_size)


class _FirstRank:
    """Rank 0: the session in a thread, the rank in the main thread."""

    def __init__(
        self,
        identity: Identity,
        plan: Plan,
        backend: str,
        open_recorder: Callable[[], Recorder],
        secret: bytes | None,
    ) -> None:
        self._identity, self._plan, self._backend = identity, plan, backend
        self._recorder = open_recorder()
        if trusts_network(identity, secret):
            self._recorder.on_record(0, "choices", {"choices": [asdict(TRUSTS_NETWORK)]})
        self._secret, self._nonce = secret, new_token()
        self._key = session_key(secret, self._nonce)
        self._listens = listening_address(identity)
        self._monitor = Monitor(
            identity.world_size,
            self._key,
            on_record=self._recorder.on_record,
            op_timeout_s=plan.op_timeout_s,
            startup_timeout_s=plan.startup_timeout_s,
            host=self._listens,
        )
        self._mailbox: Mailbox | None = None
        self._letters_at = 0.0
        self._signals, wake = os.pipe()
        os.set_blocking(wake, False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> int:
        port = self._monitor.start()
        self._recorder.phase(f"waiting for {self._identity.world_size} ranks")
        watcher = threading.Thread(target=self._watch, name="session", daemon=True)
        watcher.start()
        store = self._publish(port)
        heartbeat = Heartbeat(
            reached_at(self._listens),
            port,
            self._key,
            0,
            self._identity.world_size,
            on_abort=lambda reason: None,
        )
        heartbeat.connect(CONNECT_S)
        with contextlib.suppress(Exception):  # the session has it, and tells it as a finding
            with told(self._identity, heartbeat):
                identity = _with_local_rank(self._identity, store)
            RankProgram(
                identity, self._plan, heartbeat, lambda: _needed(store), self._backend
            ).run()
        watcher.join(self._plan.op_timeout_s + self._plan.startup_timeout_s + LAST_WAIT_S)
        return 4

    def _publish(self, port: int) -> SealedStore | None:
        """Tell the others where the session is; the store in which that stands, if one is needed."""
        identity, plan = self._identity, self._plan
        text, seal = to_text(identity, port, self._nonce, plan), Seal(self._secret, "rendezvous")
        if meets_plainly(plan):
            tell_rendezvous(identity, text, seal)
            return None
        bare = open_store(identity, plan.startup_timeout_s)
        publish(bare, text, seal)
        store = _sealed(bare, self._secret, self._nonce)
        self._mailbox = Mailbox(store, identity.world_size)
        return store

    def _watch(self) -> None:
        """Wait for the outcome; close the recorder, show it, end this process."""
        code = 4
        try:
            code = self._recorder.finish(self._outcome())
        except WirespeedError as error:
            sys.stderr.write(f"wirespeed: {error}\n")
            code = error.exit_code
        finally:
            self._monitor.close()
            forget_rendezvous_file(self._identity)
            leave_at_once(code)

    def _outcome(self) -> Outcome:
        deadline = None
        mpirun = os.environ.get("WIRESPEED_LAUNCHER", self._identity.launcher) == "openmpi"
        patience = MPIRUN_PATIENCE_S if mpirun else LAUNCHER_PATIENCE_S
        while (outcome := self._monitor.wait(0.02)) is None:
            self._read_letters()
            if deadline is None and select.select([self._signals], [], [], 0)[0]:
                self._monitor.hurry()
                deadline = time.monotonic() + patience
            if deadline is not None and time.monotonic() > deadline:
                self._monitor.interrupt("a signal from the launcher or the terminal")
                deadline = time.monotonic() + LAST_WAIT_S
        return outcome

    def _read_letters(self) -> None:
        """From ranks that reach the store and not rank 0, while any is missing."""
        if self._mailbox is None or time.monotonic() < self._letters_at:
            return
        self._letters_at = time.monotonic() + LETTERS_S
        for letter in self._mailbox.letters():
            if letter.kind == FAILED:
                self._monitor.rank_failed(letter.rank, letter.host, letter.data["error"])
            else:
                self._recorder.on_record(letter.rank, letter.kind, letter.data)


# What a rank other than 0 does when rank 0, which holds the session, dies or falls silent.
# The session names every culprit but itself; so the ranks watch it. The lowest of them speaks, since
# nobody else can, and all of them end within the bound.

SPEAKER = 1
"""The rank that tells of the session's end."""
SLACK_S = 15.0
"""The session decides a hang up to 6 s after the bound; then it must be silent itself."""
LOOK_S = 0.5
REPORT_S = 2.0
"""Time for rank 0 to print its report and end."""


def abort_quietly(identity: Identity, host: str) -> Callable[[str], None]:
    """End this process when the session says so; only its own end is told, by one rank."""

    def on_abort(reason: str) -> None:
        if reason.startswith(SESSION_LOST):
            _tell(identity, host, "its process died, or its machine went down", reason)
        else:
            # mpirun takes the first code that is not 0, and cuts the others off: rank 0's report
            # and its code come first.
            time.sleep(REPORT_S)
        os._exit(ABORTED)

    return on_abort


def watch_session(identity: Identity, plan: Plan, heartbeat: Heartbeat, host: str) -> None:
    """Start a thread that ends this rank when it is stuck for longer than the session allows."""
    thread = threading.Thread(
        target=_watch, args=(identity, plan, heartbeat, host), name="session-watch", daemon=True
    )
    thread.start()


def _watch(identity: Identity, plan: Plan, heartbeat: Heartbeat, host: str) -> None:
    last, since = heartbeat.position(), time.monotonic()
    while True:
        time.sleep(LOOK_S)
        now = heartbeat.position()
        if now != last:
            last, since = now, time.monotonic()
        bound = (plan.op_timeout_s if now[1] else plan.startup_timeout_s) + SLACK_S
        if time.monotonic() - since > bound:
            saw = (
                f"rank {identity.rank} made no progress for {bound:.0f} s in {now[0] or 'start-up'}"
            )
            _tell(identity, host, "its process is stopped, or its machine hangs", saw)
            os._exit(ABORTED)


def _tell(identity: Identity, host: str, cause: str, saw: str) -> None:
    if identity.rank != SPEAKER:
        return
    error = WorldError(
        f"rank 0 on {host}, which holds the session, does not answer: {cause}",
        expected=f"the session to end a run that hangs; {saw}",
        next=f"on {host}: wirespeed runs show last  (what was measured before is kept)",
    )
    sys.stderr.write(f"wirespeed: {error}\n")
    sys.stderr.flush()
