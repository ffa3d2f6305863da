"""The commands of the system that make a lab, run in bounded time: ip, tc and nft."""

import os
import shutil
import subprocess
from pathlib import Path

from wirespeed.errors import CannotMeasure

__all__ = ["attempt", "need", "need_root", "tool"]

_BOUND_S = 20.0
_PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "tee": "coreutils"}
_PLACES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where these commands live; an ordinary user's PATH often lacks it."""


def need_root() -> None:
    """Raises CannotMeasure, with the way to get there, unless we may make namespaces."""
    if os.geteuid() == 0:
        return
    raise CannotMeasure(
        "network namespaces need root",
        expected="user id 0",
        next=_way_to_root(),
    )


def need(*names: str) -> None:
    """Raises CannotMeasure that names the package of the first command that is not here."""
    for name in names:
        if _where(name) is None:
            raise CannotMeasure(
                f"the command {name} is not here",
                expected=f"{name}, of the package {_PACKAGES[name]}",
                next=f"apt-get install {_PACKAGES[name]}",
            )


def tool(*words: str, give: str | None = None) -> str:
    """Run a command to its end; its output. Raises CannotMeasure with what it said."""
    done = _run(words, give)
    if done.returncode:
        raise CannotMeasure(
            f"`{' '.join(words)}` failed: {done.stderr.strip() or done.returncode}",
            expected="a Linux kernel with namespaces, veth, bridge and the qdiscs tbf and htb",
            next="if the lab was to be made, nothing of it is left; see docs/lab.md",
        )
    return done.stdout


def attempt(*words: str, give: str | None = None) -> bool:
    """Run a command that may fail, such as removing what is gone already; whether it did well."""
    return _run(words, give).returncode == 0


def _run(words: tuple[str, ...], give: str | None) -> subprocess.CompletedProcess[str]:
    need(words[0])
    try:
        return subprocess.run(
            [_where(words[0]) or words[0], *words[1:]],
            input=give,
            stdin=subprocess.DEVNULL if give is None else None,
            capture_output=True,
            text=True,
            timeout=_BOUND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"`{' '.join(words)}` took more than {_BOUND_S:g} s") from None


def _where(name: str) -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES])
    return shutil.which(name, path=path)


def _way_to_root() -> str:
    if shutil.which("unshare") and _user_namespaces():
        inside = "mount -t tmpfs lab /run && exec sh"
        return f"sudo -E COMMAND; without sudo, a shell of its own: unshare -rnm sh -c '{inside}'"
    return "sudo -E COMMAND"


def _user_namespaces() -> bool:
    """Whether an ordinary user may make namespaces here (tried, since many settings forbid it)."""
    try:
        words = ["unshare", "--map-root-user", "--net", "--mount", "true"]
        tried = subprocess.run(words, capture_output=True, timeout=_BOUND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0 and Path("/proc/self/ns/user").exists()
