"""A connection to a Ray cluster, one that was there before or one of this job alone, and room in it.

Ray is imported when a connection is made, and not typed: nothing but this process needs it. `Orders`
are what the driver is told, as one line of JSON on its stdin.
"""

import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from wirespeed.errors import CannotMeasure, WirespeedError
from wirespeed.launchers.base import Job
from wirespeed.process.frames import VARIABLE
from wirespeed.process.guard import StopRequest, on_end_of_stdin

LOCAL = "local"
"""The address that stands for a cluster of this job alone, on this machine."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Ranks that Ray must place on one node together."""

    ranks: int
    host: str = ""
    """The node that it must be: its address, host name or Ray's name for it; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """One job, as the driver needs it."""

    command: tuple[str, ...]
    python: str
    """Interpreter of the ranks; empty: the one that runs Ray on their node."""
    environment: Mapping[str, str]
    address: str
    """`local`, `auto`, `HOST:PORT` or `ray://HOST:PORT`."""
    bundles: tuple[Bundle, ...]
    strategy: str
    """Ray's: `STRICT_SPREAD`, `SPREAD`, `PACK` or `STRICT_PACK` of the bundles over nodes."""
    cpus: float | None
    """For each rank; None: 1, of which a local cluster is given as many as there are ranks."""
    gpus: float | None
    """For each rank; None: 1 where the cluster has one for every rank, else 0."""
    place_s: float
    """How long to wait for room."""
    grace_s: float
    interface: str = ""
    """Whose address ranks meet at; empty: the address by which Ray knows rank 0's node."""

    @property
    def token(self) -> str:
        """Of the ranks' frames; empty where they shall not frame."""
        return self.environment.get(VARIABLE, "").partition(",")[0]

    @property
    def size(self) -> int:
        """World size."""
        return sum(bundle.ranks for bundle in self.bundles)

    def to_json(self) -> str:
        """One line, ASCII only: also what is no text in the environment passes unharmed."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """WirespeedError where the line is none that `to_json` wrote."""
        try:
            data: dict[str, Any] = json.loads(text)
            bundles = tuple(Bundle(**bundle) for bundle in data.pop("bundles"))
            return cls(command=tuple(data.pop("command")), bundles=bundles, **data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise WirespeedError(f"the Ray driver cannot read its orders: {error}") from error


def bundles_of(job: Job, *, local: bool) -> tuple[Bundle, ...]:
    """One bundle a node. Where nothing tells how many ranks a node takes: all of them on a local
    cluster, else each by itself, so that Ray places them as they fit.
    """
    if job.hosts:
        each = job.ranks_per_node or 1
        return tuple(Bundle(host.slots or each, host.name) for host in job.hosts)
    whole = -(-job.size // job.nodes) if job.nodes else (job.size if local else 1)
    each = job.ranks_per_node or whole
    full, rest = divmod(job.size, each)
    return (Bundle(each),) * full + ((Bundle(rest),) if rest else ())


_CONNECT_S = 5.0
_POLL_S = 0.2
_STORE_BYTES = 80 << 20
"""Of shared memory for objects, near the least that Ray takes: nothing big is kept there."""
_SOME = 0.001
"""Of a resource, where only being there counts."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# For a local cluster: ranks at the nice value of this process, and not the first that is ended
# when memory runs short. A token, since Ray would write one into the home folder.
OWN = {"RAY_worker_niceness": "0", "RAY_memory_monitor_refresh_ms": "0", "RAY_AUTH_MODE": "token"}
"""Not for ranks: a cluster that they start themselves is not this one."""


LAST_RESORT_S = 7.0
"""After this the process ends whatever Ray is doing: its guard cleans up after it."""


class StopRequested(BaseException):
    """Raised in the main thread while it is inside a call that cannot be polled."""


class RayStop(StopRequest):
    """Whether somebody wants the job to end, heard also inside Ray's calls."""

    _raises = False

    def watch(self) -> None:
        """From now on the end of stdin asks to stop."""
        on_end_of_stdin(lambda: os.kill(os.getpid(), signal.SIGTERM))

    @contextmanager
    def raising(self) -> Iterator[None]:
        """StopRequested comes out of the block, where a request comes in it or before it."""
        self._raises = True
        try:
            if self.reason:
                raise StopRequested
            yield
        finally:
            self._raises = False

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if not self.reason:
            self.ask("signal")
            end = threading.Timer(LAST_RESORT_S, os._exit, (3,))
            end.daemon = True
            end.start()
        if self._raises:
            raise StopRequested


