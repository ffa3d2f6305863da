"""What a rank does from its first line to its last."""

import ctypes
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from wirespeed import __version__
from wirespeed.errors import WirespeedError, WorldError
from wirespeed.model.codec import to_json
from wirespeed.model.records import NodeFacts
from wirespeed.node.facts import gather_node, survey_node
from wirespeed.node.identity import Identity, detect, own_seat
from wirespeed.node.secret import Seal, SealedStore
from wirespeed.plan import Plan
from wirespeed.rank.faulty_engine import CLOCK_SHIFT_S, Fault
from wirespeed.watchdog.heartbeat import Heartbeat

if TYPE_CHECKING:
    from wirespeed.rank.node_watch import Counting
    from wirespeed.rank.place import Place


@dataclass(frozen=True, slots=True)
class RankProgram:
    """One rank of a world, connected to its session."""

    identity: Identity
    plan: Plan
    heartbeat: Heartbeat
    open_store: Callable[[], SealedStore]
    backend: str

    def run(self) -> None:
        """Join, tell the facts, carry out the plan, leave. An exception is reported, then raised."""
        with told(self.identity, self.heartbeat):
            if self.plan.facts_only:
                self._tell_facts_only()
            else:
                self._run_joined()
        self.heartbeat.finish(0)
        if _has(self.plan, "abort", self.identity.rank):
            os.abort()

    def _run_joined(self) -> None:
        """Open the process group, carry out the plan with it, close it."""
        heartbeat, bound_s = self.heartbeat, self.plan.startup_timeout_s
        heartbeat.phase("importing", bound_s=bound_s)
        import torch.distributed  # noqa: F401  (the slow import, named to the watchdog)

        heartbeat.phase("joining", bound_s=bound_s)
        place = self.join_watched(self.open_store())
        heartbeat.phase("running")
        from wirespeed.rank.node_watch import counting, present

        with (
            present(place, self.plan, heartbeat),
            counting(place, self.plan, heartbeat) as counted,
        ):
            self._carry_out(place, counted)
        from wirespeed.rank.joining import leave

        heartbeat.enter("leaving the process group")
        leave(place)

    def _carry_out(self, place: "Place", counted: "Counting | None") -> None:
        from wirespeed.rank.steps import process_faults, run_steps, teller
        from wirespeed.rank.time_limit import TimeLimit

        plan, heartbeat = self.plan, self.heartbeat
        limit = TimeLimit(place, plan.max_time_s)
        # Half of the time is for what is made of the steps' operations.
        run_steps(
            place, plan, heartbeat, limit, len(plan.steps) if plan.replay or plan.shape else 0
        )
        if plan.replay is not None:
            from wirespeed.rank.replay import run_replay

            run_replay(place, plan, plan.replay, heartbeat, limit)
        if plan.shape is not None:
            from wirespeed.rank.shape import run_shape

            run_shape(place, plan, plan.shape, heartbeat, limit)
        if plan.compute is not None:
            from wirespeed.rank.compute.carry_out import run_compute

            run_compute(place, plan, plan.compute, heartbeat, limit)
        if plan.storage is not None:
            from wirespeed.rank.storage.study import run_storage

            run_storage(place, plan, plan.storage, heartbeat)
        if plan.pairs is not None:
            from wirespeed.rank.locating import run_pairs

            faults = process_faults(plan, place.rank)
            run_pairs(place, plan.pairs, plan.seed, heartbeat, faults)
        if plan.training is not None and plan.training.lasting is not None:
            from wirespeed.rank.training.lasting import run_lasting_training

            run_lasting_training(place, plan, plan.training, heartbeat)
        elif plan.training is not None:
            from wirespeed.rank.training.training_plan import run_training

            run_training(place, plan, plan.training, heartbeat, limit)
        if plan.soak is not None:
            from wirespeed.rank.soaking import run_soak

            run_soak(place, plan, plan.soak, heartbeat, counted)
        if left_out := limit.record():
            teller(place, heartbeat)("not_measured", left_out)

    def join_watched(self, store: SealedStore) -> "Place":
        """Join; a node's first rank tells its facts before and, of several nodes, opens its door."""
        identity, plan = self.identity, self.plan
        node = None if identity.local_rank else self._tell_facts(identity.rank)
        if node is None or identity.local_world_size == identity.world_size:
            place = self._join(store, node)
            place.control.barrier()
            return place
        from wirespeed.rank.echo_server import EchoServer

        # The fault `clock`: this rank's node claims its clock to be off by so much.
        shift_s = CLOCK_SHIFT_S if _has(plan, "clock", identity.rank) else 0.0
        with EchoServer(identity, node, store, self.heartbeat, shift_s) as echo:
            place = self._join(store, node)
            echo.joined()
            if plan.pairs is None:  # `locate` looks at every path itself
                echo.neighbours()
            place.control.barrier()
        return place

    def _join(self, store: SealedStore, node: NodeFacts | None) -> "Place":
        from wirespeed.rank.joining import choose_backend, join
        from wirespeed.rank.place import is_first_of_node

        identity, heartbeat = self.identity, self.heartbeat
        choice = choose_backend(self.backend, identity, store)
        try:
            place = join(
                identity,
                self.plan,
                store.store,
                choice.value,
                heartbeat.tick,
                lambda bound_s: heartbeat.phase("running", bound_s=bound_s),
                rack=(node.facts.placement_rack or "") if node else "",
            )
        except Exception:
            if (
                node is None
            ):  # all are ended at the first exception: the node's first rank may be late
                self._tell_facts(identity.rank - (identity.local_rank or 0))
            raise
        if identity.rank == 0:
            heartbeat.record("choices", {"choices": [asdict(choice)]})
            heartbeat.record("versions", _versions())
            seats = {"hosts": list(place.hosts), "gpus": list(place.gpus)}
            heartbeat.record("joined", {"backend": choice.value, **seats})
        if identity.local_rank and is_first_of_node(place):
            self._tell_facts(identity.rank)  # its launcher counts local ranks over several hosts
        return place

    def _tell_facts(self, first: int) -> NodeFacts:
        """Before joining, so that they can explain why it fails; host and ranks as far as known now."""
        node = gather_node(range(first, first + (self.identity.local_world_size or 1)))
        self.heartbeat.record("node", to_json(node))
        return node

    def _tell_facts_only(self) -> None:
        """Tell where this rank is and, as the first of its node, what is there; no torch, no steps.

        Where the launcher tells no local rank every rank tells, and the session keeps the first of each
        node. Raises WorldError when the session is gone.
        """
        rank, heartbeat = self.identity.rank, self.heartbeat
        heartbeat.phase("running", bound_s=self.plan.startup_timeout_s)
        host, space = own_seat()
        heartbeat.record("seat", {"rank": rank, "host": host, "space": space})
        if self.identity.local_rank:
            return
        node = survey_node((rank,))
        heartbeat.record("node", to_json(node))
        if rank == 0:
            known = {name: getattr(node.facts, name) for name in ("torch", "cuda", "nccl")}
            found = {name: version for name, version in known.items() if version}
            heartbeat.record("versions", {**_own_versions(), **found})


