"""One rank's dump of torch's flight recorder, from a pickle or JSON, whatever its file is called."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from wirespeed.diagnose.flight_pickle import plain
from wirespeed.diagnose.prefix import rank_in_name
from wirespeed.diagnose.sources import MAGIC, Source
from wirespeed.errors import InputError

T = TypeVar("T")

_LARGEST = 64 << 20
_RING = 1 << 18
"""Entries of one rank's ring."""
_SHOWN = 4
_MOST = 256
"""Inputs of one collective, and dimensions of each, that are looked at."""
WINDOW = 64
"""Collectives of each group, the newest ones, that ranks are compared in."""
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
_NUMBER = re.compile(r"(\d+)(?:\.\w{1,6}){0,2}$")
TRANSFER = re.compile(r"(?:send|recv) (\d+)(?:->|<-)(\d+)")


class Group(NamedTuple):
    """A process group: descriptions repeat, names may, both with the ranks do not."""

    backend: str
    """`nccl`, `gloo`: each numbers its own collectives."""
    name: str
    desc: str
    ranks: str
    """As `pg_config` writes them, such as `[0, 1]`; empty where it does not tell."""

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks in the group's order; empty: not told."""
        return _numbers(self.ranks)

    @property
    def title(self) -> str:
        known = self.desc not in ("", "undefined")
        return f"{self.desc} ({self.name})" if known and self.desc != self.name else self.name


class What(NamedTuple):
    """What a collective is; the same object for all that are alike."""

    name: str
    """`nccl:all_reduce`."""
    sizes: tuple[tuple[int, ...], ...] | None
    """Of the inputs; None: not told as torch does."""
    dtypes: str

    @property
    def op(self) -> str:
        return self.name.rpartition(":")[2]

    @property
    def title(self) -> str:
        if self.sizes is None:
            return self.name
        each = [str(list(one)) for one in self.sizes[:_SHOWN]]
        more = ", …" if len(self.sizes) > _SHOWN else ""
        return f"{self.name} " + (each[0] if len(self.sizes) == 1 else f"[{', '.join(each)}{more}]")


class Call:
    """One collective as one rank recorded it."""

    __slots__ = ("created", "done", "doubtful", "many", "place", "seq", "state", "what")

    def __init__(
        self, seq: int, what: What, entry: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.seq = seq
        self.what = what
        state = entry.get("state")
        ended = state == "completed" or bool(entry.get("time_discovered_completed_ns"))
        self.done = ended or bool(entry.get("retired"))
        self.doubtful = self.done and not ended
        """Over, and whether well is not said: gloo retires a collective that failed, too."""
        self.many = False
        """Whether several entries have this number (coalesced calls)."""
        self.state = "completed" if ended else "retired" if self.done else _text(state or "open")
        self.created = 0 if ended else int(entry.get("time_created_ns") or 0)
        """When it was issued, ns since 1970; 0: not told, or it is over."""
        place = entry.get("record_id")
        self.place = place if isinstance(place, int) else -1
        """How many calls its rank recorded before it; -1: not told."""

    @property
    def title(self) -> str:
        return self.what.title


Calls = Mapping[int, Mapping[int, Call]]
"""Of one group: by rank and number."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """An open send or receive."""

    group: Group
    peer: int
    """Global rank where the group's ranks are told; -1: unknown, as of a batch."""
    sends: bool
    text: str
    place: int = -1
    """How many calls its rank recorded before it; -1: not in the dump."""


class Reach(NamedTuple):
    """The newest calls that a rank issued and completed in one group, as its dump counts them."""

    issued: int
    completed: int


@dataclass(slots=True)
class Dump:
    """What one rank recorded, by process group and sequence number."""

    source: str
    rank: int
    sure: bool
    """Whether the file or its content tells the rank; else it is a number in reading order."""
    groups: dict[Group, dict[int, Call]] = field(default_factory=dict)
    kinds: dict[Group, str] = field(default_factory=dict)
    """What tells groups of one kind on all ranks: the description, else the place in the rank's list."""
    transfers: list[Transfer] = field(default_factory=list)
    told: tuple[Group, ...] = ()
    """The groups that the rank is a member of, as far as the dump tells."""
    pending: bool = False
    """Whether its status counts work that is enqueued and not completed."""
    newest: int = 0
    """When its last collective was issued, ns since 1970; 0: nothing is recorded."""
    issued: int = 0
    """Calls that it recorded, those that the ring lost too."""
    bare: bool = False
    """Without any list of collectives."""
    pipelines: set[Group] = field(default_factory=set)
    """Groups of its recorded sends and receives, those that are over too."""
    reached: dict[Group, Reach] = field(default_factory=dict)
    """NCCL's groups by `pg_status`, those without a recorded call too.

    The counts of a group with sends and receives are of these, and are left out where the dump shows it.
    """


def read_dump(source: Source, number: int) -> Dump:
    """The dump; `number` is its rank where neither its name nor its content tells one.

    Raises InputError where it is no such dump, is damaged, or would run a program.
    """
    return decoded(source, lambda known: _dump(known, source.name, number))


def decoded(source: Source, use: Callable[[Mapping[str, Any]], T]) -> T:
    """What `use` makes of the dump's content. Raises InputError as `read_dump` does."""
    try:
        data = b"".join(source.parts(_LARGEST + 1))
        if len(data) > _LARGEST:
            size = f"{source.name} is larger than {_LARGEST >> 20} MiB"
            raise InputError(size, expected="a rank's dump")
        known = plain(data) if data[:2] in MAGIC else json.loads(data)
        if isinstance(known, list):  # the first versions hold nothing else
            known = {"entries": known}
        return use(known)
    except _DAMAGE as error:
        raise _unreadable(source.name, error) from error


def dump_of(data: Mapping[str, Any], name: str, number: int) -> Dump:
    """The dump that these data are; name: what tells where they are from, and maybe the rank.

    Raises InputError as `read_dump`.
    """
    try:
        return _dump(data, name, number)
    except _DAMAGE as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> InputError:
    cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip()) - 1
    return InputError(
        f"{name} is no dump of the flight recorder that can be read: "
        + ("it breaks off" if cut else str(error)[:200]),
        expected='a dict with "entries", as torch\'s flight recorder writes it, as a pickle of '
        "plain data or JSON",
        next="copy it again from its node; a job that is killed while it dumps leaves half a file",
    )


