"""Names and addresses of a lab's parts; nothing is made here."""

import sys
from dataclasses import dataclass
from pathlib import Path

from wirespeed.lab.spec import node_name
from wirespeed.lab.state import State

__all__ = ["INTERFACE", "Layout"]

INTERFACE = "eth0"
"""Of every node; its other end is a port of the switch."""

_PREFIX = "wslab"
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Layout:
    """What a lab's parts are called."""

    name: str
    subnet: int
    count: int
    folder: Path

    @classmethod
    def of(cls, state: State) -> "Layout":
        return cls(state.spec.name, state.subnet, state.spec.nodes, state.folder)

    @property
    def nodes(self) -> list[str]:
        return [node_name(index) for index in range(self.count)]

    @property
    def switch(self) -> str:
        """The namespace of the bridge, of the switch ports and of what works in between."""
        return f"{_PREFIX}-{self.name}-switch"

    def hosts(self, node: str) -> Path:
        """The file that is /etc/hosts on that node."""
        return self.folder / f"hosts-{node}"

    @property
    def network(self) -> str:
        return f"192.168.{self.subnet}.0/24"

    def space(self, node: str) -> str:
        return f"{_PREFIX}-{self.name}-{node}"

    def spaces(self) -> list[str]:
        return [self.switch, *(self.space(node) for node in self.nodes)]

    def address(self, node: str) -> str:
        return f"192.168.{self.subnet}.{self.index(node) + 1}"

    def port(self, node: str) -> str:
        """The node's switch port, in the namespace of the switch."""
        return f"port-{self.index(node)}"

    def index(self, node: str) -> int:
        return self.nodes.index(node)

    def cgroup(self, node: str) -> str:
        return f"{_PREFIX}-{self.name}-{node}"

    def script(self, name: str) -> list[str]:
        """The command of a file of ours that needs the standard library only."""
        return [sys.executable, "-I", "-S", str(_HERE / f"{name}.py")]


def space_path(space: str) -> Path:
    """Where iproute2 keeps a namespace."""
    return Path("/run/netns") / space
