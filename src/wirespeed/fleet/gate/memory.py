"""What a node's gate keeps from call to call: `$WIRESPEED_HOME/gate/NODE.json`, for its owner alone.

Lost or damaged it is begun anew: nothing but the patience with a node that comes and goes is lost.
"""

from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from wirespeed.errors import StorageError
from wirespeed.fleet.gate.decision import Memory
from wirespeed.fleet.gate.look import Counters
from wirespeed.node.reading import read_whole
from wirespeed.runs.folder import write_whole
from wirespeed.runs.place import home, private_folder

_FOLDER = "gate"
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    memory: Memory = field(default_factory=Memory)
    counters: Counters | None = None


def recall(node: str) -> Kept:
    """Empty where there is nothing, or nothing that can be read as such."""
    with suppress(OSError, StorageError, msgspec.MsgspecError, UnicodeDecodeError):
        text = read_whole(home() / _FOLDER / f"{node}.json", _LARGEST, links=False)
        return msgspec.json.decode(text, type=Kept)
    return Kept()


def keep(node: str, kept: Kept) -> None:
    """StorageError where it cannot be written."""
    try:
        write_whole(private_folder(_FOLDER) / f"{node}.json", msgspec.json.encode(kept))
    except OSError as error:
        raise StorageError(
            f"the gate of {node} cannot remember this call: {error.strerror or error}",
            expected="a folder that can be written",
            next="WIRESPEED_HOME=/var/lib/wirespeed wirespeed gate …",
        ) from error
