"""Findings about ranks that ended, or about worlds that stand still; their texts are findings.yaml."""

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.model.finding_texts import FindingTexts
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import format_duration
from wirespeed.process import returncode_text, signal_of
from wirespeed.watchdog.facts import Death, Facts, Raised, RankStatus, ranks_text

MOST_FINDINGS = 8
"""Ranks named by a finding each; the others are listed in the last one's evidence."""
_EVIDENCE_LINES = 40
_Signal = signal.Signals | None
_HINTS: dict[_Signal, str] = {
    signal.SIGKILL: "the kernel's out-of-memory killer, a scheduler or a person killed it",
    signal.SIGTERM: "a launcher, a scheduler or a person asked it to end",
    signal.SIGSEGV: "native code (driver, NCCL, MPI, PyTorch) used memory that is not its own",
    signal.SIGBUS: "often a full /dev/shm, or a file that was truncated while mapped",
    signal.SIGABRT: "native code gave up; its message is in the rank's log",
    signal.SIGILL: "the binary uses instructions that this CPU does not have",
}
_FIXES: dict[_Signal, str] = {
    signal.SIGKILL: "give the rank more memory or use smaller sizes (-e); see who killed it",
    signal.SIGBUS: "make /dev/shm larger (--shm-size, or an emptyDir of medium Memory)",
}
_LOOKS: dict[_Signal, str] = {
    signal.SIGKILL: "dmesg -T | grep -i -E 'killed process|oom'",
    signal.SIGBUS: "df -h /dev/shm",
}
_STATES = {"T": "stopped", "t": "stopped by a debugger", "D": "waits for a device", "Z": "ended"}
_SILENT_BECAUSE = {
    "": "the process is stopped, its interpreter is stuck, or its machine or network is gone",
    "T": "it got SIGSTOP or SIGTSTP, or its cgroup is frozen",
    "t": "a debugger holds it",
    "D": "the kernel waits for a device or a network file system",
}
_SILENT_OTHERWISE = "native code holds the interpreter, so not even its heartbeat thread runs"

make_finding = FindingTexts(Path(__file__).parent)

# Ranks that ended.


def died(facts: Facts, first: Sequence[Death], later: Sequence[Death]) -> tuple[Finding, ...]:
    """DIED-001 for each rank that died first; `later`: those that followed."""
    ranks = [death.rank for death in first]
    events = [(d.at, d.rank, returncode_text(d.returncode)) for d in later]
    events += [(r.at, r.rank, first_line(r.error)) for r in facts.raised]
    evidence = _later(facts, first[0].at, events)
    findings = []
    for death in first[:MOST_FINDINGS]:
        status, code = facts.statuses[death.rank], death.returncode
        number, how = None if code is None else signal_of(code), returncode_text(code)
        lost = f"{death.why or 'the connection ended'} without goodbye"
        look = _LOOKS.get(number, "dmesg -T | tail -n 40")
        findings.append(
            make_finding(
                "died",
                subject=subject_of(status),
                who=status,
                how=how,
                saw=f"{lost if code is None else how}; {last_seen(status)}",
                because=_HINTS.get(number, "") if number else _exit_because(code),
                waiting=waiting_text(facts, set(ranks)),
                fix=_FIXES.get(number, "read the rank's log and end the cause"),
                next=f"on {status.host}: {look}" if status.host else look,
                evidence=evidence,
            )
        )
    return _with_rest(findings, ranks)


def exit_hint(returncode: int) -> str:
    """Who usually ends a process so; empty where that says nothing."""
    return _HINTS.get(signal_of(returncode), "")


def _exit_because(returncode: int | None) -> str:
    if returncode is None:
        return "its process ended or its machine went down; how, only its launcher can tell"
    if returncode == 0:
        return "something called exit before the rank was through"
    return "its last words are in the rank's log"


def _later(facts: Facts, at: float, events: list[tuple[float, int, str]]) -> tuple[str, ...]:
    """(moment, rank, what happened), in order of time, after the moment `at`."""
    return tuple(
        f"{max(0.0, when - at):.1f} s later {facts.statuses[rank].name}: {what}"
        for when, rank, what in sorted(events)[:MOST_FINDINGS]
    )


def raised(facts: Facts, first: Raised) -> Finding:
    """RAISED-001: the exception that came first."""
    status, line = facts.statuses[first.rank], first_line(first.error)
    others = sorted((r.at, r.rank, first_line(r.error)) for r in facts.raised if r is not first)
    same = [rank for _, rank, text in others if text == line]
    different = [one for one in others[:MOST_FINDINGS] if one[1] not in same]
    return make_finding(
        "raised",
        subject=subject_of(status),
        who=status,
        line=line,
        also=f", and so did {ranks_text(same)}" if same else "",
        last=last_seen(status),
        waiting=waiting_text(facts, {first.rank}),
        evidence=cut_lines(first.trace or first.error) + _later(facts, first.at, different),
    )


