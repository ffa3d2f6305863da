"""The content of a run folder, as a common store keeps it: each file compressed, below its name.

Names come back from a database that others can write to: only those of this form become files, and
only in a folder that was made for them.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from wirespeed.errors import InputError
from wirespeed.node.reading import read_whole
from wirespeed.runs.folder import write_whole
from wirespeed.runs.jsontext import damage
from wirespeed.runs.place import LARGEST

RUN = "run.json"
MOST_BYTES = 256 << 20
"""Of a file before it is compressed; larger ones stay where they are (run.json tells the whole run)."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}\.jsonl?")


def packed(folder: Path) -> tuple[dict[str, bytes], str]:
    """Files by name, and the SHA-256 of them all.

    Logs of ranks stay, as they hold what the user's own programs print. InputError where the run
    cannot be read.
    """
    from zstandard import ZstdCompressor

    pack, digest, found = ZstdCompressor(), sha256(), {}
    with damage(str(folder)):
        for path in sorted(folder.iterdir()):
            if _NAME.fullmatch(path.name) and path.lstat().st_size <= _most(path.name):
                data = read_whole(path, _most(path.name), links=False)
                digest.update(f"{path.name} {len(data)} ".encode() + data)
                found[path.name] = pack.compress(data)
    return found, digest.hexdigest()


def _most(name: str) -> int:
    return LARGEST if name == RUN else MOST_BYTES


def unpacked(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write them into that folder; InputError for what is damaged, or would be larger than allowed."""
    for name, data in files:
        if _NAME.fullmatch(name):
            write_whole(folder / name, _whole(name, data))


def _whole(name: str, data: bytes) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    try:
        size = frame_content_size(data)  # of what it says is room made, whatever bound is given
        if not 0 <= size <= _most(name):
            raise InputError(f"{name} of the run in the store would have {size} bytes unpacked")
        return ZstdDecompressor().decompress(data, allow_extra_data=False)
    except ZstdError as error:
        raise InputError(f"{name} of the run is damaged in the store: {error}") from error
