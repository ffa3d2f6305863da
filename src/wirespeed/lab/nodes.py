"""Nodes as network namespaces, each with a veth pair to a bridge in a namespace of its own."""

from wirespeed.errors import CannotMeasure
from wirespeed.lab.hosts import write_hosts
from wirespeed.lab.layout import INTERFACE, Layout, space_path
from wirespeed.lab.spec import HOST_MTU
from wirespeed.lab.state import State
from wirespeed.lab.tools import attempt, tool

__all__ = ["BRIDGE", "plug", "set_sysctl", "unplug"]

BRIDGE = "bridge"


def plug(state: State, layout: Layout) -> None:
    """Make all of it. What is made stands in the state before; `unplug` takes it away again."""
    _write_hosts(state, layout)
    for space in layout.spaces():
        _add_space(state, space)
    _in(layout.switch, "link", "add", BRIDGE, "mtu", str(HOST_MTU), "type", "bridge")
    _in(layout.switch, "link", "set", BRIDGE, "up")
    for node in layout.nodes:
        _plug_node(layout, node)


def unplug(state: State) -> list[str]:
    """Remove the namespaces of the state that are still there; the names of those that stay."""
    named = [thing.name for thing in state.made if thing.kind == "namespace"]
    there = [space for space in named if space_path(space).exists()]
    return [space for space in there if not attempt("ip", "netns", "delete", space)]


def set_sysctl(space: str, key: str, value: str) -> bool:
    """Set `net/ipv4/…` of one namespace; False when the kernel refuses."""
    words = ("ip", "netns", "exec", space, "tee", f"/proc/sys/{key}")
    return attempt(*words, give=value)


def _write_hosts(state: State, layout: Layout) -> None:
    state.will_make("folder", str(layout.folder))
    layout.folder.mkdir(mode=0o755)
    for node in layout.nodes:
        write_hosts(layout, node, ())


def _add_space(state: State, space: str) -> None:
    if space_path(space).exists():
        raise CannotMeasure(
            f"a namespace {space} is there already, and no lab of ours made it",
            expected="a name that is free",
            next="give another --name",
        )
    state.will_make("namespace", space)
    if not attempt("ip", "netns", "add", space):
        raise CannotMeasure(
            "no network namespace can be made here",
            expected="CAP_SYS_ADMIN and a /run that can be written",
            next="as root on the machine itself, or: "
            "unshare -rnm sh -c 'mount -t tmpfs lab /run && exec sh'",
        )
    _in(space, "link", "set", "lo", "up")


def _plug_node(layout: Layout, node: str) -> None:
    space, port = layout.space(node), layout.port(node)
    peer = ("peer", "name", INTERFACE, "netns", space)
    _in(layout.switch, "link", "add", port, "type", "veth", *peer)
    _in(layout.switch, "link", "set", port, "master", BRIDGE, "up")
    # Without IPv6 nothing speaks on the link by itself, and gloo has one address to choose.
    set_sysctl(space, f"net/ipv6/conf/{INTERFACE}/disable_ipv6", "1")
    # A black hole stays one: else TCP may probe for a smaller packet after a while.
    set_sysctl(space, "net/ipv4/tcp_mtu_probing", "0")
    _in(space, "address", "add", f"{layout.address(node)}/24", "dev", INTERFACE)
    _in(space, "link", "set", INTERFACE, "mtu", str(HOST_MTU), "up")


def _in(space: str, *words: str) -> None:
    tool("ip", "-n", space, *words)
