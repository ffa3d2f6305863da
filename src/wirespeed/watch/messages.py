"""What an agent inside a rank tells: one JSON object a message. Who sends may be broken or hostile."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

MOST_BYTES = 4096
_LONGEST = 1 << 16
MOST_RANKS = 16384
MOST_SECONDS = 1e12

_Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
_Step = Annotated[int, Meta(ge=0, lt=1 << 48)]
_Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
_Bytes = Annotated[int, Meta(ge=0, lt=1 << 60)]
_Name = Annotated[str, Meta(max_length=255)]
_Row = Annotated[list[Annotated[int, Meta(ge=-1, lt=1 << 40)]], Meta(max_length=32)]


class Hello(Struct, tag_field="k", tag="hi", frozen=True):
    """Who a rank is; the first of each process."""

    rank: _Rank = field(name="r")
    world_size: Annotated[int, Meta(ge=1, le=MOST_RANKS)] = field(name="w")
    host: _Name = field(name="h")
    pid: int = field(name="p", default=0)
    versions: dict[_Name, _Name] = field(name="v", default_factory=dict)
    addresses: Annotated[list[_Name], Meta(max_length=64)] = field(name="a", default_factory=list)
    boundary: _Name = field(name="b", default="")
    unseen: Annotated[list[_Name], Meta(max_length=16)] = field(name="u", default_factory=list)
    device: _Name = field(name="d", default="")
    """`cuda`, or empty: CPUs."""


class StepRows(Struct, tag_field="k", tag="s", frozen=True):
    """Times of some steps in a row, as integers in units of 10 µs, in the order of `steps.COLUMNS`."""

    rank: _Rank = field(name="r")
    first: _Step = field(name="n")
    rows: Annotated[list[_Row], Meta(min_length=1)] = field(name="d")
    """-1, or a tail that is missing: not known. `load` is a count."""
    each: Annotated[int, Meta(ge=1, le=100_000)] = field(name="e", default=1)
    """Over how many steps each row is the mean."""
    begin_s: _Seconds = field(name="t", default=0.0)
    """Seconds since 1970 at which the first one began; 0: not told."""


class Links(Struct, tag_field="k", tag="n", frozen=True):
    """TCP connections: peer's address, busy seconds, bytes, round trip in seconds, retransmits."""

    rank: _Rank = field(name="r")
    step: _Step = field(name="s")
    seconds: _Seconds = field(name="o")
    links: Annotated[
        list[tuple[_Name, _Seconds, _Bytes, _Seconds, _Bytes]], Meta(max_length=64)
    ] = field(name="l")


class Use(Struct, tag_field="k", tag="m", frozen=True):
    """Resident memory, and seconds of all threads without a core in so many."""

    rank: _Rank = field(name="r")
    step: _Step = field(name="s")
    rss_bytes: _Bytes = field(name="rss")
    seconds: _Seconds = field(name="o", default=0.0)
    lacked_s: _Seconds = field(name="q", default=0.0)


class BadLoss(Struct, tag_field="k", tag="l", frozen=True):
    """The loss is no number since this step."""

    rank: _Rank = field(name="r")
    step: _Step = field(name="s")


class Places(Struct, tag_field="k", tag="pl", frozen=True):
    """Lines of the program that the rank was at most often: place, text, looks; since its begin."""

    rank: _Rank = field(name="r")
    looks: Annotated[int, Meta(ge=1, lt=1 << 40)] = field(name="of")
    places: Annotated[
        list[tuple[_Name, _Name, Annotated[int, Meta(ge=1, lt=1 << 40)]]], Meta(max_length=16)
    ] = field(name="l")


Message = Hello | StepRows | Links | Use | BadLoss | Places
_KINDS = frozenset(("hi", "s", "n", "m", "l", "pl"))
_decode = msgspec.json.Decoder(Message).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


def read_message(text: bytes | str) -> Message | dict[str, Any] | None:
    """None: malformed; a dict: of a kind (`k`) that is not ours."""
    if len(text) > MOST_BYTES:
        return None
    try:
        message: Message = _decode(text)
        return message
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return read_other(text)


def read_other(text: bytes | str) -> dict[str, Any] | None:
    """A message of a kind that is not ours, which may be longer; None: malformed, or one of ours."""
    if len(text) > _LONGEST:
        return None
    try:
        other = _decode_any(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    kind = other.get("k")
    return other if isinstance(kind, str) and kind not in _KINDS else None
