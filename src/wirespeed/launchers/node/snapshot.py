"""What a node tells of itself before ranks are started there: one line of JSON on stdout.

The text of this file is sent to the node (`ssh HOST PYTHON -` and the like), where wirespeed may be
missing and Python be old. So it needs the standard library only, and everything above the first
function must run on any Python 3.
"""

import json
import os
import socket
import struct
import subprocess
import sys

MARK = "wirespeed-node: "
"""Before the JSON, since start-up files of a shell may print what they like."""
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables that name the interface of a library's sockets."""
THREADS = "OMP_NUM_THREADS"
ZONE = "WIRESPEED_ZONE"
_OLDEST = (3, 11)
_SMI_S = 5.0
_GET_ADDRESS, _GET_MASK = 0x8915, 0x891B
"""SIOCGIFADDR and SIOCGIFNETMASK of netdevice(7)."""


def _say(facts: object) -> None:
    sys.stdout.write(MARK + json.dumps(facts) + "\n")


if sys.version_info < _OLDEST:
    _say({"python": sys.version.split()[0], "executable": sys.executable, "old": True})
    sys.exit(0)


def main(directory: str) -> None:
    """Look, and say it; `directory` is where the ranks shall run (empty: anywhere)."""
    # As for `python -P -m`: what lies in the home folder is no module.
    sys.path = [place for place in sys.path if place]
    version, trouble = _wirespeed()
    _say(
        {
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "asked": os.environ.get("WIRESPEED_ASKED", ""),
            "wirespeed": version,
            "trouble": trouble,
            "torch": _torch(),
            "gpus": _gpus(),
            "directory": not directory or os.path.isdir(directory),  # noqa: PTH112
            "port": _free_port(),
            "host": os.uname().nodename,
            "interfaces": _interfaces(),
            "reached": os.environ.get("SSH_CONNECTION", "").split()[2:3],
            "told": [name for name in (*INTERFACES, THREADS, ZONE) if name in os.environ],
        }
    )


def interface_variables(name: str) -> dict[str, str]:
    """What makes the libraries' sockets use that interface; empty: nothing."""
    return dict.fromkeys(INTERFACES, name) if name else {}


def _wirespeed() -> tuple[str, str]:
    """Its version, or why there is none."""
    try:
        import wirespeed
    except ImportError as error:
        return "", str(error)
    return getattr(wirespeed, "__version__", ""), ""


def _torch() -> str:
    """Its version, without the seconds that importing it takes."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return ""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


def _gpus() -> int:
    words = ["nvidia-smi", "-L"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_SMI_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def _interfaces() -> list[list[str]]:
    """Name, IPv4 address and mask of each interface that has one."""
    from fcntl import ioctl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answers = [ioctl(asked, what, request) for what in (_GET_ADDRESS, _GET_MASK)]
            except OSError:
                continue
            found.append([name, *(socket.inet_ntoa(answer[20:24]) for answer in answers)])
    return found