def _dump(data: Mapping[str, Any], source: str, number: int) -> Dump:
    entries = data.get("entries")
    config = data.get("pg_config") or {}
    if entries is None and "pg_status" not in data:
        raise KeyError('no "entries"')
    if not isinstance(entries or [], list) or len(entries or []) > _RING:
        raise TypeError(f"entries is no list of up to {_RING}")
    groups = _told(config)
    rank, sure = _rank(data, source, tuple(groups.values()), number)
    dump = Dump(source, rank, sure, told=tuple(groups.values()), bare=entries is None)
    _fill(dump, entries or [], groups)
    if not any(group.backend == "gloo" for group in dump.groups):  # whose counts lag and go back
        status = data.get("pg_status") or {}
        dump.pending = any(_is_pending(one) for one in status.values())
        if "nccl_version" in data:
            dump.reached = _reached(status, groups, entries or [])
    return dump


def _reached(
    status: Mapping[str, Any], groups: Mapping[str, Group], entries: list[Any]
) -> dict[Group, Reach]:
    """Return the counts by group; none where nothing shows which count is of which group.

    `pg_status` has the rank's own number of a group, `pg_config` the name that all ranks give it. Both
    rise as groups are made, so the n-th of one is the n-th of the other, if no call contradicts that.
    """
    numbered = all(_text(one).isdecimal() for one in (*status, *groups))
    if len(status) != len(groups) or not numbered:
        return {}
    number_of = dict(zip(sorted(groups, key=int), sorted(status, key=int), strict=True))
    calls = [(_text((entry.get("process_group") or ("",))[0]), entry) for entry in entries]
    if any(number_of.get(name) != _text(entry.get("pg_id", "")) for name, entry in calls):
        return {}
    transfers = {name for name, entry in calls if entry.get("is_p2p")}
    newest: dict[str, int] = {}
    for name, entry in calls:
        newest[name] = max(newest.get(name, -1), int(entry.get("collective_seq_id", -1)))
    found = {}
    for name, number in number_of.items():
        issued = int(status[number].get("last_enqueued_collective", -1))
        completed = int(status[number].get("last_completed_collective", -1))
        counts_calls = name not in transfers and newest.get(name, issued) == issued
        if counts_calls and 0 <= completed <= issued:
            found[groups[name]._replace(backend="nccl")] = Reach(issued, completed)
    return found


def _told(config: Mapping[str, Any]) -> dict[str, Group]:
    """By name; torch without NCCL writes one without a name and ranks."""
    found = {}
    for name, one in config.items():
        ranks = one.get("ranks", "") if isinstance(one, dict) else ""
        ranks = ranks if isinstance(ranks, str) else json.dumps(ranks)
        if name and _numbers(ranks):
            found[_text(name)] = Group("", _text(name), _text(one.get("desc") or ""), ranks)
    return found


