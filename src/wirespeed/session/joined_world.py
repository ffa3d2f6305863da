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
from dataclasses import asdict, dataclass, replace
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
    rank = _JoinedRank(identity, plan, backend, secret)
    if identity.rank > 0:
        rank.follow()
    return _FirstRank(rank, open_recorder()).run()


@dataclass(frozen=True, slots=True)
class _JoinedRank:
    """What a rank was told, by its launcher and on its command line."""

    identity: Identity
    plan: Plan
    backend: str
    secret: bytes | None

    def follow(self) -> NoReturn:
        """Any rank but 0: the session ends it, or the loss of the session does; no signal is needed."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        identity, plan = self.identity, self.plan
        stay_away_if_told(plan, identity.rank)
        store, rendezvous = self._meet()
        try:
            address = session_address(rendezvous)
        except WorldError as error:
            if store is not None:
                known = _with_local_rank(identity, store)
                explain_by_letter(known, store, error, plan.startup_timeout_s)
            raise
        loss = _SessionLoss(identity, plan, rendezvous.here.partition("/")[0])
        heartbeat = Heartbeat(
            address,
            rendezvous.port,
            session_key(self.secret, rendezvous.nonce),
            identity.rank,
            identity.world_size,
            on_abort=loss.on_abort,
        )
        heartbeat.connect(CONNECT_S)
        loss.watch(heartbeat)
        try:
            with told(identity, heartbeat):
                _refuse_other_plan(identity, plan, rendezvous)
                known = _with_local_rank(_if_so_near(identity, plan, rendezvous), store)
            self.carry_out(known, heartbeat, store)
        except Exception:
            # The session has the traceback; it ends this process, or its loss does.
            time.sleep(LAST_WAIT_S)
            leave_at_once(1)
        leave_at_once(0)

    def carry_out(self, known: Identity, heartbeat: Heartbeat, store: SealedStore | None) -> None:
        """known: this rank's identity as the other ranks see it."""

        def needed() -> SealedStore:
            if store is None:
                raise WorldError("these ranks met without a store, and this plan needs one")
            return store

        RankProgram(known, self.plan, heartbeat, needed, self.backend).run()

    def _meet(self) -> tuple[SealedStore | None, Rendezvous]:
        """Where all ranks meet, and what rank 0 tells there; no store where none of them needs torch."""
        seal, bound_s = Seal(self.secret, "rendezvous"), self.plan.startup_timeout_s
        if meets_plainly(self.plan):
            return None, find_rendezvous(self.identity, bound_s, seal)
        store = open_store(self.identity, bound_s)
        rendezvous = read_rendezvous(store, seal)
        return self.sealed(store, rendezvous.nonce), rendezvous

    def sealed(self, store: "dist.Store", nonce: str) -> SealedStore:
        """What ranks leave there for each other in this run."""
        return SealedStore(store, Seal(self.secret, f"store {nonce}"))

    def publish(self, port: int, nonce: str) -> SealedStore | None:
        """Tell the others where the session is; the store in which that stands, if one is needed."""
        text = to_text(self.identity, port, nonce, self.plan)
        seal = Seal(self.secret, "rendezvous")
        if meets_plainly(self.plan):
            tell_rendezvous(self.identity, text, seal)
            return None
        store = open_store(self.identity, self.plan.startup_timeout_s)
        publish(store, text, seal)
        return self.sealed(store, nonce)


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

    def __init__(self, rank: _JoinedRank, recorder: Recorder) -> None:
        self._rank, self._recorder = rank, recorder
        identity, plan = rank.identity, rank.plan
        if trusts_network(identity, rank.secret):
            recorder.on_record(0, "choices", {"choices": [asdict(TRUSTS_NETWORK)]})
        self._nonce = new_token()
        self._key = session_key(rank.secret, self._nonce)
        self._listens = listening_address(identity)
        self._monitor = Monitor(
            identity.world_size,
            self._key,
            on_record=recorder.on_record,
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
        port, identity, plan = self._monitor.start(), self._rank.identity, self._rank.plan
        self._recorder.phase(f"waiting for {identity.world_size} ranks")
        watcher = threading.Thread(target=self._watch, name="session", daemon=True)
        watcher.start()
        if store := self._rank.publish(port, self._nonce):
            self._mailbox = Mailbox(store, identity.world_size)
        heartbeat = Heartbeat(
            reached_at(self._listens),
            port,
            self._key,
            0,
            identity.world_size,
            on_abort=lambda reason: None,
        )
        heartbeat.connect(CONNECT_S)
        with contextlib.suppress(Exception):  # the session has it, and tells it as a finding
            with told(identity, heartbeat):
                known = _with_local_rank(identity, store)
            self._rank.carry_out(known, heartbeat, store)
        watcher.join(plan.op_timeout_s + plan.startup_timeout_s + LAST_WAIT_S)
        return 4

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
            forget_rendezvous_file(self._rank.identity)
            leave_at_once(code)

    def _outcome(self) -> Outcome:
        deadline = None
        mpirun = os.environ.get("WIRESPEED_LAUNCHER", self._rank.identity.launcher) == "openmpi"
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


@dataclass(frozen=True, slots=True)
class _SessionLoss:
    identity: Identity
    plan: Plan
    host: str
    """Of rank 0."""

    def on_abort(self, reason: str) -> None:
        """End this process when the session says so; only its own end is told, by one rank."""
        if reason.startswith(SESSION_LOST):
            self._tell("its process died, or its machine went down", reason)
        else:
            # mpirun takes the first code that is not 0, and cuts the others off: rank 0's report
            # and its code come first.
            time.sleep(REPORT_S)
        os._exit(ABORTED)

    def watch(self, heartbeat: Heartbeat) -> None:
        """Start a thread that ends this rank when it is stuck for longer than the session allows."""
        threading.Thread(
            target=self._watch, args=(heartbeat,), name="session-watch", daemon=True
        ).start()

    def _watch(self, heartbeat: Heartbeat) -> None:
        last, since = heartbeat.position(), time.monotonic()
        while True:
            time.sleep(LOOK_S)
            now = heartbeat.position()
            if now != last:
                last, since = now, time.monotonic()
            bound = self._bound_s(heartbeat, started=bool(now[1]))
            if time.monotonic() - since > bound:
                who, where = f"rank {self.identity.rank}", now[0] or "start-up"
                saw = f"{who} made no progress for {bound:.0f} s in {where}"
                self._tell("its process is stopped, or its machine hangs", saw)
                os._exit(ABORTED)

    def _bound_s(self, heartbeat: Heartbeat, *, started: bool) -> float:
        """Without progress; work that was announced may take its time, as the session lets it."""
        usual = self.plan.op_timeout_s if started else self.plan.startup_timeout_s
        return max(usual, heartbeat.announced_s) + SLACK_S

    def _tell(self, cause: str, saw: str) -> None:
        if self.identity.rank != SPEAKER:
            return
        error = WorldError(
            f"rank 0 on {self.host}, which holds the session, does not answer: {cause}",
            expected=f"the session to end a run that hangs; {saw}",
            next=f"on {self.host}: wirespeed runs show last  (what was measured before is kept)",
        )
        sys.stderr.write(f"wirespeed: {error}\n")
        sys.stderr.flush()
