"""Whether two addresses mean one API server: people write cluster.api with and without its parts."""

from urllib.parse import urlsplit

__all__ = ["same_server"]

_PORTS = {"http": 80, "https": 443}


def same_server(told: str, server: str) -> bool:
    """Whether cluster.api, as told, is the address that kubectl has.

    told: `https://api.example.org:6443`, or less of it: the host, also without OpenShift's `api.`
    before the cluster's domain. What is not told may be anything. server: of the kubeconfig.
    """
    host, port = _parts(told)
    other, other_port = _parts(server)
    if host not in (other, other.removeprefix("api.")):
        return False
    return port is None or port == other_port


def _parts(address: str) -> tuple[str, int | None]:
    """Host in small letters, and port; None where neither it nor the scheme is told."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port
    except ValueError:  # no number, or none that a port can have
        port = 0
    return (parts.hostname or "").rstrip("."), port if port is not None else _PORTS.get(
        parts.scheme
    )
