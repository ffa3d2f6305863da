"""`python -m wirespeed.launchers.ray.session FOLDER`: Ray's driver of one job.

Child of `driver`, which gives it its stdin. Ranks' frames go to stdout, whole lines only; what
the driver itself has to say goes to stderr, each message on one line.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from wirespeed import __version__
from wirespeed.errors import CannotMeasure, WirespeedError
from wirespeed.launchers.rank_wrapper import rank_variables
from wirespeed.launchers.ray import actor as rank_actor
from wirespeed.launchers.ray import cluster
from wirespeed.launchers.ray.keeper import kept
from wirespeed.process.frames import EXIT, parse, write_all

_READ_S = 0.5
_POLL_S = 0.2
_MOST_GRACE_S = 5.0
"""What fits, with Ray's own end, into the time that the session gives an engine to end in order."""
_FAREWELL_S = 0.7
_LOST = 3


@dataclass(slots=True)
class _Rank:
    """One rank: its actor, and where that is."""

    actor: Any
    place: Mapping[str, Any]
    """What `RankActor.look` told."""
    number: int = 0
    local: int = 0
    last: str = ""
    """The last line that came."""

    @property
    def title(self) -> str:
        return f"rank {self.number} on node {self.place['host']}"


def main(arguments: Sequence[str]) -> int:
    """Run the job; 0 where every rank ended with 0, else a rank's code, or 3."""
    guard = os.getppid()
    folder = Path(arguments[0])
    stop = cluster.RayStop()
    try:
        orders = cluster.Orders.from_json(_first_line_of(0))
        stop.watch()
        os.chdir("/")  # Ray puts the working directory before all modules of its workers
        with cluster.connected(orders, folder, stop) as ray:
            return _Session(orders, ray, stop).run()
    except WirespeedError as error:
        for line in str(error).splitlines():
            _say(line)
        return error.exit_code
    except cluster.StopRequested:
        return _LOST
    finally:
        if os.getppid() != guard:
            shutil.rmtree(folder, ignore_errors=True)


def _first_line_of(handle: int) -> str:
    data = b""
    while not data.endswith(b"\n") and (more := os.read(handle, 1 << 16)):
        data += more
    return data.decode()


def _say(text: str) -> None:
    sys.stderr.write(f"wirespeed: {text}\n")
    sys.stderr.flush()


