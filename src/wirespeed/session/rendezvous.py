"""How ranks of somebody else's launcher meet: a store, and the session's address in it.

torchrun's agents hold a store already. Elsewhere rank 0 holds one at MASTER_ADDR:MASTER_PORT; and
where the launcher names no master but all ranks share a machine, a file does. Runs in ranks only.

Others may be able to write there. So what is told is sealed where the job has a secret, is checked to
the last field, and tells nobody what to do: of rank 0's plan only digests, which each rank compares
with its own. The session's key is made from the secret; without one, it is what stands there.
"""

import base64
import contextlib
import json
import os
import socket
import stat
import tempfile
import time
import zlib
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from wirespeed.errors import StorageError, WorldError
from wirespeed.launchers.request import INTERFACE
from wirespeed.node.identity import Identity
from wirespeed.node.secret import Seal, derived
from wirespeed.plan import Plan
from wirespeed.process import started
from wirespeed.session.record_stream import VARIABLE

if TYPE_CHECKING:
    import torch.distributed as dist


TRY_S = 2.0
"""How long one address of the session is tried before the next."""
RETRY_S = 0.2
_KEY = "wirespeed/session"
_PIECE = 400
"""Characters; with its headers a packet of less than 576 bytes, which every IPv4 path takes."""
_MOST_PIECES = 160
MOST_BYTES = 64 * 1024
"""Of a rendezvous as text, and as JSON."""
_MOST_ADDRESSES = 256
PATIENCE_S = 3.0
"""How long rank 0's word is looked for where somebody else's stands."""


_Word = Annotated[str, Meta(min_length=1, max_length=400)]


