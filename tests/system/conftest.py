"""Two nodes on one machine: network namespaces with a cable between them, and host names."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from image_lab import image
from kube_lab import kube, kube_namespaces
from slurm_lab import slurm_clusters, slurm_lab, slurm_memory_lab
from sshd_lab import ssh_lab, ssh_nodes

BOUND_S = 20.0
KUBE_S = 400


__all__ = [
    "image",
    "kube",
    "kube_namespaces",
    "slurm_clusters",
    "slurm_lab",
    "slurm_memory_lab",
    "ssh_lab",
    "ssh_nodes",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "system" in item.path.parts:
            item.add_marker(pytest.mark.system)
        if "kube" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
            # A kubelet may take 40 s to act on one change, and everything shares two cores.
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(KUBE_S))
    # Minutes for the image: they pass beside the other tests, and not after them.
    items.sort(key=lambda item: "image" not in getattr(item, "fixturenames", ()))


def ip(*words: str) -> None:
    done = subprocess.run(
        ["ip", *words], capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")


class TwoNodes:
    """`node-0` (10.77.0.1) and `node-1` (10.77.0.2), each with `eth0` and loopback."""

    def __init__(self, folder: Path) -> None:
        self.names = ["node-0", "node-1"]
        self._spaces = [f"ws-{os.getpid()}-{index}" for index in range(2)]
        self._hosts = folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{self.address(i)} {self.names[i]}" for i in range(2))]
        self._hosts.write_text("\n".join(lines) + "\n")

    def plug(self) -> None:
        for space in self._spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        first, second = self._spaces
        peer = ["peer", "name", "eth0", "netns", second]
        ip("-n", first, "link", "add", "eth0", "type", "veth", *peer)
        for index, space in enumerate(self._spaces):
            ip("-n", space, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")

    def address(self, node: int) -> str:
        return f"10.77.0.{node + 1}"

    def cut(self, node: int) -> None:
        """As if somebody pulled the cable."""
        ip("-n", self._spaces[node], "link", "set", "eth0", "down")

    def on(self, node: int, *words: str) -> list[str]:
        """The command that runs `words` on that node: its network, host name and /etc/hosts."""
        name = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'
        inside = ["unshare", "--uts", "--mount", "sh", "-c", name, str(self._hosts)]
        inside += [self.names[node], *words]
        return ["nsenter", f"--net=/run/netns/{self._spaces[node]}", *inside]

    def torchrun(
        self, node: int, *words: str, rendezvous: str = "c10d", ranks: int = 1
    ) -> list[str]:
        """torchrun on that node: 2 nodes, so many ranks each."""
        meet = [f"--rdzv-backend={rendezvous}", "--nnodes=2", f"--nproc-per-node={ranks}"]
        if rendezvous == "static":
            meet += [f"--master-addr={self.address(0)}", "--master-port=29400"]
            meet += [f"--node-rank={node}"]
        else:
            meet += [f"--rdzv-endpoint={self.address(0)}:29400", "--rdzv-id=lab"]
            meet += [f"--local-addr={self.address(node)}"]
        run = [sys.executable, "-m", "torch.distributed.run", *meet, "-m", "wirespeed", *words]
        return self.on(node, *run)

    def unplug(self) -> None:
        for space in self._spaces:
            with suppress(RuntimeError):
                ip("netns", "delete", space)


@pytest.fixture
def nodes(cli: Any, tmp_path: Path) -> Iterator[TwoNodes]:
    """Two nodes; whatever still runs on them is ended before they go, also after a failure."""
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"Requires: root and the commands ip, tc (missing: {missing})")
    lab = TwoNodes(tmp_path)
    try:
        lab.plug()
        yield lab
    finally:
        cli.end_all()
        lab.unplug()


@pytest.fixture
def small_disk(cli: Any, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of that size (`64k`, `1m`); gone afterwards, after all that runs on it."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("Requires: root and mount")
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        place = tmp_path / f"disk-{size}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=True)
        mounted.append(place)
        return place

    try:
        yield mount
    finally:
        cli.end_all()
        for place in mounted:
            subprocess.run(["umount", place], check=True)
