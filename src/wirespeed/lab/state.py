"""What a lab has made, written before each thing is made, so that a crash leaves nothing unknown.

`NAME.json` and `NAME/` lie in `wirespeed-lab/` under $XDG_RUNTIME_DIR, /run or /tmp. `down`
removes what stands there and nothing else.
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.lab.spec import LabSpec, check_name, format_fault, node_name, parse_fault

_FOLDER = "wirespeed-lab"
_SUBNETS = 256


@dataclass(frozen=True, slots=True)
class Made:
    """One thing on this machine: a `namespace` by name, a `folder` or a `cgroup` by path."""

    kind: str
    name: str


@dataclass(slots=True)
class State:
    """A lab as it stands on disk; `save` after every change."""

    path: Path
    spec: LabSpec
    subnet: int
    """The third number of its addresses, 192.168.SUBNET.x."""
    ready: bool = False
    """Whether `up` came to its end."""
    made: list[Made] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.path.with_suffix("")

    def will_make(self, kind: str, name: str) -> None:
        """To be called before the thing is made."""
        thing = Made(kind, name)
        if thing not in self.made:
            self.made.append(thing)
            self.save()

    def save(self) -> None:
        temporary = _write_beside(self.path, self.to_json())
        temporary.replace(self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        try:
            self.path.parent.rmdir()
        except OSError:
            return  # another lab's state is there

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.spec.name,
            "nodes": self.spec.nodes,
            "rate": self.spec.rate,
            "faults": [list(format_fault(fault)) for fault in self.spec.faults],
            "subnet": self.subnet,
            "ready": self.ready,
            "made": [asdict(thing) for thing in self.made],
        }


def claim(spec: LabSpec) -> State:
    """The state of a new lab. UsageError when one of that name is there already."""
    others = all_states()
    if any(other.spec.name == spec.name for other in others):
        raise _taken(spec.name)
    taken = {other.subnet for other in others}
    free = [number for number in range(_SUBNETS) if number not in taken]
    if not free:
        raise UsageError(f"{len(others)} labs are up", expected=f"fewer than {_SUBNETS}")
    state = State(_writable() / f"{spec.name}.json", spec, free[0])
    temporary = _write_beside(state.path, state.to_json())
    try:
        os.link(temporary, state.path)  # unlike a rename, this fails when another was faster
    except FileExistsError:
        raise _taken(spec.name) from None
    finally:
        temporary.unlink()
    return state


def load(name: str) -> State | None:
    """The state of that lab, or None. InputError when the file is damaged."""
    check_name(name)
    for folder in _places():
        path = folder / f"{name}.json"
        if path.exists():
            return _read(path)
    return None


def all_states() -> list[State]:
    """Of every lab on this machine that we may see, by name."""
    paths = [path for folder in _places() for path in folder.glob("*.json")]
    return sorted((_read(path) for path in paths), key=lambda state: state.spec.name)


def _taken(name: str) -> UsageError:
    return UsageError(
        f"a lab named {name} is there already",
        expected="a name that is free",
        next=f"python -m wirespeed.lab down --name {name}, or give another --name",
    )


def _read(path: Path) -> State:
    try:
        found = json.loads(path.read_text("utf-8"))
        faults = tuple(parse_fault(kind, text) for kind, text in found["faults"])
        spec = LabSpec(found["nodes"], found["name"], found["rate"], faults)
        made = [Made(thing["kind"], thing["name"]) for thing in found["made"]]
        return State(path, spec, int(found["subnet"]), bool(found["ready"]), made)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise InputError(
            f"{path} is not the state of a lab: {error}",
            expected="the JSON that `python -m wirespeed.lab up` wrote",
            next=f"see `ip netns list` for what is left of it, then remove {path}",
        ) from error


def _roots() -> list[Path]:
    given = os.environ.get("XDG_RUNTIME_DIR")
    roots = [Path(given)] if given and Path(given).is_absolute() else []
    return [*roots, Path("/run"), Path(tempfile.gettempdir())]


def _places() -> list[Path]:
    """Existing folders of states that are ours alone: what they name is removed as root."""
    found = dict.fromkeys(root / _FOLDER for root in _roots())
    return [folder for folder in found if folder.is_dir() and _is_ours(folder)]


def _is_ours(folder: Path) -> bool:
    facts = folder.lstat()
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022 and not folder.is_symlink()


def _writable() -> Path:
    """The first place in which a file can be made."""
    for root in _roots():
        folder = root / _FOLDER
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if _is_ours(folder) and os.access(folder, os.W_OK):
            return folder
    raise StorageError(
        "no folder for the state of a lab",
        expected=f"one of {', '.join(str(root) for root in _roots())} to be writable",
        next="set XDG_RUNTIME_DIR to a folder of yours",
    )


def _write_beside(path: Path, content: dict[str, Any]) -> Path:
    try:
        handle, name = tempfile.mkstemp(prefix=".", suffix=".new", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
    return Path(name)


INTERFACE = "eth0"
"""Of every node; its other end is a port of the switch."""

_PREFIX = "wslab"
_INSIDE = Path(__file__).with_name("inside.py")


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
        """Its namespace; a control group of its processes has that name too."""
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

    def script(self, name: str) -> list[str]:
        """The command of one of the programs of inside.py."""
        return [sys.executable, "-I", "-S", str(_INSIDE), name]


def space_path(space: str) -> Path:
    """Where iproute2 keeps a namespace."""
    return Path("/run/netns") / space
