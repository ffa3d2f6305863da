"""Words for ssh; pure."""

import shlex
from collections.abc import Sequence

from wirespeed.errors import UsageError

__all__ = ["CONNECT_S", "check_host", "ssh_words"]

CONNECT_S = 7
"""For each address of a host: with two of them ssh still tells its own words before we give up."""
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_S}",
    # A connection that is dead is noticed after 15 to 20 s.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
)


def check_host(name: str) -> None:
    """UsageError for what can be no host of ssh; a name that starts with a dash would be an option."""
    odd = not name or name.startswith("-") or not name.isprintable() or any(map(str.isspace, name))
    if odd or "@-" in name:
        raise UsageError(
            f"{name!r} is no host name",
            expected="a host, user@host, an address, or an alias of ssh's configuration",
        )


def ssh_words(config: str, host: str, far: Sequence[str]) -> tuple[str, ...]:
    """The system's ssh, with the user's configuration and agent, running `far` on that host.

    The far side's login shell sees `far` quoted as POSIX shells read it.
    """
    check_host(host)
    told = [word for option in _OPTIONS for word in ("-o", option)]
    own = ["-F", config] if config else []
    return ("ssh", *own, "-T", *told, "--", host, f"exec {shlex.join(far)}")
