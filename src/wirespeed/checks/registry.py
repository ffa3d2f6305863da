"""Every finding: its id, what it asks, and what `--explain` says.

A check is data in findings.yaml and a function in its family's file, which turns records into findings.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from wirespeed.checks.settings import settings_told
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.compiled import Compiled
from wirespeed.errors import UsageError
from wirespeed.model.finding_texts import FindingText
from wirespeed.model.records import Finding, NodeFacts, Subject
from wirespeed.model.units import counted


class Bound(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """So many, and of the traffic or of the time such a part."""

    count: int
    rate: float = 0.0
    """By what the rule asks for."""


class CounterRule(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Some counters of one kind of device, and when their growth is a fault."""

    kind: str
    """First word of the device: `RDMA`, `interface`, `NVLink`, `GPU` or `TCP`."""
    names: tuple[str, ...]
    """Regular expressions."""
    per: Literal["second", "packet", "time"] = "second"
    """What the rate is told by: `packet` of the device, `second`, or `time`: microseconds paused."""
    less: str = ""
    """A counter of those among them that were no fault."""
    warn: Bound | None = None
    fail: Bound | None = None
    busy: int = 0
    """Fewer packets of the device during the traffic, and a failure is a warning: it was not in use."""


class Fact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that should be equal on all nodes."""

    name: str
    """What it is called in a sentence, such as `CPU model`."""
    key: str
    """The fact's name, also in `NodeFacts.unknown` for the reason why it is not known; of a device
    its last part is the device's field."""
    of: Literal["facts", "gpus", "nics", "ports", "active ports", "environment"] = "facts"
    status: Literal["warn", "fail"] = "warn"
    tolerance: float = 0.0
    """Numbers this share apart count as equal."""
    costs: str = ""
    """Empty: what the finding always says; so is `fix`."""
    fix: str = ""


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is always said of a finding; what depends on figures is said by its function."""

    role: Literal["", "hung", "slow", "broken"] = ""
    """Of a watched job: what a failure says of it: it hangs, it is slow, or its training is broken."""
    part: str = ""
    """Of a watched job: the part of a step that takes the time, where no rank is to blame."""
    about: str = ""
    """What it looks at, where that could not be checked."""
    good: str = ""
    """What is so where nothing is wrong."""
    expected: str = ""
    because: str = ""
    costs: str = ""
    fix: str = ""
    next: str = ""

    fixes: dict[str, str] = {}
    """By what was seen, such as an error code, in place of `fix`; `else`: of all others."""
    costs_of: dict[str, str] = {}
    """The same in place of `costs`."""
    cases: dict[str, FindingText] = {}
    """What is said in one case, by the name that the code gives it, beside what is always said."""
    counters: tuple[CounterRule, ...] = ()
    """Of error counters: which grow where there is a fault."""
    facts: tuple[Fact, ...] = ()
    """Of nodes that should be alike: what is compared."""


About = Literal["job", "node", "device", "traffic"]
"""What a failed finding that names a node says of it. `job`: nothing, since a program, its settings or
somebody's wish may have done it. `node`: how it is, as it looks by itself. `device`: what its devices
do at work. `traffic`: what it does at work together with others: data, speed, links."""


class NodeRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rule for a node's state: what a finding is about, and what clears it."""

    about: About = "job"
    cleared_by: tuple[str, ...] = ()
    """Ids, or prefixes of ids, that look at the same thing: who is judged by one of them and named by
    none is cleared. Empty: the finding itself."""
    not_cleared_with: tuple[str, ...] = ()
    """Ids that must not be unchecked in the run that clears it."""
    look_again: str = ""
    """The command that clears it; empty: `wirespeed check --only ID`."""


class Check(Words, frozen=True):
    id: str
    family: str
    title: str
    explanation: str
    of_node: NodeRule = NodeRule()

    @property
    def words(self) -> dict[str, str]:
        """Fields of a finding that are always the same."""
        return {name: getattr(self, name) for name in ("expected", "because", "costs", "fix")}

    def fix_of(self, code: int) -> str:
        return self.fixes.get(str(code), self.fixes["else"])

    def finding(self, case: str, **values: Any) -> Finding:
        """That case's, as `FindingText.finding` makes it; what is wrong has the words of all cases."""
        text = self.cases[case]
        wrong = values.get("status", text.status) in ("warn", "fail")
        common = {**self.words, "next": self.next} if wrong else {}
        missing = {name: said for name, said in common.items() if not getattr(text, name)}
        return replace(text, id=self.id, **missing).finding(**values)