def interrupted(facts: Facts) -> Finding:
    """INT-001: a person or a signal ended the run."""
    by = f" by {facts.interrupted}" if facts.interrupted else ""
    return make_finding("interrupted", by=by, places=groups_text(facts.statuses))


def claimed_twice(facts: Facts, rank: int, one: str, other: str) -> Finding:
    """JOIN-002: two processes that know the run's key say that they are the same rank."""
    who = subject_of(facts.statuses[rank])
    return make_finding("claimed_twice", subject=who, rank=rank, one=one, other=other)


def strangers(facts: Facts) -> tuple[Finding, ...]:
    """JOIN-003 (a warning): somebody spoke to the session without the run's key."""
    if not facts.strangers:
        return ()
    first = facts.strangers_seen[0]
    found = make_finding(
        "strangers",
        times="once" if facts.strangers == 1 else f"{facts.strangers} times",
        first=first,
        address=first.partition(":")[0],
        evidence=facts.strangers_seen,
    )
    return (found,)


def abnormal_exits(facts: Facts) -> tuple[Finding, ...]:
    """EXIT-001 (a warning) for ranks whose process ended otherwise than they announced."""
    findings = []
    for status in facts.statuses:
        lingers = status.rank in facts.lingering
        odd = status.returncode is not None and status.returncode != status.exit_code
        if status.phase == "finished" and (lingers or odd):
            how = "still runs" if lingers else returncode_text(status.returncode)
            who = subject_of(status)
            findings.append(make_finding("abnormal_exit", subject=who, who=status, how=how))
    return tuple(findings)


# Worlds that stand still.