@lru_cache(maxsize=1 << 14)
def _numbers(ranks: str) -> tuple[int, ...]:
    return tuple(int(rank) for rank in json.loads(ranks)) if ranks else ()


def _rank(
    data: Mapping[str, Any], name: str, groups: tuple[Group, ...], number: int
) -> tuple[int, bool]:
    """From its content, else the only rank that is in all of its groups, else its file's name."""
    told = data.get("rank")
    if isinstance(told, int) and told >= 0:
        return told, True
    members = [set(one.members) for one in groups]
    common = set[int].intersection(*members) if members else set()
    if len(common) == 1:
        return common.pop(), True
    named = rank_in_name(name)
    if named is None and (match := _NUMBER.search(Path(name).name)):
        named = int(match[1])
    if named is not None and (not common or named in common):
        return named, True
    return number, False


def _is_pending(status: Mapping[str, Any]) -> bool:
    last = int(status.get("last_enqueued_collective", -1))
    return last > max(int(status.get("last_completed_collective", last)), 0)


def _text(value: object) -> str:
    """Of a text or number; lists in lists without end have none."""
    if isinstance(value, str):
        return value[:80]
    return str(value) if isinstance(value, int) else "?"


def _fill(dump: Dump, entries: list[Any], told: Mapping[str, Group]) -> None:
    """From the newest entry back: of each group a window is kept, and all that is open."""
    known: dict[tuple[str, str], tuple[Group, dict[int, Call]]] = {}
    for entry in reversed(entries):
        named = entry.get("process_group") or (entry.get("pg_name", entry.get("pg_id", 0)),)
        name, what = _text(named[0]), _text(entry.get("profiling_name", "a collective"))
        backend = what.partition(":")[0] if ":" in what else ""
        place = known.get((backend, name))
        if place is None:
            group = _group(
                backend, name, _text(named[-1]) if len(named) > 1 else "", told.get(name)
            )
            described = group.desc if group.desc != "undefined" else ""
            dump.kinds[group] = f"{backend}:{described or _text(entry.get('pg_id', ''))}"
            place = known[backend, name] = (group, {})
        group, calls = place
        if entry.get("is_p2p"):
            dump.pipelines.add(group)
            _add_transfer(dump, group, entry, what)
        elif len(calls) < WINDOW or not _is_over(entry):
            _add_call(calls, entry, what)
        dump.issued = max(dump.issued, int(entry.get("record_id", -1)) + 1)
        dump.newest = max(dump.newest, int(entry.get("time_created_ns") or 0))
    dump.groups = {group: calls for group, calls in known.values() if calls}


def _is_over(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _add_call(calls: dict[int, Call], entry: Mapping[str, Any], name: str) -> None:
    seq = int(entry.get("collective_seq_id", entry.get("seq_id", entry.get("record_id"))))
    call = Call(seq, _as_told(name, entry.get("input_sizes"), entry.get("input_dtypes")), entry)
    if (other := calls.get(seq)) is not None:
        call.many, call.done = True, call.done and other.done
    calls[seq] = call


def _as_told(name: str, sizes: object, types: object) -> What:
    """Lists in lists without end are not followed: what is not as torch writes it is left out."""
    try:
        if isinstance(sizes, list) and max(map(len, [sizes, *sizes])) <= _MOST:
            some = tuple(types[:_SHOWN]) if isinstance(types, list) else ()
            return _what(name, tuple(map(tuple, sizes)), some)
    except TypeError:  # no lists of numbers
        pass
    return _what(name, None, ())


@lru_cache(maxsize=1 << 14)
def _what(
    name: str, sizes: tuple[tuple[object, ...], ...] | None, types: tuple[object, ...]
) -> What:
    told = None
    if sizes and all(isinstance(size, int) for one in sizes for size in one):
        told = tuple(tuple(size for size in one if isinstance(size, int)) for one in sizes)
    return What(name, told, ",".join(one[:20] for one in types if isinstance(one, str)))


def _group(backend: str, name: str, desc: str, told: Group | None) -> Group:
    if told is None:
        return Group(backend, name[:80], desc[:80], "")
    return told._replace(backend=backend, desc=told.desc or desc[:80])


def _add_transfer(dump: Dump, group: Group, entry: Mapping[str, Any], what: str) -> None:
    if Call(0, What(what, None, ""), entry).done:
        return
    match = TRANSFER.search(what)
    members = group.members
    peer = int(match[2]) if match else -1
    if members and match:
        peer = members[peer] if peer < len(members) else -1
    place = entry.get("record_id")
    place = place if isinstance(place, int) else -1
    dump.transfers.append(Transfer(group, peer, "send" in what, what[:80], place))
