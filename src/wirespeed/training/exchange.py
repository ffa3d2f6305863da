"""What ranks tell each other beside their collectives: our own JSON, and tensors as plain bytes.

torch's `*_object*` collectives unpickle what another rank sends, and a pickle runs what its sender
likes. Here a rank's bytes are read strictly, against the shape that was asked for, and whatever is
wrong with them ends the run with the rank's name. Everything here is collective.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from reprlib import repr as shortened
from typing import Any, get_type_hints

import torch
import torch.distributed as dist

from wirespeed.errors import UsageError, WorldError

MOST_BYTES = 16 << 20
"""Of one rank's text, and of tensors that travel as one piece."""
_SLOT = 256
"""Bytes of each rank that the first round carries: its text's length, and how the text begins."""
_HEAD = 8
_ROOM = _SLOT - _HEAD
_PLAIN = (bool, int, float, str, type(None))
_DTYPES = {str(one): one for one in vars(torch).values() if isinstance(one, torch.dtype)}

Group = dist.ProcessGroup | None
_NOT_READ = (ValueError, TypeError, OverflowError, RuntimeError)
"""What reading a stranger's text can raise; RecursionError and torch's own are RuntimeErrors."""


def gathered(value: Any, shape: Any, group: Group, device: torch.device) -> list[Any]:
    """Every rank's value, by rank of the group (None: the world), each read as `shape` (`read`).

    One gather and one broadcast of 256 bytes a rank; ranks with more to say broadcast the rest, all
    at once. WorldError, on every rank alike: a text that is longer than 16 MiB, no JSON, or of
    another shape. The group's first rank passes the 256 bytes on and is believed in that.
    """
    text = json.dumps(value, default=_fields_of, separators=(",", ":")).encode()
    found = []
    for rank, theirs in enumerate(_texts(text, group, device)):
        try:
            found.append(read(shape, json.loads(theirs.decode())))
        except _NOT_READ as error:
            raise _refused(group, rank, str(error)) from error
    return found


def read(shape: Any, data: Any) -> Any:
    """What came as JSON, as that shape; ValueError where it is another.

    shape: str, int, bool, float (a finite one), bytes (sent as hexadecimal digits), a dataclass (sent
    as the list of its fields), [shape] (a list of any length), (shape, …) (a tuple of that length),
    object (whatever JSON holds).
    """
    if isinstance(shape, list) and isinstance(data, list):
        return [read(shape[0], one) for one in data]
    if isinstance(shape, tuple) and isinstance(data, list) and len(data) == len(shape):
        return tuple(read(kind, one) for kind, one in zip(shape, data, strict=True))
    if isinstance(shape, type) and is_dataclass(shape):
        hints = _hints(shape)
        return shape(**dict(zip(hints, read(tuple(hints.values()), data), strict=True)))
    if shape is float and type(data) in (int, float) and isfinite(data):
        return float(data)
    if shape is bytes and type(data) is str:
        return bytes.fromhex(data)
    if shape is object or (type(data) is shape and shape is not float):
        return data
    raise ValueError(f"{shortened(data)} where {_named(shape)} should be")


def gathered_states(
    state: Any, group: Group, device: torch.device, *, keeps: bool = True
) -> list[Any]:
    """Every rank's tree of dicts, lists, tuples, plain values and tensors, by rank of the group.

    One's own is the object itself, others' tensors are on the CPU. Tensors travel as bytes on
    `device`, in pieces of about 16 MiB, so that little more than the result is in memory. keeps:
    False on a rank that only takes part; what it gets has no values in its tensors.
    UsageError: the state holds what cannot travel. WorldError: what a rank sent is no such tree.
    """
    tensors: list[torch.Tensor] = []
    outlines = gathered(_outline(state, tensors), object, group, device)
    found = []
    for rank, outline in enumerate(outlines):
        own = rank == dist.get_rank(group)
        theirs: list[torch.Tensor] = []
        try:
            tree = state if own else _tree(outline, theirs, "cpu" if keeps else "meta")
        except _NOT_READ as error:
            raise _refused(group, rank, str(error)) from error
        for piece in _pieces(tensors if own else theirs):
            _pass(piece, rank, group, device, own=own, keeps=keeps)
        found.append(tree)
    return found