@contextmanager
def told(identity: Identity, heartbeat: Heartbeat) -> Iterator[None]:
    """Report an exception to the session, before it goes on."""
    try:
        yield
    except WirespeedError as error:
        heartbeat.record("refusal", {"rank": identity.rank, **error.to_json()})
        heartbeat.failed(error)
        raise
    except BaseException as error:
        heartbeat.failed(error)
        raise


def import_for(parts: Collection[str]) -> None:
    """Import what ranks need for those parts of a plan, so that none has to after a fork.

    parts: of `steps`, `compute`, `pairs`, `training` and `soak`.
    """
    import torch.distributed  # noqa: F401

    import wirespeed.collectives.engines.torch_engine
    import wirespeed.rank.joining
    import wirespeed.rank.node_watch
    import wirespeed.rank.steps

    if "compute" in parts:
        import wirespeed.rank.compute.carry_out
    if "pairs" in parts:
        import wirespeed.rank.locating
    if "training" in parts:
        import wirespeed.rank.training.lasting
        import wirespeed.rank.training.training_plan
    if "soak" in parts:
        import wirespeed.rank.soaking  # noqa: F401


def leave_at_once(code: int) -> NoReturn:
    """End without the interpreter's teardown, after what was said is flushed.

    Backend threads that are torn down late end about one run in twenty by SIGABRT (seen with torch
    2.13 on gloo), which a launcher takes for a failed job; and a FileStore that is torn down writes
    its file anew.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stay_away_if_told(plan: Plan, rank: int) -> None:
    """Act out the fault `absent`: never come, for as long as anybody waits."""
    if _has(plan, "absent", rank):
        time.sleep(2 * plan.startup_timeout_s)
        sys.exit(1)


def _has(plan: Plan, kind: str, rank: int) -> bool:
    faults = [Fault.parse(text) for text in plan.faults]
    return any(fault.kind == kind and fault.rank == rank for fault in faults)


def _versions() -> dict[str, str]:
    import torch

    versions = {**_own_versions(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
        if torch.distributed.is_nccl_available() and torch.cuda.is_available():
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for name in ("deepspeed", "mpi4py"):
        if name in sys.modules:
            versions[name] = str(sys.modules[name].__version__)
    return versions


def _own_versions() -> dict[str, str]:
    return {"wirespeed": __version__, "python": platform.python_version()}


# A local rank, once its environment says which one it is.

CONNECT_S = 20.0
_OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SET_NAME = 15
"""PR_SET_NAME."""


def run_local_rank() -> None:
    """Connect to the session, carry out the plan. What ends it early is reported, then raised."""
    environ = os.environ
    identity = detect({name: environ[name] for name in _OURS})
    if identity is None:
        raise WorldError("a local rank without a rank", expected=", ".join(_OURS))
    _name_process(f"rank {identity.rank}")
    plan = Plan.from_json(json.loads(Path(environ["WIRESPEED_PLAN"]).read_text()))
    host, _, port = environ["WIRESPEED_CONSOLE"].rpartition(":")
    heartbeat = Heartbeat(
        host,
        int(port),
        environ.pop("WIRESPEED_TOKEN"),  # no child of a rank needs it
        identity.rank,
        identity.world_size,
        stack_file=Path(environ["WIRESPEED_STACK"]),
    )
    stay_away_if_told(plan, identity.rank)
    heartbeat.connect(CONNECT_S)
    store = partial(_open_store, environ["WIRESPEED_STORE"], identity.world_size)
    RankProgram(identity, plan, heartbeat, store, environ["WIRESPEED_BACKEND"]).run()


def _name_process(name: str) -> None:
    """What ps and top call it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode())


def _open_store(path: str, world_size: int) -> SealedStore:
    """A store in a file of this user's own: one machine needs no port, so none can be taken."""
    import torch.distributed as dist

    return SealedStore(dist.FileStore(path, world_size), Seal(None, ""))
