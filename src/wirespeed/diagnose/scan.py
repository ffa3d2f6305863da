"""The lines of a log that some rule wants to see, found at hundreds of megabytes a second.

All rules' anchors are searched at once in each block (Aho-Corasick); only lines that hold one are
decoded, stripped of their prefix and shown to the rules of those anchors.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from wirespeed.diagnose.prefix import ANCHORS, Blocks, Joined, Prefix, rank_in_name, strip
from wirespeed.diagnose.rule import Rule, most_specific
from wirespeed.diagnose.sources import Source, blocks

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick


_FACTS_READ = 20_000
"""Lines read for a rule that is general, only a fact, or a consequence; more are counted."""
_SAMPLE = 1 << 14
"""Bytes at the start and the end of a log of which every line is asked who wrote it."""
_SHOWN = 2000
"""Characters kept of a line."""
_LONG = 4000
_ENDLESS = re.compile(rb"\d{4000,}")
"""What is no number, and no reader of numbers takes for one."""
_AHEAD = 1 << 16
"""Bytes of the block that are given to who asks what follows a line, since copying it all is slow."""
_TAIL = 1 << 12
"""Bytes kept of the block before, for who asks what came before a line, and of the end of a log."""


@dataclass(frozen=True, slots=True)
class Line:
    """Where a line stands, and what is known of who wrote it."""

    source: str
    number: int
    text: str
    """Without prefixes, at most 2,000 characters."""
    order: int
    """Of all lines of all sources that were read, in reading order."""
    rank: int | None = None
    host: str | None = None
    gpu: int | None = None
    time: float | None = None
    clock: str = ""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.number}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a rule knows."""

    rule: Rule
    line: Line
    groups: dict[str, str]
    folded: bool = False
    """Whether a more specific rule of another category knows the line too."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Somebody who reads lines as they are written, for what no single line tells."""

    id: str
    anchors: tuple[str, ...]
    """As a rule's."""
    see: Callable[[bytes, str, int], None]
    """(line, log's name, its number); quick, since it may see hundreds of thousands."""


_MANY = 32 * 2**20
"""Bytes from which on a table of all states pays, which takes 40 ms to make, and another takes 7 ms."""


@lru_cache(maxsize=2)
def _search_for(anchors: tuple[bytes, ...], *, many: bool) -> "BytesAhoCorasick":
    """One automaton of all anchors, kept for who diagnoses again; many: for more than _MANY bytes."""
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    kind = Implementation.DFA if many else Implementation.ContiguousNFA
    return BytesAhoCorasick(anchors, implementation=kind)


_Reader = Rule | Watcher
_SUMMARIES = "torchrun's summaries"
_ZEROS = bytes(16)