class _Text(Words, frozen=True):
    explanation: str
    title: str = ""
    of_node: NodeRule | None = None
    """None: that of its group."""


class _Group(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Findings of one family; or one for each collective or setting, whose text is a template."""

    family: str
    of_node: NodeRule
    listed: bool = False
    findings: dict[str, _Text] = {}
    each: Literal["", "COL", "LAT", "BW", "ENV"] = ""
    explanation: str = ""
    title: str = ""
    cases: dict[str, FindingText] = {}


def check_id(prefix: str, op: str) -> str:
    """`COL-001` for all_reduce and so on."""
    return f"{prefix}-{CATALOGUE[op].number:03d}"


def _read(texts: Mapping[str, bytes]) -> list[_Group]:
    from wirespeed.yaml_tree import data_of

    return convert(data_of(texts["findings.yaml"]), list[_Group], strict=False)


TEXTS = Compiled(Path(__file__).parent, "findings.yaml", "findings.json", list[_Group], _read)


def _checks(group: _Group) -> Iterator[Check]:
    for id, text in group.findings.items():
        words = asdict(text) | {
            "title": text.title or _first(text.explanation),
            "of_node": text.of_node or group.of_node,
        }
        yield Check(id=id, family=group.family, **words)
    if group.each == "ENV":
        for rule in settings_told().rules:
            advice = group.explanation.format(**asdict(rule))
            yield Check(
                id=rule.id,
                family=group.family,
                title=_first(advice),
                explanation=advice,
                of_node=group.of_node,
            )
    elif group.each:
        for op, known in CATALOGUE.items():
            if group.each == "LAT" or known.has_data:
                yield Check(
                    id=check_id(group.each, op),
                    family=group.family,
                    title=group.title.format(op=op),
                    explanation=group.explanation.format(op=op),
                    cases=group.cases,
                    of_node=group.of_node,
                )


def _first(text: str) -> str:
    """Its first sentence, without its capital, unless that belongs to the word, as in `GPUs`."""
    sentence = text.split(". ")[0].rstrip(".")
    return sentence if sentence[1:2].isupper() else sentence[0].lower() + sentence[1:]


_GROUPS = TEXTS.load()
CHECKS: dict[str, Check] = {
    check.id: check for group in _GROUPS if group.listed for check in _checks(group)
}
"""What `check` can give, by id: what `--list` shows and `--only` selects from."""
OF_LOGS: dict[str, Check] = {
    check.id: check for group in _GROUPS if group.family == "logs" for check in _checks(group)
}
"""What `diagnose` gives beside its rules, which explain themselves."""
EXPLAINED: dict[str, Check] = CHECKS | {
    check.id: check
    for group in _GROUPS
    if not group.listed and group.family != "logs"
    for check in _checks(group)
}
"""Also what the other verbs give: every id that a view of theirs can show."""


def select(wanted: str) -> set[str]:
    """Ids from `COL-001,latency,BW`: ids, prefixes or families; UsageError names what is unknown."""
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        matches = {
            id
            for id, check in CHECKS.items()
            if word.upper() in (id, id.split("-")[0]) or word.lower() == check.family
        }
        if not matches:
            families = sorted({check.family for check in CHECKS.values()})
            raise UsageError(
                f"no check is called {word!r}",
                expected="an id such as COL-001, a prefix such as COL, or one of the families "
                + ", ".join(families),
                next="wirespeed check --list",
            )
        chosen |= matches
    return chosen


_FROM_FACTS = ("nodes", "placement", "settings")
"""Families whose checks read nothing but what each node tells of itself."""


def facts_suffice(only: Collection[str]) -> bool:
    """Whether the checks of these ids need neither torch nor a process group; none selected: no."""
    return bool(only) and all(CHECKS[id].family in _FROM_FACTS for id in only)


# How a check becomes findings; of each node by itself: one a faulty node, else one for all.


_MOST_EVIDENCE = 12


@dataclass(frozen=True, slots=True)
class Blind:
    """A node on which something was not checked."""

    because: str
    applies: bool = True
    """False where it cannot exist on this node, so that there is nothing to check."""


Judge = Callable[[NodeFacts], Finding | Blind | None]
"""A node's finding, why it could not be checked, or None where all is good."""


def worse(
    id: str, status: Literal["warn", "fail"], node: NodeFacts, title: str, **said: Any
) -> Finding:
    """What is always said of that id, about one node; `said` are further fields of the finding."""
    who = Subject("node", node.host)
    told = {**EXPLAINED[id].words, "next": f"wirespeed check --only {id}", **said}
    return Finding(id=id, status=status, title=f"{node.host}: {title}", subject=who, **told)


def tell(id: str, case: str, **values: Any) -> Finding:
    """What findings.yaml has for that case of an id: see `FindingText.finding` for the values."""
    return EXPLAINED[id].finding(case, **values)


def on_node(id: str, case: str, node: NodeFacts, **values: Any) -> Finding:
    """The same about one node, whose name the title has as `host`."""
    told = {"host": node.host, "next": f"wirespeed check --only {id}", **values}
    return tell(id, case, subject=Subject("node", node.host), **told)


def absent(id: str, title: str, because: str) -> Finding:
    return Finding(id=id, status="not_checked", title=title, because=because)


def not_applicable(id: str, about: str, because: str) -> Finding:
    """Return the finding for something that cannot exist here; `about` is what the check looks at."""
    return Finding(id=id, status="not_applicable", title=f"{about} not applicable", because=because)


def without_rdma(id: str, about: str, nodes: Iterable[NodeFacts]) -> Finding:
    """Return why RDMA was not looked at: no node has such a device, or a node could not list them."""
    unread = [node.unknown["rdma"] for node in nodes if "rdma" in node.unknown]
    if unread:
        return absent(id, f"{about} not checked", unread[0])
    return not_applicable(id, about, "no RDMA device on any node")


def by_reason(told: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """From pairs of a reason and who or what has it."""
    reasons: dict[str, list[str]] = {}
    for reason, what in told:
        reasons.setdefault(reason, []).append(what)
    return reasons


def first_lines(lines: Iterable[str]) -> list[str]:
    """As evidence: the first twelve, and how many are left out."""
    every = list(lines)
    hidden = len(every) - _MOST_EVIDENCE
    return every[:_MOST_EVIDENCE] + ([f"and {hidden} more"] if hidden > 0 else [])


def judge_nodes(
    id: str,
    nodes: Sequence[NodeFacts],
    judge: Judge,
    *,
    good: str = "",
    none: str = "no node",
    saw: str = "",
) -> list[Finding]:
    """The findings of one check over the nodes that it applies to.

    good: what is so on good nodes, else findings.yaml says it; none: why there is no node to check;
    saw: what a pass should tell besides.
    """
    about, good = EXPLAINED[id].about, good or EXPLAINED[id].good
    if not nodes:
        return [not_applicable(id, about, none)]
    judged = [(node, judge(node)) for node in nodes]
    found = [verdict for _, verdict in judged if isinstance(verdict, Finding)]
    outside = [why.because for _, why in judged if isinstance(why, Blind) and not why.applies]
    if len(outside) == len(nodes):
        return [not_applicable(id, about, "; ".join(dict.fromkeys(outside)))]
    blind = [(node, why.because) for node, why in judged if isinstance(why, Blind) and why.applies]
    if blind:
        found.append(_unchecked(id, about, blind, len(nodes)))
    title = f"{good} on {counted(len(nodes) - len(outside), 'node')}"
    return found or [Finding(id=id, status="pass", title=title, saw=saw)]


def _unchecked(id: str, about: str, blind: Sequence[tuple[NodeFacts, str]], nodes: int) -> Finding:
    """One finding for all of them, with every reason that occurs and the first node that has it."""
    reasons = by_reason((because, node.host) for node, because in blind)
    if len(blind) == nodes and len(reasons) == 1:
        return absent(id, f"{about} not checked", blind[0][1])
    texts = (
        f"{hosts[0]}{f' and {len(hosts) - 1} more' if len(hosts) > 1 else ''}: {because}"
        for because, hosts in reasons.items()
    )
    return absent(id, f"{about} not checked on {len(blind)} of {nodes} nodes", "; ".join(texts))


if __name__ == "__main__":
    TEXTS.write()
