"""How ranks of somebody else's launcher meet: a store, and the console's address in it.

torchrun's agents hold a store already. Elsewhere rank 0 holds one at MASTER_ADDR:MASTER_PORT; and
where the launcher names no master but all ranks share a machine, a file does. Runs in ranks only.
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
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirespeed.console.listening import ANY, listening_address
from wirespeed.errors import StorageError, WorldError
from wirespeed.world.identity import Identity

if TYPE_CHECKING:
    import torch.distributed as dist

__all__ = [
    "Meeting",
    "console_address",
    "forget_meeting_file",
    "from_text",
    "meeting_file",
    "namespace",
    "no_place",
    "on_one_machine",
    "open_store",
    "publish",
    "read_meeting",
    "to_text",
]

TRY_S = 2.0
"""How long one address of the console is tried before the next."""
RETRY_S = 0.2
_KEY = "wirespeed/console"
_PIECE = 400
"""Characters; with its headers a packet of less than 576 bytes, which every IPv4 path takes."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What rank 0 tells the others before anything else."""

    addresses: tuple[str, ...]
    port: int
    token: str
    here: str
    """Marks rank 0's own network namespace, in which loopback reaches it."""
    plan: dict[str, Any]


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
        store = dist.FileStore(str(meeting_file(identity)), identity.world_size)
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


def meeting_file(identity: Identity) -> Path:
    """A file that only the ranks of this job know, in a folder that only this user may enter."""
    folder = Path(tempfile.gettempdir()) / f"wirespeed-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022:
        raise StorageError(f"{folder} belongs to somebody else", expected="a folder of this user")
    job = identity.job or f"{os.getppid()}-{_start_time(os.getppid())}"
    return folder / "".join(c if c.isalnum() else "-" for c in job)


def _start_time(pid: int) -> str:
    """Clock ticks from boot to the start of that process: pid and this name one process for good."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()[19]


def forget_meeting_file(identity: Identity) -> None:
    """Rank 0 removes the file when all is over."""
    if identity.master_port is None and on_one_machine(identity):
        file = meeting_file(identity)
        file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another job of this user meets there
            file.parent.rmdir()


def publish(
    store: "dist.Store", identity: Identity, port: int, token: str, plan: dict[str, Any]
) -> None:
    """Rank 0 tells where the console listens, and the plan that all ranks carry out."""
    # In small pieces: where a switch drops large packets, every rank can still come and tell so.
    data = to_text(identity, port, token, plan)
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    for number, piece in enumerate(pieces):
        store.set(f"{_KEY}/{number}", piece)
    store.set(_KEY, str(len(pieces)))


def read_meeting(store: "dist.Store") -> Meeting:
    """Wait for rank 0's word, up to the store's timeout; WorldError when it does not come."""
    try:
        pieces = [store.get(f"{_KEY}/{number}") for number in range(int(store.get(_KEY)))]
    except RuntimeError as error:
        raise WorldError(
            f"rank 0 did not tell where its console is: {str(error).splitlines()[0]}",
            expected="rank 0 to start within --startup-timeout",
        ) from error
    return from_text(b"".join(pieces))


def to_text(identity: Identity, port: int, token: str, plan: dict[str, Any]) -> str:
    """The meeting as rank 0 tells it: one short line of ASCII."""
    meeting = {
        "addresses": _own_addresses(identity),
        "port": port,
        "token": token,
        "here": namespace(),
        "plan": plan,
    }
    return base64.b64encode(zlib.compress(json.dumps(meeting).encode())).decode()


def from_text(text: bytes) -> Meeting:
    """The inverse of `to_text`; ValueError or zlib.error for anything else."""
    data = json.loads(zlib.decompress(base64.b64decode(text)))
    return Meeting(**{**data, "addresses": tuple(data["addresses"])})


def console_address(meeting: Meeting) -> str:
    """The first of the console's addresses that answers from here; WorldError if none does."""
    own = ["127.0.0.1"] if meeting.here == namespace() else []
    candidates = list(dict.fromkeys([*own, *meeting.addresses]))
    for address in candidates:
        try:
            socket.create_connection((address, meeting.port), timeout=TRY_S).close()
        except OSError:
            continue
        return address
    raise WorldError(
        f"the console at rank 0 answers at none of {', '.join(candidates)} port {meeting.port}",
        expected="TCP from every node to rank 0's node",
        next=f"nc -vz {candidates[0]} {meeting.port}",
    )


def namespace() -> str:
    try:
        return f"{socket.gethostname()}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return socket.gethostname()


def _own_addresses(identity: Identity) -> list[str]:
    """This node's IPv4 addresses: the master's and the chosen interface's first, loopback last.

    Where the console listens on one of them only, that one.
    """
    import psutil

    if (listening := listening_address(identity)) != ANY:
        return [listening]

    found: dict[str, list[str]] = {
        name: [a.address for a in addresses if a.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
    }
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