def silent(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """HANG-001 for each rank that sends no heartbeat and does not answer."""

    def said(status: RankStatus) -> dict[str, object]:
        state, silence = facts.states.get(status.rank, ""), format_duration(status.silent)
        return {
            "how": "is stopped" if state in ("T", "t") else f"is silent for {silence}",
            "silence": silence,
            "state": _state_text(facts, status),
            "because": _SILENT_BECAUSE.get(state, _SILENT_OTHERWISE),
        }

    return _each("silent", facts, ranks, said)


def behind(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """HANG-002 for each rank that has begun fewer operations than the others."""
    furthest = max(facts.statuses, key=lambda status: status.sequence)

    def said(status: RankStatus) -> dict[str, object]:
        how, because = _behind(facts, status, furthest)
        return {"how": how, "because": because, "furthest": furthest}

    return _each("behind", facts, ranks, said)


def _behind(facts: Facts, status: RankStatus, furthest: RankStatus) -> tuple[str, str]:
    """(how it is behind, why)."""
    if status.phase == "finished":
        how = f"finished after {status.sequence} operations, before the others were through"
        return how, "its program ended earlier than that of the others"
    if furthest.sequence == status.sequence:
        how = f"does not come to an end after operation {status.sequence}, {status.op}"
    else:
        how = f"is behind: it has begun {status.sequence} operations, others {furthest.sequence}"
    if status.since < facts.op_timeout / 2:
        last = format_duration(status.since)
        return how, f"it still makes progress (last {last} before the end): it is slow, not stuck"
    return how, "it is stuck or slow in its own code before the operation that the others wait in"


def ahead(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """HANG-002 when most are at the earliest place: the few that are further are named."""
    most = next(s for s in facts.statuses if s not in ranks)
    return _each("ahead", facts, ranks, lambda _: {"most": most}, stack_lines(facts, most))


def another_operation(
    facts: Facts, number: int, labels: dict[str, list[RankStatus]]
) -> tuple[Finding, ...]:
    """HANG-003 for the ranks in the minority at operation `number`; for all of them in a tie."""
    most = max(len(group) for group in labels.values())
    majority = [label for label, group in labels.items() if len(group) == most]
    usual = majority[0] if len(majority) == 1 else None
    odd = {s.rank: (s, label) for label, group in labels.items() for s in group if label != usual}

    def said(status: RankStatus) -> dict[str, object]:
        label = odd[status.rank][1]
        rest = {name: group for name, group in labels.items() if name != label}
        name, group = max(rest.items(), key=lambda item: len(item[1]))
        return {
            "label": label,
            "number": number,
            "name": name,
            "others": f"{len(group)} others run" if len(group) > 1 else f"{group[0].name} runs",
            "same": ranks_text(s.rank for s in labels[label]),
            "different": ranks_text(s.rank for s in group),
            "evidence": stack_lines(facts, status) + stack_lines(facts, group[0]),
        }

    return _each("another_operation", facts, [odd[rank][0] for rank in sorted(odd)], said)


def all_wait(facts: Facts) -> Finding:
    """HANG-004: every rank answers and is at the same place."""
    live = [s for s in facts.statuses if s.phase not in ("finished", "failed")]
    live = live or list(facts.statuses)
    first = max(live, key=lambda status: status.since)
    hosts, place = {status.host for status in live}, first.place()
    return make_finding(
        "all_wait",
        count=len(live),
        between="on one machine" if len(hosts) == 1 else f"on {len(hosts)} machines",
        where=place if place.startswith("in ") else f"while {place}",
        ranks=ranks_text(s.rank for s in live),
        place=place,
        since=format_duration(first.since),
        bound=format_duration(facts.op_timeout),
        evidence=stack_lines(facts, first),
    )


def never_joined(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """JOIN-001 for each rank that is missing, or late in an early phase."""
    bound = format_duration(facts.startup_timeout)

    def said(status: RankStatus) -> dict[str, object]:
        how, saw, because = _not_there(facts, status, bound)
        told = {"how": how, "saw": saw, "because": because}
        return {**told, "bound": bound, "count": len(facts.statuses)}

    return _each("never_joined", facts, ranks, said, facts.refusals[:MOST_FINDINGS])


def _not_there(facts: Facts, status: RankStatus, bound: str) -> tuple[str, str, str]:
    """(how it is missing, what was seen of it, why)."""
    if status.connected:
        place = status.place()
        how = f"is still {place} while the others are further"
        return how, last_seen(status), f"{place} takes longer there than elsewhere"
    how = "never joined, and the others gave up waiting for it"
    if status.rank in facts.overdue:
        how = f"never joined within {bound}"
    saw = "no connection from it"
    if facts.states.get(status.rank):
        saw += f"; {_state_text(facts, status)}"
    because = "it was never started, died at once, or cannot reach the session"
    if status.rank in facts.stacks:
        because = "its process has not come further than the stack says, such as loading torch"
    return how, saw, because


def _each(
    entry: str,
    facts: Facts,
    ranks: Sequence[RankStatus],
    said: Callable[[RankStatus], dict[str, object]],
    more: tuple[str, ...] = (),
) -> tuple[Finding, ...]:
    """That finding for each of the ranks, with what is said of it alone; more: further evidence."""
    names = {status.rank for status in ranks}
    waiting = waiting_text(facts, names)
    places = groups_text([s for s in facts.statuses if s.rank not in names])
    findings = []
    for status in ranks[:MOST_FINDINGS]:
        values = {"waiting": waiting, "places": places, "who": status, "last": last_seen(status)}
        evidence = {"evidence": (*stack_lines(facts, status), *more)}
        told: dict[str, Any] = {**values, **evidence, **said(status)}
        findings.append(make_finding(entry, subject=subject_of(status), **told))
    return _with_rest(findings, names)


# Phrases.


def subject_of(status: RankStatus) -> Subject:
    return Subject("rank", f"rank {status.rank}")


def last_seen(status: RankStatus) -> str:
    return f"last seen {status.doing()}" if status.connected else "it never connected"


def groups_text(statuses: Sequence[RankStatus]) -> str:
    """`3 in all_reduce (operation 5), 1 finished`: the three most common places."""
    places = Counter(
        s.place() if s.connected and s.phase != "finished" else s.doing() for s in statuses
    )
    parts = [f"{count} {place}" for place, count in places.most_common(3)]
    more = len(places) - len(parts)
    return ", ".join(parts) + (f", {more} elsewhere" if more > 0 else "")


def waiting_text(facts: Facts, without: set[int]) -> str:
    """What the others waited for, to end a sentence."""
    live = [s for s in facts.statuses if s.rank not in without and s.phase != "finished"]
    return f"; the others: {groups_text(live)}" if live else ""


def _state_text(facts: Facts, status: RankStatus) -> str:
    state = facts.states.get(status.rank, "")
    if not state:
        return "process state unknown (the process is not ours to look at)"
    return f"process state {state}" + (f" ({_STATES[state]})" if state in _STATES else "")


def stack_lines(facts: Facts, status: RankStatus) -> tuple[str, ...]:
    stack = facts.stacks.get(status.rank)
    if stack:
        return (f"Python stack of rank {status.rank}:", *cut_lines(stack))
    why = "it did not answer" if status.connected else "it never connected"
    if status.phase in ("finished", "failed"):
        why = f"it had {status.phase}"
    return (f"no Python stack of rank {status.rank}: {why}",)


def cut_lines(text: str) -> tuple[str, ...]:
    lines = text.rstrip().splitlines()
    if len(lines) <= _EVIDENCE_LINES:
        return tuple(lines)
    half = _EVIDENCE_LINES // 2
    return (*lines[:half], f"… {len(lines) - 2 * half} lines left out …", *lines[-half:])


def first_line(error: str) -> str:
    """The first line of the message: PyTorch appends C++ stacks below it."""
    return (error.strip().splitlines() or ["an exception"])[0][:300]


def _with_rest(findings: list[Finding], ranks: Iterable[int]) -> tuple[Finding, ...]:
    """Say in the last finding which further ranks it holds for."""
    rest = sorted(ranks)[MOST_FINDINGS:]
    if rest:
        note = f"the same holds for {len(rest)} more: {ranks_text(rest)}"
        findings[-1] = replace(findings[-1], evidence=(note, *findings[-1].evidence))
    return tuple(findings)


if __name__ == "__main__":
    make_finding.texts.write()