class Scanner:
    """Reads sources; counts what it does not read."""

    def __init__(self, rules: Iterable[Rule], watchers: Iterable[Watcher] = ()) -> None:
        wanted: dict[bytes, list[_Reader]] = {}
        self._blocks = Blocks()
        summaries = Watcher(_SUMMARIES, ANCHORS, lambda raw, log, number: None)
        for watcher in (summaries, *watchers):
            for anchor in watcher.anchors:
                wanted.setdefault(anchor.lower().encode(), []).append(watcher)
        for rule in rules:
            for anchor in rule.anchors:
                wanted.setdefault(anchor.lower().encode(), []).append(rule)
        self._readers: Sequence[list[_Reader]] = list(wanted.values())
        self._anchors = tuple(wanted)
        self._search = _search_for(self._anchors, many=False)
        self.counts: Counter[str] = Counter()
        """Matched lines by rule's id, those that were only counted included."""
        self.ranks: set[int] = set()
        self.hosts: set[str] = set()
        """Who wrote a line at the start or the end of some log, of whatever it was."""
        self.broken: dict[str, str] = {}
        """Logs whose end is missing, and how that shows."""
        self.unended: dict[str, str] = {}
        """Logs whose last line has no end, and its beginning."""
        self.tails: dict[str, bytes] = {}
        """The last 4 KiB of each log."""
        self.ends: dict[str, int] = {}
        """Lines of each log; -1 for an archive of several."""
        self.lines = 0
        self.bytes = 0
        self._order = 0
        self._looked: Counter[str] = Counter()
        self._tail, self._block, self._at = b"", b"", 0

    def order(self) -> int:
        """Return the place of the line that a watcher sees now among all lines that hold an anchor."""
        return self._order

    def whose(self, log: str, number: int, prefix: Prefix) -> Prefix:
        """Return who wrote a line: as its prefix says, or the worker that torchrun's summary quotes."""
        return self._blocks.whose(log, number, prefix) or prefix

    def around(self) -> tuple[bytes, bytes]:
        """Of the line that a watcher sees now: what was read just before it, and it with what follows.

        At most some thousand bytes before, and 64 KiB from its beginning on.
        """
        before = self._block[max(0, self._at - _TAIL) : self._at]
        missing = _TAIL - len(before)
        return (self._tail[-missing:] if missing else b"") + before, self._block[
            self._at : self._at + _AHEAD
        ]

    def read(self, source: Source) -> Iterator[Hit]:
        """The hits of one log, in its order."""
        rank = rank_in_name(source.name)
        number, block, begun, tar, self._block = 1, b"", False, False, b""
        with closing(source.open()) as stream:
            for block in blocks(stream):
                if not begun:
                    self._note_writers(block[:_SAMPLE])
                    tar = block[257:262] == b"ustar"
                begun = True
                yield from self._in_block(source.name, block, number, rank)
                number += block.count(b"\n")
                self.bytes += len(block)
                if self.bytes > _MANY:
                    self._search = _search_for(self._anchors, many=True)
        if broke_off := stream.broke_off or ("" if tar else _zeros(block)):
            self.broken[source.name] = f"line {number}: {broke_off}"
        self.tails[source.name] = block[-_TAIL:]
        if block and not block.endswith(b"\n"):
            last = block[block.rfind(b"\n") + 1 :][:80]
            self.unended[source.name] = last.decode("utf-8", "replace")
        for summary in self._blocks.rest():
            yield from self._of_joined(source.name, rank, summary)
        self._note_writers(block[-_SAMPLE:])
        if rank is not None:  # with an empty log it is one that says nothing
            self.ranks.add(rank)
        self.lines += number - 1
        self.ends[source.name] = -1 if tar else number - 1

    def _note_writers(self, sample: bytes) -> None:
        for line in sample.split(b"\n")[1:-1]:
            prefix = strip(line[:_SHOWN].decode("utf-8", "replace"))
            if prefix.rank is not None:
                self.ranks.add(prefix.rank)
            if prefix.host is not None:
                self.hosts.add(prefix.host)

    def _in_block(self, name: str, block: bytes, first: int, rank: int | None) -> Iterator[Hit]:
        self._tail, self._block = self._block[-_TAIL:], block
        found = self._search.find_matches_as_indexes(block.lower(), overlapping=True)
        if not found:
            return
        at, number = 0, first
        end = -1
        wanted: dict[str, _Reader] = {}
        for index, start, _ in sorted(found, key=lambda one: one[1]):
            if start >= end:
                if wanted:
                    self._at = at
                    yield from self._of_line(name, block[at:end], number, rank, wanted)
                begin = block.rfind(b"\n", 0, start) + 1
                number += block.count(b"\n", at, begin)
                at = begin
                end = block.find(b"\n", start)
                end = len(block) if end < 0 else end
                wanted = {}
            for reader in self._readers[index]:
                wanted[reader.id] = reader
        if wanted:
            self._at = at
            yield from self._of_line(name, block[at:end], number, rank, wanted)

    def _of_line(
        self,
        name: str,
        raw: bytes,
        number: int,
        rank: int | None,
        known: dict[str, _Reader],
    ) -> Iterator[Hit]:
        self._order += 1
        if len(raw) > _LONG:
            raw = _ENDLESS.sub(b"?", raw)
        if _SUMMARIES in known:
            prefix = strip(raw.decode("utf-8", "replace"))
            taken = self._blocks.take(name, number, prefix)
            if isinstance(taken, Joined):
                yield from self._of_joined(name, rank, taken)
            if taken:
                return
        wanted: list[Rule] = []
        for one in known.values():
            if not isinstance(one, Rule):
                one.see(raw, name, number)
            elif self._is_enough(one):
                self.counts[one.id] += 1
            else:
                wanted.append(one)
        if wanted:
            prefix = strip(raw.decode("utf-8", "replace"))
            yield from self._shown_to(wanted, name, number, rank, prefix)

    def _of_joined(self, name: str, rank: int | None, block: Joined) -> Iterator[Hit]:
        """A torchrun block as one line; other failures than the root cause are no causes."""
        self._order += 1
        found = self._search.find_matches_as_indexes(block.text.lower().encode(), overlapping=True)
        rules = {
            one.id: one
            for index, _, _ in found
            for one in self._readers[index]
            if isinstance(one, Rule) and (block.root or one.role == "consequence")
        }
        yield from self._shown_to(
            rules.values(), name, block.number, rank, block.prefix, block.text
        )

    def _shown_to(
        self,
        rules: Iterable[Rule],
        name: str,
        number: int,
        rank: int | None,
        prefix: Prefix,
        text: str = "",
    ) -> Iterator[Hit]:
        seen = text or prefix.text
        matched: list[tuple[Rule, dict[str, str]]] = []
        for rule in rules:
            self._looked[rule.id] += 1
            groups = rule.match(seen)
            if groups is not None:
                self.counts[rule.id] += 1
                matched.append((rule, groups))
        if not matched:
            return
        line = self._line(name, number, rank, prefix, seen)
        winner = most_specific([rule for rule, _ in matched], seen) if len(matched) > 1 else None
        for rule, groups in matched:
            loses = winner is not None and not rule.general and rule.role in ("cause", "symptom")
            folded = loses and winner is not None and rule.category != winner.category
            yield Hit(rule, line, groups, folded)

    def _line(self, name: str, number: int, rank: int | None, prefix: Prefix, text: str) -> Line:
        whose = self._blocks.whose(name, number, prefix) or prefix
        return Line(
            source=name,
            number=number,
            text=text[:_SHOWN],
            order=self._order,
            rank=rank if whose.rank is None else whose.rank,
            host=whose.host,
            gpu=prefix.gpu,
            time=prefix.time,
            clock=prefix.clock,
        )

    def _is_enough(self, rule: Rule) -> bool:
        most = rule.most or _FACTS_READ
        bounded = rule.general or rule.role in ("fact", "consequence")
        return bounded and self._looked[rule.id] >= most


def _zeros(block: bytes) -> str:
    """A file system that lost its last writes leaves zeros."""
    crashed = "it ends in zero bytes, as after a crash of the machine"
    return crashed if block.endswith(_ZEROS) else ""