@contextmanager
def connected(orders: Orders, folder: Path, stop: RayStop) -> Iterator[Any]:
    """The module `ray`, connected; a local cluster ends with the block, any other stays.

    CannotMeasure where Ray is not there or nothing answers.
    """
    local = orders.address == LOCAL
    os.environ.update(_QUIET)
    if local:
        OWN["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        os.environ.update(OWN)
        os.environ.pop("RAY_ADDRESS", None)
    else:
        _must_listen(orders.address)
    ray = import_module("ray")
    try:
        with stop.raising():
            ray.init(**(_of_our_own(orders, folder) if local else {"address": orders.address}))
            stop.listen()
    except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
        raise CannotMeasure(
            f"ray: no connection to the cluster at {orders.address}: {first_line(error)}",
            expected="a running cluster of this version of Ray and Python",
            next=f"ray status --address {orders.address}",
        ) from error
    except SystemExit as error:  # Ray's own handler of SIGTERM, before ours is back
        raise StopRequested from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _of_our_own(orders: Orders, folder: Path) -> dict[str, Any]:
    """What ray.init is told for a cluster of this machine alone, on loopback."""
    services: Any = import_module("ray._private.services")
    # Ray replaces 127.0.0.1 by the machine's address here, and listens on every interface then.
    services.resolve_ip_for_localhost = lambda host: host
    enough = max(os.cpu_count() or 1, orders.size) if orders.cpus is None else None
    return {
        "address": LOCAL,
        "num_cpus": enough,
        "include_dashboard": False,
        "object_store_memory": _STORE_BYTES,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": str(folder),
    }


def _must_listen(address: str) -> None:
    """CannotMeasure at once, where Ray itself would try for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise CannotMeasure(
            f"ray: no connection to the cluster at {address}: {error}",
            expected="the address of a running cluster: HOST:6379, or ray://HOST:10001",
            next="ray start --head, or --with address=local",
        ) from error


@contextmanager
def room_for(
    orders: Orders, ray: Any, stop: RayStop, say: Callable[[str], None]
) -> Iterator[Callable[[type, int], Any]]:
    """Wait until Ray has placed every bundle; CannotMeasure says what was asked and what is there.

    Gives what makes a new actor of a class in a bundle, which Ray does not start again when it dies.
    After the block Ray ends what is still in there.
    """
    cpus = 1.0 if orders.cpus is None else orders.cpus
    enough = ray.cluster_resources().get("GPU", 0) >= orders.size
    gpus = float(enough) if orders.gpus is None else orders.gpus
    shapes = [_shape(bundle, cpus, gpus, ray) for bundle in orders.bundles]
    until = time.monotonic() + orders.place_s
    if not _may_fit(shapes, ray):
        if orders.address == LOCAL:  # which cannot grow
            raise _no_room(shapes, orders, ray)
        say(f"ray: waiting for nodes: asked {_asked(shapes, orders)}; the cluster has {_has(ray)}")
    util = import_module("ray.util")
    scheduling = import_module("ray.util.scheduling_strategies")
    group = util.placement_group(shapes, strategy=orders.strategy)

    def actor(kind: type, bundle: int) -> Any:
        strategy = scheduling.PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=bundle
        )
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        return ray.remote(kind).options(scheduling_strategy=strategy, **options).remote()

    ready = [group.ready()]
    try:
        while not ray.wait(ready, timeout=_POLL_S)[0]:
            if stop.reason:
                raise StopRequested
            if time.monotonic() > until:
                raise _no_room(shapes, orders, ray)
        yield actor
    finally:
        with suppress(ray.exceptions.RayError):
            util.remove_placement_group(group)


def _shape(bundle: Bundle, cpus: float, gpus: float, ray: Any) -> dict[str, float]:
    shape = {"CPU": bundle.ranks * cpus, "GPU": bundle.ranks * gpus}
    if bundle.host:
        shape[f"node:{_address_of(bundle.host, ray)}"] = _SOME
    return {name: much for name, much in shape.items() if much} or {"CPU": _SOME}


def _address_of(host: str, ray: Any) -> str:
    """Ray's address of a node; CannotMeasure names those that are there."""
    for node in nodes_in(ray):
        names = (node["NodeManagerAddress"], node["NodeManagerHostname"], node["NodeName"])
        if host in names:
            return str(node["NodeManagerAddress"])
    raise CannotMeasure(
        f"ray: no node of the cluster is called {host}",
        expected=_has(ray),
        next="ray list nodes",
    )


def nodes_in(ray: Any) -> list[dict[str, Any]]:
    """Nodes that are alive, as Ray tells them."""
    return [node for node in ray.nodes() if node["Alive"]]


def _may_fit(shapes: list[dict[str, float]], ray: Any) -> bool:
    """Whether each bundle fits on some node, and all of them into the cluster, were it empty."""
    nodes = [node["Resources"] for node in nodes_in(ray)]
    each = all(
        any(all(node.get(name, 0) >= much for name, much in shape.items()) for node in nodes)
        for shape in shapes
    )
    has = {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    return each and all(sum(shape.get(name, 0) for shape in shapes) <= has[name] for name in has)


def _no_room(shapes: list[dict[str, float]], orders: Orders, ray: Any) -> CannotMeasure:
    return CannotMeasure(
        f"ray: no room for {orders.size} ranks: asked {_asked(shapes, orders)}; "
        f"the cluster has {_has(ray)}",
        expected="that room at once, since a local cluster cannot grow"
        if orders.address == LOCAL
        else f"that room within {orders.place_s:.0f} s (--with timeout=SECONDS)",
        next="ray status; fewer ranks a node, --with cpus-per-rank=0, or --with strategy=PACK",
    )


def _asked(shapes: list[dict[str, float]], orders: Orders) -> str:
    words = [_amounts(shape) for shape in shapes]
    counted = [f"{words.count(word)} × ({word})" for word in dict.fromkeys(words)]
    strict = orders.strategy == "STRICT_SPREAD" and len(shapes) > 1
    apart = " on nodes of their own" if strict else ""
    return f"{' and '.join(counted)}{apart}, {orders.strategy}"


def _has(ray: Any) -> str:
    nodes = [f"{n['NodeName']}: {_amounts(n['Resources'])}" for n in nodes_in(ray)]
    more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    free = _amounts(ray.available_resources())
    return f"{len(nodes)} node(s) ({'; '.join(nodes[:8])}{more}), free: {free}"


def _amounts(resources: dict[str, float]) -> str:
    pinned = [name for name in resources if name.startswith("node:") and resources[name] == _SOME]
    amounts = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    return ", ".join([*amounts, *pinned]) or "0 CPU"


def first_line(error: BaseException) -> str:
    """What an exception says, on one line of bounded length."""
    return " ".join(str(error).split())[:400] or type(error).__name__
