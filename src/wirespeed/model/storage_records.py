"""What was seen of a folder that holds data and checkpoints."""

from dataclasses import dataclass
from typing import Annotated, Literal

from wirespeed.model.bench_records import MedianTime
from wirespeed.model.field_types import (
    SPARSE,
    Bytes,
    Count,
    GBps,
    Micros,
    NotNegative,
    Seconds,
    Share,
)

Access = Literal["write", "read", "random read", "save", "load", "create", "stat", "open", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFigure:
    """One kind of access by all ranks at once, over some rounds."""

    access: Access
    """`write`, `read`: one large file a rank; `random read`: pieces of it; `save`, `load`: a
    checkpoint; `create`, `stat`, `open` (with reading), `remove`: small files."""
    engine: str
    """`own`, `fio` or `torch.distributed.checkpoint`."""
    ranks: Count
    """Ranks that took part at once."""
    size: Bytes[Count]
    """Of one rank in one round; 0 where no data are moved."""
    calls: Count
    """Of one rank in one round: what `latency` is of. A save or load is one call."""
    rate: GBps[MedianTime | None] = None
    """All ranks together: bytes of a round over the slowest rank's time; null without data."""
    per_s: MedianTime | None = None
    """Calls a second of all ranks together, by the slowest rank's time; null of large files."""
    latency: Micros[MedianTime]
    """Of one call: the middle rank's median, over the rounds."""
    p95: Micros[NotNegative]
    """95th percentile of the rank where it is highest, median of the rounds."""
    p99: Micros[NotNegative]
    """99th percentile, in the same way."""
    max: Micros[NotNegative]
    """The longest call of all ranks and rounds."""
    cached: Share = 0.0
    """Of what was read, the share that stood in the reader's page cache before, 0 to 1; the largest
    of all ranks and rounds."""
    slowest: Annotated[str, SPARSE] = ""
    """The node that took longest in most rounds; absent where there is one node."""
    slowest_ratio: Annotated[MedianTime | None, SPARSE] = None
    """Its time over the middle one of the other nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNode:
    """The folder as one node sees it."""

    host: str
    """The node."""
    filesystem: str
    """Its type as the kernel names it, such as `nfs4`."""
    source: str
    """What is mounted there, such as `server:/export`."""
    options: str
    """Options of the mount that say how it behaves, such as `hard` and `vers`."""
    direct: bool
    """Whether files are read and written past the page cache (O_DIRECT); else it is emptied of them
    before they are read."""
    total: Bytes[Count]
    """Size of the file system."""
    free: Bytes[Count]
    """What this user may still write there."""
    inodes: Count
    """Files that it can hold; 0 where it has no such limit."""
    free_inodes: Count
    """Files that can still be made."""
    quota: Bytes[Count | None] = None
    """What the quota leaves; null: none, or not known (`quota_unknown`)."""
    quota_unknown: Annotated[str, SPARSE] = ""
    """Why the quota could not be read."""

    same: bool | None = None
    """Whether it sees what the first node wrote; null: not looked at."""
    change_seen: Seconds[NotNegative | None] = None
    """Until a file that another node had written anew and closed showed it; null: not within 5 s."""
    name_seen: Seconds[NotNegative | None] = None
    """Until a new file of another node was there under a name looked for before; null: not within
    5 s."""

    @property
    def in_memory(self) -> bool:
        """Whether what it holds is the page cache itself."""
        return self.filesystem in ("tmpfs", "ramfs", "devtmpfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTrouble:
    """Something that went wrong on one rank."""

    kind: Literal["hung", "error", "wrong", "left", "skipped"]
    """`hung`: no answer; `error`: refused by the system; `wrong`: other data than were written;
    `left`: files that could not be removed; `skipped`: not the storage's fault."""
    rank: Count
    """Global rank."""
    host: str
    """Its node."""
    doing: str
    """What it did, such as `write`."""
    text: str
    """In words."""
    error: Annotated[str, SPARSE] = ""
    """Name of the error number, such as `ENOSPC`."""
    waited: Seconds[NotNegative] = 0.0
    """Without an answer."""
    where: Annotated[str, SPARSE] = ""
    """Where the kernel held it, such as `D in rpc_wait_bit_killable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What `check --data` saw of a folder."""

    folder: str
    """The folder."""
    nodes: tuple[StorageNode, ...] = ()
    """By first rank."""
    figures: tuple[StorageFigure, ...] = ()
    """What was measured."""
    troubles: tuple[StorageTrouble, ...] = ()
    """What went wrong; it ended what follows it."""
    refused: Annotated[str, SPARSE] = ""
    """Why nothing large was written: space or inodes are short."""
    compared: Bytes[Count] = 0
    """Bytes that were read back and compared with what was written."""
    removed: Count = 0
    """Folders that earlier runs, which were killed, had left there and this one removed."""
    complete: bool = False
    """Whether it came to its end."""
    model: Annotated[str, SPARSE] = ""
    """The model that figures are told for."""
    checkpoint: Bytes[Count] = 0
    """Of that model: parameters and AdamW's two moments in float32."""
    sample: Bytes[Count]
    """Of one small file, which stands for a sample."""
    needed_per_s: NotNegative = 0.0
    """Samples a second that the job reads; 0: not told."""
    needed_from: Annotated[str, SPARSE] = ""
    """Who says so: `--samples-per-s`, or a stored run of `train`."""

    def best(self, *accesses: Access) -> StorageFigure | None:
        """Of these the figure with the highest rate."""
        found = [one for one in self.figures if one.access in accesses and one.rate]
        return max(found, key=lambda one: one.rate.median if one.rate else 0.0, default=None)

    def checkpoint_s(self, access: Access) -> MedianTime | None:
        """Seconds for the model's checkpoint by the figures of `save` or `load`; None: not known."""
        one = self.best(access)
        if one is None or one.rate is None or not self.checkpoint or not one.rate.low:
            return None
        size, rate = self.checkpoint, one.rate
        return MedianTime(
            median=size / rate.median,
            low=size / rate.high,
            high=size / rate.low,
            samples=rate.samples,
        )
