"""Where the pages are served: an address of this machine, of others under TLS, or a socket of a file."""

import ipaddress
import os
import socket
import ssl
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError, refused_as

BACKLOG = 256
_LONGEST_SOCKET = 107
"""Bytes of the path of a unix socket, unix(7)."""
_UNIX = "unix:"
_PORT_DIGITS = 5
_EXPECTED = (
    "HOST:PORT, such as 127.0.0.1:9477 or [::1]:9477 (port 0 takes a free one), or unix:/path"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen: an address and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def others(self) -> bool:
        """Whether other machines reach it."""
        return not self.path and not ipaddress.ip_address(self.host).is_loopback


def parse_listen(text: str) -> Place:
    """`127.0.0.1:9477`, `localhost:0`, `[::1]:9477`, `unix:/run/serve.sock`; UsageError for all else."""
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not Path(path).is_absolute() or "\0" in path or len(os.fsencode(path)) > _LONGEST_SOCKET:
            raise UsageError(f"--listen {text!r}: no absolute path", expected=_EXPECTED)
        return Place(path=path)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS
    if not colon or not host or not number or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is no address", expected=_EXPECTED)
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"--listen {text!r}: {host!r} is no IP address", expected=_EXPECTED)
    return Place(host=str(address), port=int(port))


def bound(place: Place) -> socket.socket:
    """A socket that listens there; CannotMeasure where nobody may, or somebody does already."""
    where = place.path or f"{place.host}:{place.port}"
    again = "--listen 127.0.0.1:0 takes a free port"
    with refused_as(CannotMeasure, f"cannot listen on {where}", next=again):
        return _bound_file(Path(place.path)) if place.path else _bound_address(place)


def address_of(listener: socket.socket, *, tls: bool) -> str:
    """As a browser is told it; of a unix socket its path."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"{_UNIX}{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http{'s' * tls}://{host}:{name[1]}/"


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, with this certificate (PEM, its chain behind it) and its key.

    UsageError where they cannot be read, do not belong together, or the key asks for a password.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password function OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = getattr(error, "reason", "") or getattr(error, "strerror", "") or error
        raise UsageError(
            f"--tls-cert {certificate} and --tls-key {key} cannot be used: {why}",
            expected="a certificate and its key as PEM, the key without a password",
        ) from error
    return context


def _bound_address(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    return socket.create_server((place.host, place.port), family=family, backlog=BACKLOG)


def _bound_file(path: Path) -> socket.socket:
    """Whoever may write to the folder's group may call; a socket that nobody answers at is replaced."""
    _remove_dead(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o117)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _remove_dead(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(17, "something else than a socket lies there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise FileExistsError(17, "somebody answers there already")