def _texts(text: bytes, group: Group, device: torch.device) -> list[bytes]:
    """Every rank's text; WorldError where one is too long."""
    ranks, me = dist.get_world_size(group), dist.get_rank(group)
    first = 0 if group is None else dist.get_global_rank(group, 0)
    row = len(text).to_bytes(_HEAD, "little") + text[:_ROOM].ljust(_ROOM, b"\0")
    every = torch.empty(ranks, _SLOT, dtype=torch.uint8, device=device)
    # Gather and broadcast take a third of all_gather's time on gloo (docs/benchmarks.md).
    dist.gather(_tensor(row, device), list(every) if me == 0 else None, dst=first, group=group)
    dist.broadcast(every, src=first, group=group)
    told = _bytes_of(every)
    heads = [told[start : start + _SLOT] for start in range(0, len(told), _SLOT)]
    sizes = [int.from_bytes(head[:_HEAD], "little") for head in heads]
    for rank, size in enumerate(sizes):
        if size > MOST_BYTES:
            raise _refused(group, rank, f"{size} bytes, where {MOST_BYTES} are the most")
    rests = {
        rank: torch.empty(size - _ROOM, dtype=torch.uint8, device=device)
        for rank, size in enumerate(sizes)
        if size > _ROOM
    }
    if me in rests:
        rests[me] = _tensor(text[_ROOM:], device)
    for work in [broadcast(rest, rank, group) for rank, rest in rests.items()]:
        work.wait()
    return [
        head[_HEAD : _HEAD + size] + (_bytes_of(rests[rank]) if rank in rests else b"")
        for rank, (head, size) in enumerate(zip(heads, sizes, strict=True))
    ]


def _outline(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The tree without its tensors, which are added to `tensors` in the order of the tree."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return ["tensor", str(value.dtype), list(value.shape)]
    if isinstance(value, dict):
        return ["dict", *([key, _outline(one, tensors)] for key, one in value.items())]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, *(_outline(one, tensors) for one in value)]
    if isinstance(value, _PLAIN):
        return value
    raise UsageError(
        f"the state holds a {type(value).__name__}, which cannot go to other ranks",
        expected="dicts, lists, tensors, numbers and texts",
    )


def _tree(outline: Any, tensors: list[torch.Tensor], device: str) -> Any:
    """The tree again, with new tensors on that device; ValueError where it is none."""
    match outline:
        case ["tensor", str(kind), [*sizes]] if kind in _DTYPES:
            shape = read([int], sizes)
            tensors.append(torch.empty(shape, dtype=_DTYPES[kind], device=device))
            return tensors[-1]
        case ["dict", *pairs]:
            pairs = [read((object, object), pair) for pair in pairs]
            if strange := [key for key, _ in pairs if type(key) not in (str, int)]:
                raise ValueError(f"{shortened(strange[0])} where a key should be")
            return {key: _tree(value, tensors, device) for key, value in pairs}
        case ["list", *rest]:
            return [_tree(one, tensors, device) for one in rest]
        case ["tuple", *rest]:
            return tuple(_tree(one, tensors, device) for one in rest)
    if isinstance(outline, _PLAIN):
        return outline
    raise ValueError(f"{shortened(outline)} where a tree of tensors should be")


def _pieces(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """In order, together at most 16 MiB; a larger one by itself."""
    piece: list[torch.Tensor] = []
    held = 0
    for tensor in tensors:
        if piece and held + tensor.nbytes > MOST_BYTES:
            yield piece
            piece, held = [], 0
        if tensor.nbytes:
            piece.append(tensor)
            held += tensor.nbytes
    if piece:
        yield piece


def _pass(
    piece: list[torch.Tensor],
    rank: int,
    group: Group,
    device: torch.device,
    *,
    own: bool,
    keeps: bool,
) -> None:
    """From the tensors of that rank into those of the others."""
    if own:
        parts = [_flat(tensor).to(device) for tensor in piece]
        sent = parts[0] if len(parts) == 1 else torch.cat(parts)
    else:
        sent = torch.empty(sum(t.nbytes for t in piece), dtype=torch.uint8, device=device)
    broadcast(sent, rank, group).wait()
    if keeps and not own:
        for tensor, part in zip(piece, sent.cpu().split([t.nbytes for t in piece]), strict=True):
            _flat(tensor).copy_(part)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes; of a contiguous one without a copy."""
    return tensor.reshape(-1).view(torch.uint8)


def _tensor(data: bytes, device: torch.device) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()


def _fields_of(value: Any) -> Any:
    """What JSON does not know of itself."""
    if isinstance(value, bytes):
        return value.hex()
    return [getattr(value, one.name) for one in fields(value)]


@cache
def _hints(shape: type) -> dict[str, Any]:
    return get_type_hints(shape)


def _named(shape: Any) -> str:
    if isinstance(shape, tuple):
        return f"a list of {len(shape)}"
    return "a list" if isinstance(shape, list) else f"a {shape.__name__}"


def _refused(group: Group, rank: int, why: str) -> WorldError:
    who = rank if group is None else dist.get_global_rank(group, rank)
    return WorldError(
        f"rank {who} sent what cannot be read: {why}",
        expected="JSON of the shape that is asked for: the same wirespeed on every rank, and nobody "
        "else in the job",
    )


def broadcast(tensor: torch.Tensor, rank: int, group: dist.ProcessGroup | None) -> dist.Work:
    """Begin to send it from that rank of the group (None: the world) to all others."""
    source = rank if group is None else dist.get_global_rank(group, rank)
    work: dist.Work = dist.broadcast(tensor, source, group=group, async_op=True)
    return work
