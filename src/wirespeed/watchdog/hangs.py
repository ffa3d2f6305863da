"""Findings about worlds that stand still: silent, behind, elsewhere, all waiting, or not joined."""

from collections.abc import Sequence

from wirespeed.model.records import Finding
from wirespeed.model.units import format_duration
from wirespeed.watchdog.events import (
    ENDED,
    MOST_FINDINGS,
    Facts,
    last_seen,
    others_place,
    stack_lines,
    state_text,
    subject_of,
    waiting_text,
    with_rest,
)
from wirespeed.watchdog.rank_status import RankStatus, ranks_text


def silent(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """HANG-001 for each rank that sends no heartbeat and does not answer."""
    names = {status.rank for status in ranks}
    findings = [
        Finding(
            id="HANG-001",
            status="fail",
            title=f"{status.name} {_silence(facts, status)}",
            subject=subject_of(status),
            saw=f"no heartbeat for {format_duration(status.silent)}; {state_text(facts, status)}; "
            f"{last_seen(status)}",
            expected="a heartbeat every 0.5 s, also while an operation waits",
            because=_silence_cause(facts, status),
            costs=ENDED + waiting_text(facts, names),
            fix="let it go on or restart it; if nobody stopped it, look at its machine",
            next=f"on {status.host}: ps -o pid,stat,wchan:32,cmd -p {status.pid}",
            evidence=stack_lines(facts, status),
        )
        for status in ranks[:MOST_FINDINGS]
    ]
    return with_rest(findings, names)


def _silence(facts: Facts, status: RankStatus) -> str:
    state = facts.states.get(status.rank, "")
    if state in ("T", "t"):
        return "is stopped"
    return f"is silent for {format_duration(status.silent)}"


def _silence_cause(facts: Facts, status: RankStatus) -> str:
    state = facts.states.get(status.rank, "")
    if state == "T":
        return "it got SIGSTOP or SIGTSTP, or its cgroup is frozen"
    if state == "t":
        return "a debugger holds it"
    if state == "D":
        return "the kernel waits for a device or a network file system"
    if state:
        return "native code holds the interpreter, so not even its heartbeat thread runs"
    return "the process is stopped, its interpreter is stuck, or its machine or network is gone"


def behind(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """HANG-002 for each rank that has begun fewer operations than the others."""
    names = {status.rank for status in ranks}
    findings = [
        Finding(
            id="HANG-002",
            status="fail",
            title=f"{status.name} {_behind_title(facts, status)}",
            subject=subject_of(status),
            saw=last_seen(status),
            expected=f"operation {_furthest(facts).sequence}, {_furthest(facts).op}, where "
            f"{others_place(facts, names)}",
            because=_behind_cause(facts, status),
            costs=ENDED + waiting_text(facts, names),
            fix="see the stack: what the rank does there must end, or every rank must do it",
            next="if it is only slow, run again with a longer --timeout",
            evidence=stack_lines(facts, status),
        )
        for status in ranks[:MOST_FINDINGS]
    ]
    return with_rest(findings, names)


def _behind_title(facts: Facts, status: RankStatus) -> str:
    furthest = _furthest(facts)
    if status.phase == "finished":
        return f"finished after {status.sequence} operations, before the others were through"
    if furthest.sequence == status.sequence:
        return f"does not come to an end after operation {status.sequence}, {status.op}"
    return f"is behind: it has begun {status.sequence} operations, others {furthest.sequence}"


def _behind_cause(facts: Facts, status: RankStatus) -> str:
    if status.phase == "finished":
        return "its program ended earlier than that of the others"
    if status.since < facts.op_timeout / 2:
        return (
            f"it still makes progress (last {format_duration(status.since)} before the end): "
            "it is slow, not stuck"
        )
    return "it is stuck or slow in its own code before the operation that the others wait in"


def ahead(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """HANG-002 when most are at the earliest place: the few that are further are named."""
    names = {status.rank for status in ranks}
    most = next(s for s in facts.statuses if s.rank not in names)
    findings = [
        Finding(
            id="HANG-002",
            status="fail",
            title=f"{status.name} is ahead: it has begun {status.sequence} operations, "
            f"most others {most.sequence}",
            subject=subject_of(status),
            saw=last_seen(status),
            expected=f"to be where {others_place(facts, names)}",
            because="it began an operation that the others do not, or it need not wait in the "
            "one before (such as the root of a broadcast) and that one stalls",
            costs=ENDED + waiting_text(facts, names),
            fix="make every rank run the same operations; else check the network as for HANG-004",
            next="wirespeed check --explain HANG-004",
            evidence=stack_lines(facts, status) + stack_lines(facts, most),
        )
        for status in ranks[:MOST_FINDINGS]
    ]
    return with_rest(findings, names)


def another_operation(
    facts: Facts, number: int, labels: dict[str, list[RankStatus]]
) -> tuple[Finding, ...]:
    """HANG-003 for the ranks in the minority at operation `number`; for all of them in a tie."""
    most = max(len(group) for group in labels.values())
    majority = [label for label, group in labels.items() if len(group) == most]
    usual = majority[0] if len(majority) == 1 else None
    odd = [(s, label) for label, group in labels.items() for s in group if label != usual]
    odd.sort(key=lambda pair: pair[0].rank)
    findings = [
        _another(facts, number, status, label, labels) for status, label in odd[:MOST_FINDINGS]
    ]
    return with_rest(findings, [status.rank for status, _ in odd])


def _another(
    facts: Facts, number: int, status: RankStatus, label: str, labels: dict[str, list[RankStatus]]
) -> Finding:
    others = {name: group for name, group in labels.items() if name != label}
    name, group = max(others.items(), key=lambda item: len(item[1]))
    who = f"{len(group)} others run" if len(group) > 1 else f"{group[0].name} runs"
    return Finding(
        id="HANG-003",
        status="fail",
        title=f"{status.name} runs {label} while {who} {name}",
        subject=subject_of(status),
        saw=f"operation {number}: {label} on {ranks_text([s.rank for s in labels[label]])}; "
        f"{last_seen(status)}",
        expected=f"operation {number}: {name}, as on {ranks_text([s.rank for s in group])}",
        because="the ranks took different branches of the program, or run different programs",
        costs=ENDED,
        fix="make every rank call the same operations in the same order and size",
        next="compare the stacks of the ranks, and the software versions on the nodes",
        evidence=stack_lines(facts, status) + (stack_lines(facts, group[0])),
    )


def all_wait(facts: Facts) -> Finding:
    """HANG-004: every rank answers and is at the same place."""
    live = [s for s in facts.statuses if s.phase not in ("finished", "failed")]
    live = live or list(facts.statuses)
    first = max(live, key=lambda status: status.since)
    hosts = {status.host for status in live}
    between = "on one machine" if len(hosts) == 1 else f"on {len(hosts)} machines"
    return Finding(
        id="HANG-004",
        status="fail",
        title=f"all {len(live)} ranks {between} wait {_in(first)}",
        saw=f"every rank answers, {ranks_text([s.rank for s in live])} {first.place()} for "
        f"{format_duration(first.since)}",
        expected=f"an end within {format_duration(facts.op_timeout)}",
        because="no rank is to blame: they all called it, and data does not arrive",
        costs=ENDED,
        fix="open all TCP ports between the nodes; set GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME "
        "to the interface that connects them; use one MTU along the path",
        next="between two of the nodes: ping -M do -s 1472 HOST; nc -vz HOST PORT; ip -s link show",
        evidence=stack_lines(facts, first),
    )


def _in(status: RankStatus) -> str:
    """`in all_reduce (operation 5)`, or `while joining` for ranks between operations."""
    place = status.place()
    return place if place.startswith("in ") else f"while {place}"


def never_joined(facts: Facts, ranks: Sequence[RankStatus]) -> tuple[Finding, ...]:
    """JOIN-001 for each rank that is missing, or late in an early phase."""
    names = {status.rank for status in ranks}
    findings = [
        Finding(
            id="JOIN-001",
            status="fail",
            title=f"{status.name} {_join_title(facts, status)}",
            subject=subject_of(status),
            saw=_join_saw(facts, status),
            expected=f"all {len(facts.statuses)} ranks within "
            f"{format_duration(facts.startup_timeout)}",
            because=_join_cause(facts, status),
            costs="nothing could be measured" + waiting_text(facts, names),
            fix="start as many ranks as the world size says, and let each reach the session",
            next="look at the output of the launcher for this rank; slow file systems need a "
            "longer start-up bound",
            evidence=(*stack_lines(facts, status), *facts.refusals[:MOST_FINDINGS]),
        )
        for status in ranks[:MOST_FINDINGS]
    ]
    return with_rest(findings, names)


def _join_title(facts: Facts, status: RankStatus) -> str:
    if not status.connected and status.rank not in facts.overdue:
        return "never joined, and the others gave up waiting for it"
    if not status.connected:
        return f"never joined within {format_duration(facts.startup_timeout)}"
    return f"is still {status.place()} while the others are further"


def _join_saw(facts: Facts, status: RankStatus) -> str:
    if not status.connected:
        state = facts.states.get(status.rank, "")
        return "no connection from it" + (f"; {state_text(facts, status)}" if state else "")
    return last_seen(status)


def _join_cause(facts: Facts, status: RankStatus) -> str:
    if not status.connected and status.rank in facts.stacks:
        return "its process has not come further than the stack says, such as loading torch"
    if not status.connected:
        return "it was never started, died at once, or cannot reach the session"
    return f"{status.place()} takes longer there than elsewhere"


def _furthest(facts: Facts) -> RankStatus:
    return max(facts.statuses, key=lambda status: status.sequence)