class Rendezvous(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What rank 0 tells the others before anything else."""

    addresses: Annotated[tuple[_Word, ...], Meta(min_length=1, max_length=_MOST_ADDRESSES)]
    port: Annotated[int, Meta(gt=0, lt=65536)]
    nonce: _Word
    """Of this run alone; see `session_key`."""
    here: _Word
    """Marks rank 0's own network namespace, in which loopback reaches it."""
    plan: Annotated[dict[_Word, _Word], Meta(max_length=1024)]
    """Rank 0's `Plan.digests()`."""


def session_key(secret: bytes | None, nonce: str) -> str:
    """What the session and its ranks know; without a secret, whoever sees the rendezvous does, too."""
    return nonce if secret is None else derived(secret, f"session {nonce}").hex()


def open_store(identity: Identity, timeout_s: float) -> "dist.Store":
    """The store of this world; WorldError when the launcher tells no place for one."""
    import torch.distributed as dist

    timeout = timedelta(seconds=timeout_s)
    if identity.master_addr is not None and identity.master_port is not None:
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        master = identity.rank == 0 and not agents
        if not master:
            _reach(identity, identity.master_addr, identity.master_port, timeout_s)
        try:
            store: dist.Store = dist.TCPStore(
                identity.master_addr,
                identity.master_port,
                identity.world_size,
                is_master=master,
                timeout=timeout,
                wait_for_workers=False,
            )
        except RuntimeError as error:
            raise _no_master(identity, str(error).splitlines()[0]) from error
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return dist.PrefixStore(f"wirespeed/{attempt}", store)
    if on_one_machine(identity):
        store = dist.FileStore(str(rendezvous_file(identity)), identity.world_size)
        store.set_timeout(timeout)
        return store
    raise no_place(identity)


def no_place(identity: Identity) -> WorldError:
    """Nobody told this world where to meet."""
    return WorldError(
        f"{identity.launcher} started {identity.world_size} ranks on several nodes, "
        "and MASTER_ADDR is not set",
        expected="MASTER_ADDR and MASTER_PORT in every rank's environment",
        next="mpirun -x MASTER_ADDR=$(hostname) -x MASTER_PORT=29500 …",
    )


def on_one_machine(identity: Identity) -> bool:
    return identity.local_world_size == identity.world_size


def _reach(identity: Identity, address: str, port: int, timeout_s: float) -> None:
    """Wait until somebody listens there, so that the library's own (endless) complaints are spared."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((address, port), timeout=TRY_S).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise _no_master(identity, f"{error.strerror or error}") from error
            time.sleep(RETRY_S)
        else:
            return


def _no_master(identity: Identity, cause: str) -> WorldError:
    place = f"{identity.master_addr}:{identity.master_port}"
    return WorldError(
        f"rank {identity.rank} on {socket.gethostname()} cannot use the store at {place}: {cause}",
        expected="rank 0 to be there, MASTER_ADDR to name its node for every rank, "
        "and MASTER_PORT to be free",
        next=f"getent hosts {identity.master_addr}",
    )


def rendezvous_file(identity: Identity) -> Path:
    """A file that only the ranks of this job know, in a folder that only this user may enter."""
    folder = Path(tempfile.gettempdir()) / f"wirespeed-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise StorageError(
            f"{folder} is somebody else's, or open to others",
            expected="a folder of this user alone",
        )
    job = identity.job or f"{os.getppid()}-{started(os.getppid())}"
    return folder / "".join(c if c.isalnum() else "-" for c in job)


def forget_rendezvous_file(identity: Identity) -> None:
    """Rank 0 removes the file when all is over."""
    if identity.master_port is None and on_one_machine(identity):
        file = rendezvous_file(identity)
        file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another job of this user meets there
            file.parent.rmdir()


def publish(store: "dist.Store", text: bytes, seal: Seal) -> None:
    """Rank 0 tells where the session listens, and what all ranks carry out."""
    # In small pieces: where a switch drops large packets, every rank can still come and tell so.
    data = seal.close(text, _KEY).decode()
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    for number, piece in enumerate(pieces):
        store.set(f"{_KEY}/{number}", piece)
    store.set(_KEY, str(len(pieces)))


def read_rendezvous(store: "dist.Store", seal: Seal) -> Rendezvous:
    """Wait for rank 0's word, up to the store's timeout; WorldError when it does not come."""
    until = None
    while True:
        try:
            return from_text(seal.open(_pieces(store), _KEY))
        except RuntimeError as error:
            raise WorldError(
                f"rank 0 did not tell where its session is: {str(error).splitlines()[0]}",
                expected="rank 0 to start within --startup-timeout",
            ) from error
        except ValueError as error:
            until = until or time.monotonic() + PATIENCE_S
            if time.monotonic() > until:
                raise WorldError(
                    f"what stands in the store in the place of rank 0's word is not its own: {error}",
                    expected="one secret for all ranks, or none for any (WIRESPEED_SECRET, "
                    "--secret-file), and nobody else who writes to the store",
                ) from error
        time.sleep(RETRY_S)


def _pieces(store: "dist.Store") -> bytes:
    count = store.get(_KEY)
    if not count.isdigit() or len(count) > len(str(_MOST_PIECES)) or int(count) > _MOST_PIECES:
        raise ValueError("it has no length")
    return b"".join(store.get(f"{_KEY}/{number}") for number in range(int(count)))


def to_text(identity: Identity, port: int, nonce: str, plan: Plan) -> bytes:
    """The rendezvous as rank 0 tells it: one short line of ASCII."""
    rendezvous = {
        "addresses": _own_addresses(identity)[:_MOST_ADDRESSES],
        "port": port,
        "nonce": nonce,
        "here": namespace(),
        "plan": plan.digests(),
    }
    return base64.b64encode(zlib.compress(json.dumps(rendezvous).encode()))


def from_text(text: bytes) -> Rendezvous:
    """The inverse of `to_text`; ValueError for anything else, whatever it would unpack to."""
    try:
        unpacking = zlib.decompressobj()
        data = json.loads(unpacking.decompress(base64.b64decode(text, validate=True), MOST_BYTES))
        rendezvous = convert(data, Rendezvous)
        addresses = tuple(str(IPv4Address(address)) for address in rendezvous.addresses)
    except (ValueError, zlib.error, RecursionError) as error:
        raise ValueError(f"it is no rendezvous ({type(error).__name__})") from error
    words = (rendezvous.nonce, rendezvous.here, *rendezvous.plan, *rendezvous.plan.values())
    if not all(map(str.isprintable, words)):
        raise ValueError("it is no rendezvous (a value that cannot be)")
    return replace(rendezvous, addresses=addresses)


def session_address(rendezvous: Rendezvous) -> str:
    """The first of the session's addresses that answers from here; WorldError if none does."""
    own = ["127.0.0.1"] if rendezvous.here == namespace() else []
    candidates = list(dict.fromkeys([*own, *rendezvous.addresses]))
    for address in candidates:
        try:
            socket.create_connection((address, rendezvous.port), timeout=TRY_S).close()
        except OSError:
            continue
        return address
    raise WorldError(
        f"the session at rank 0 answers at none of {', '.join(candidates)} port {rendezvous.port}",
        expected="TCP from every node to rank 0's node",
        next=f"nc -vz {candidates[0]} {rendezvous.port}",
    )


def namespace() -> str:
    try:
        return f"{socket.gethostname()}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return socket.gethostname()


def _own_addresses(identity: Identity) -> list[str]:
    """This node's IPv4 addresses: the master's and the chosen interface's first, loopback last.

    Where the session listens on one of them only, that one.
    """
    if (listening := listening_address(identity)) != ANY:
        return [listening]

    found = _by_interface()
    wanted = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    chosen = [address for name in wanted for address in found.get(name, [])]
    every = [address for addresses in found.values() for address in addresses]
    master = [address for address in _resolved(identity.master_addr) if address in every]
    ordered = dict.fromkeys([*master, *chosen, *every])
    return sorted(ordered, key=lambda address: address.startswith("127."))


def _resolved(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)]
    except OSError:
        return []


ANY = "0.0.0.0"


def listening_address(identity: Identity, environ: Mapping[str, str] | None = None) -> str:
    """An IPv4 address of this node, or `0.0.0.0` where nobody said which; a token guards it there.

    Under an engine of ours GLOO_SOCKET_IFNAME was set by `--interface` or by the engine, which knows
    that it leads to the nodes; set by hand it may be the very mistake that the run shall find, and
    the session must stay reachable.
    """
    environ = os.environ if environ is None else environ
    if identity.master_addr in ("127.0.0.1", "localhost"):
        return "127.0.0.1"
    ours = environ.get("GLOO_SOCKET_IFNAME", "") if VARIABLE in environ else ""
    names = environ.get(INTERFACE) or ours
    return next((found for name in names.split(",") if (found := _address(name))), ANY)


def reached_at(listening: str) -> str:
    """Where this node itself reaches it."""
    return "127.0.0.1" if listening == ANY else listening


def _by_interface() -> dict[str, list[str]]:
    """IPv4 addresses of this node."""
    import psutil

    return {
        name: [one.address for one in addresses if one.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
    }


def _address(interface: str) -> str:
    """Its IPv4 address; empty for loopback, which no other node reaches, and for none such."""
    own = _by_interface().get(interface, [])
    return next((address for address in own if not address.startswith("127.")), "")
