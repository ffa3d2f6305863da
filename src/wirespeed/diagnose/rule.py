"""What a rule is: which lines it knows, and what they mean.

A rule is data: the fields are the keys of a rules file (`rules/FAMILY.yaml`). It sees one line at a
time, without the launcher's prefix, the time and colours, and only lines that hold one of its anchors.
What needs several lines is a rule that `needs` others.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

Role = Literal["cause", "symptom", "consequence", "fact"]
Confidence = Literal["certain", "likely", "possible"]
Stage = Literal["machine", "setup", "program", "network", "wait", "aftermath"]
_ALTERNATIVE = "__"
"""Stands before the number of a group that fills another group's name."""
Id = Annotated[str, Meta(pattern="^[A-Z][A-Z0-9]*-[0-9]{3}$")]


class Rule(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, dict=True
):
    """One thing that logs tell."""

    id: Id
    """Family and number, such as `NCCL-012`; it never changes its meaning."""
    category: str
    """Kind of trouble, such as `shm-too-small`; several rules may share it."""
    role: Role
    """`cause`: explains the failure by itself. `symptom`: something is wrong, and not why: without
    a cause the answer is "cannot tell" with the rule's `checks`. `consequence`: follows from
    somebody else's end. `fact`: worth knowing, raises nothing (transports, versions, settings;
    also what other rules need)."""
    stage: Stage = "setup"
    """How early in causality, in this order: a broken or withdrawn machine or process (Xid, OOM
    kill); how the job was set up (interface, DNS, limits, versions, launcher); the program's own
    error (an exception, ranks that call different collectives); data that do not arrive;
    somebody who waited too long; what follows when others are gone. Of several causes the
    earlier stage explains the later."""
    confidence: Confidence = "likely"
    """`certain`: the line can mean nothing else. `likely`: it nearly always means this. `possible`: it
    may mean this or something else, so the rule suggests its cause and never names it."""
    unproven: bool = False
    """Nothing cited shows yet that the message means this. Such a rule suggests its cause and never
    names it."""
    proof: str = ""
    """What shows that the message exists and means this: a public log (`NVIDIA/nccl#426`), or the
    program, its version and the file that prints it (`NCCL 2.28.9 src/transport/net_ib.cc`)."""
    anchors: tuple[str, ...] = ()
    """Plain texts, compared without case; a line that holds none is never looked at. Choose rare
    ones of 5 characters or more: they decide how fast logs are read."""
    pattern: str = ""
    """Regular expression searched in the line, without case. Its named groups fill `{name}` in the
    texts below; group names `rank`, `host`, `gpu` tell who it is about where the prefix does not.
    Alternatives fill one name by `path`, `path__2`, `path__3`."""
    unless: str = ""
    """Regular expression: a line that matches it does not count."""
    needs: tuple[str, ...] = ()
    """Ids of rules that must have hit somewhere in the same job too. A rule without a pattern hits
    when all these have."""
    absent: tuple[str, ...] = ()
    """Ids of rules that must not have hit in the same job."""
    until: tuple[str, ...] = ()
    """Ids of rules that tell that it ended well: lines before those, of the same pod, do not count."""
    general: bool = False
    """A meaning for a whole family of texts: it stands back where a rule of its own knows the same
    line, and follows where one names a cause."""
    header: bool = False
    """Of a symptom: the line announces what another tool printed, which follows it. What looks wrong
    there is the cause, and this line is not."""
    of_site: bool = False
    """It is of the user's own files: where another rule knows the same line, it speaks. Set as they are
    read."""
    ends: bool = False
    """Whether other rules name this one in `until`."""
    least: int = 1
    """Lines that must have matched."""
    most: int = 0
    """Of a fact: lines that are read for it; more are counted. 0: the reader's own bound."""
    alike: bool = False
    """Of a fact: every rank of a job should say the same; who says otherwise is named."""
    last: bool = False
    """Of a fact: its last line in each log is kept, for how the log ends."""
    derive: str = ""
    """For what no single line shows: which function of `derived.py` makes this rule's hits from those
    of the rules that it needs."""
    sentence: str
    """The cause in one sentence that names what was seen: `{name}` from the pattern."""
    because: str = ""
    """Why this line proves it, or what usually is behind it."""
    costs: str = ""
    """What the job loses by it."""
    fix: str = ""
    """What to do, with the setting or command."""
    next: str = ""
    """One command that would confirm it."""
    checks: tuple[str, ...] = ()
    """For a symptom: what to check, the most frequent cause first, each naming its remedy."""
    explains: tuple[str, ...] = ()
    """Ids or categories of other rules, of any stage, whose hits are consequences of this one."""
    links: tuple[str, ...] = ()
    """Public documentation."""
    positive: tuple[str, ...] = ()
    """Lines that hit."""
    negative: tuple[str, ...] = ()
    """Lines much like it that do not."""

    @property
    def suggests(self) -> bool:
        """Return whether it only suggests its cause: it is unproven, or the line may mean more."""
        return self.unproven or self.confidence == "possible"

    @cached_property
    def compiled(self) -> re.Pattern[str] | None:
        return re.compile(self.pattern, re.IGNORECASE) if self.pattern else None

    @cached_property
    def exception(self) -> re.Pattern[str] | None:
        return re.compile(self.unless, re.IGNORECASE) if self.unless else None

    def match(self, text: str) -> dict[str, str] | None:
        """The named groups (those that took part) where `text` is one of its lines, else None."""
        found = self.compiled.search(text) if self.compiled else None
        if found is None or (self.exception and self.exception.search(text)):
            return None
        told = {name: value for name, value in found.groupdict().items() if value is not None}
        return {name.partition(_ALTERNATIVE)[0]: value for name, value in told.items()}


def most_specific(rules: Sequence[Rule], text: str) -> Rule | None:
    """Return the rule that says most of a line, of causes and symptoms that are not general.

    A user's own rule comes first, then who explains another, names a cause, is surer, or has the
    longer anchor there.
    """
    speaking = [one for one in rules if one.role in ("cause", "symptom") and not one.general]
    low = text.lower()

    def rank(rule: Rule) -> tuple[bool, bool, bool, int, int]:
        others = {other.category for other in speaking} | {other.id for other in speaking}
        explains = bool((others - {rule.category, rule.id}) & set(rule.explains))
        sure = ("possible", "likely", "certain").index(rule.confidence)
        longest = max((len(anchor) for anchor in rule.anchors if anchor.lower() in low), default=0)
        return rule.of_site, explains, rule.role == "cause", sure, longest

    return max(speaking, key=rank, default=None)


class Fault(NamedTuple):
    """What is wrong with one key of a rule."""

    key: str
    saw: str
    expected: str