class _Session:
    def __init__(self, orders: cluster.Orders, ray: Any, stop: cluster.RayStop) -> None:
        self._orders = orders
        self._ray = ray
        self._stop = stop
        self._ranks: list[_Rank] = []
        self._codes: list[int] = []
        self._over_at = float("inf")
        """When ranks that have not ended are left to Ray."""

    def run(self) -> int:
        with self._placed() as actors:
            found = zip(actors, self._look(actors), strict=True)
            self._ranks = _in_order([_Rank(actor, place) for actor, place in found])
            self._check()
            self._start()
            self._pump()
        return next((code for code in self._codes if code), 0)

    @contextmanager
    def _placed(self) -> Iterator[list[Any]]:
        """Actors in a placement group; both are gone after the block."""
        # Ray pickles whatever it carries: who reaches its ports runs programs, with us or without.
        import_module("ray.cloudpickle").register_pickle_by_value(rank_actor)
        bundles = enumerate(self._orders.bundles)
        places = [number for number, bundle in bundles for _ in range(bundle.ranks)]
        actors: list[Any] = []
        with cluster.room_for(self._orders, self._ray, self._stop, _say) as new_actor:
            try:
                for number in places:
                    actors.append(new_actor(rank_actor.RankActor, number))
                yield actors
            finally:
                with suppress(self._ray.exceptions.RayError):
                    for actor in actors:
                        self._ray.kill(actor)

    # Before the start.

    def _look(self, actors: Sequence[Any]) -> list[dict[str, Any]]:
        asked = [a.look.remote(self._orders.python, self._orders.interface) for a in actors]
        until = time.monotonic() + self._orders.place_s
        while len(self._ray.wait(asked, num_returns=len(asked), timeout=_POLL_S)[0]) < len(asked):
            if self._stop.reason:
                raise cluster.StopRequested
            if time.monotonic() > until:
                raise CannotMeasure(f"ray: not every actor started within {self._orders.place_s} s")
        try:
            return list(self._ray.get(asked))
        except self._ray.exceptions.RayError as error:
            raise CannotMeasure(
                f"ray: an actor did not start: {cluster.first_line(error)}"
            ) from error

    def _check(self) -> None:
        """CannotMeasure for a node that cannot run ranks; a word on what only disturbs."""
        told = set()
        for rank in self._ranks:
            place, node = rank.place, rank.place["host"]
            if place["problem"]:
                raise _no_wirespeed(node, place)
            if place["version"] != __version__ and node not in told:
                _say(f"ray: node {node} has wirespeed {place['version']}, here is {__version__}")
            if place["nice"] > 0 and node not in told:
                _say(
                    f"ray: ranks of node {node} run at nice {place['nice']}, Ray's default: others "
                    "go before them (RAY_worker_niceness=0 where its raylet is started)"
                )
            told.add(node)

    def _start(self) -> None:
        first = self._ranks[0].place
        addresses = {one["NodeID"]: one["NodeManagerAddress"] for one in self._ray.nodes()}
        master = {
            "MASTER_ADDR": first["address"] or addresses[first["node"]],
            "MASTER_PORT": str(first["port"]),
        }
        common = {**self._orders.environment, **master}
        without = tuple(cluster.OWN) if self._orders.address == cluster.LOCAL else ()
        started = []
        for rank in self._ranks:
            words = kept(rank.place["python"], self._orders.command)
            environment = {**common, **_places_of(rank, self._ranks)}
            started.append(rank.actor.start.remote(words, environment, without))
        try:
            self._ray.get(started, timeout=self._orders.place_s)
        except self._ray.exceptions.RayError as error:
            raise CannotMeasure(
                f"ray: a rank did not start: {cluster.first_line(error)}"
            ) from error

    # While ranks run.

    def _pump(self) -> None:
        """Hand on what the ranks say, until all have ended or the time to end is over."""
        reads = {rank.actor.read.remote(_READ_S): rank for rank in self._ranks}
        while reads and time.monotonic() < self._over_at:
            if self._stop.reason:
                self._end_all()
            for done in self._ray.wait(list(reads), timeout=_POLL_S)[0]:
                rank = reads.pop(done)
                if self._take(rank, done):
                    reads[rank.actor.read.remote(_READ_S)] = rank

    def _take(self, rank: _Rank, done: Any) -> bool:
        """Write a batch; whether there will be more of this rank."""
        try:
            data, code = self._ray.get(done)
        except self._ray.exceptions.RayError as error:
            self._lost(rank, f"its actor is gone: {cluster.first_line(error)}")
            return False
        if data:
            rank.last = data[data.rfind(b"\n", 0, -1) + 1 :].decode("utf-8", "replace")
            if not write_all(1, data):
                self._end_all()
        if code is None:
            return True
        frame = parse(rank.last, self._orders.token) if self._orders.token else None
        if self._orders.token and (frame is None or frame.kind != EXIT):
            self._lost(
                rank, f"the process around it ended (exit code {code}) and told no end of it"
            )
        else:
            self._codes.append(code)
        return False

    def _lost(self, rank: _Rank, why: str) -> None:
        if self._over_at == float("inf"):
            _say(f"ray: {rank.title} is lost: {why}")
        self._codes.append(_LOST)
        self._end_all()

    def _end_all(self) -> None:
        """Ask every rank to end, once."""
        if self._over_at < float("inf"):
            return
        self._over_at = time.monotonic() + min(self._orders.grace_s, _MOST_GRACE_S) + _FAREWELL_S
        for rank in self._ranks:
            rank.actor.stop.remote()


def _in_order(ranks: Sequence[_Rank]) -> list[_Rank]:
    """Numbered so that the ranks of a node follow each other, nodes in the order of the bundles."""
    nodes = list(dict.fromkeys(rank.place["node"] for rank in ranks))
    ordered = sorted(ranks, key=lambda rank: nodes.index(rank.place["node"]))
    counts: dict[str, int] = {}
    for number, rank in enumerate(ordered):
        node = rank.place["node"]
        rank.number, rank.local = number, counts.get(node, 0)
        counts[node] = rank.local + 1
    return ordered


def _places_of(rank: _Rank, ranks: Sequence[_Rank]) -> dict[str, str]:
    """What tells a rank its place.

    Ray shows an actor its own GPUs only, but programs take the GPU with the number of their local
    rank: so each rank is shown all GPUs of the job's ranks on its node, its own at that place.
    """
    beside = [one for one in ranks if one.place["node"] == rank.place["node"]]
    nodes = list(dict.fromkeys(one.place["node"] for one in ranks))
    node = nodes.index(rank.place["node"])
    places = rank_variables(
        rank=rank.number, size=len(ranks), local=rank.local, local_size=len(beside), node=node
    )
    gpus = list(dict.fromkeys(gpu for one in beside for gpu in one.place["gpus"]))
    if gpus:
        places |= dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), ",".join(gpus))
    return places


def _no_wirespeed(node: str, place: Mapping[str, Any]) -> CannotMeasure:
    if place["problem"] == "python":
        return CannotMeasure(
            f"ray: node {node} has no Python at {place['python']}",
            expected="--python PATH of an interpreter with wirespeed on every node",
        )
    return CannotMeasure(
        f"ray: node {node} has no wirespeed in {place['python']}",
        expected=f"wirespeed {__version__} in the Python that runs Ray there",
        next=f"on {node}: {place['python']} -m pip install wirespeed=={__version__}",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
