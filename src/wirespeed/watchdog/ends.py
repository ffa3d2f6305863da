"""Findings about ranks that ended: died, raised, were interrupted, or ended oddly after results."""

import signal
from collections.abc import Iterable, Sequence

from wirespeed.model.records import Finding
from wirespeed.process.codes import returncode_text, signal_of
from wirespeed.watchdog.events import (
    ENDED,
    MOST_FINDINGS,
    Death,
    Facts,
    Raised,
    cut_lines,
    first_line,
    groups_text,
    last_seen,
    subject_of,
    waiting_text,
    with_rest,
)
from wirespeed.watchdog.rank_status import RankStatus, ranks_text

_SIGNAL_HINTS = {
    signal.SIGKILL: "the kernel's out-of-memory killer, a scheduler or a person killed it",
    signal.SIGTERM: "a launcher, a scheduler or a person asked it to end",
    signal.SIGSEGV: "native code (driver, NCCL, MPI, PyTorch) used memory that is not its own",
    signal.SIGBUS: "often a full /dev/shm, or a file that was truncated while mapped",
    signal.SIGABRT: "native code gave up; its message is in the rank's log",
    signal.SIGILL: "the binary uses instructions that this CPU does not have",
}


def died(facts: Facts, first: Sequence[Death], later: Sequence[Death]) -> tuple[Finding, ...]:
    """DIED-001 for each rank that died first; `later`: those that followed."""
    ranks = {death.rank for death in first}
    followed = _followers(facts, first[0].at, later)
    findings = []
    for death in first[:MOST_FINDINGS]:
        status = facts.statuses[death.rank]
        how = returncode_text(death.returncode)
        known = death.returncode is not None
        number = signal_of(death.returncode) if death.returncode is not None else None
        findings.append(
            Finding(
                id="DIED-001",
                status="fail",
                title=f"{status.name} died: {how}",
                subject=subject_of(status),
                saw=f"{how if known else _lost(death)}; {last_seen(status)}",
                expected="each rank to say goodbye before it ends",
                because=_SIGNAL_HINTS.get(number, "") if number else _exit_hint(death),
                costs=ENDED + waiting_text(facts, ranks),
                fix=_death_fix(number),
                next=_death_next(number, status),
                evidence=followed,
            )
        )
    return with_rest(findings, [d.rank for d in first])


def exit_hint(returncode: int) -> str:
    """Who usually ends a process so; empty where that says nothing."""
    number = signal_of(returncode)
    return _SIGNAL_HINTS.get(number, "") if number else ""


def _lost(death: Death) -> str:
    return (death.why or "the connection ended") + " without goodbye"


def _exit_hint(death: Death) -> str:
    if death.returncode is None:
        return "its process ended or its machine went down; how, only its launcher can tell"
    if death.returncode == 0:
        return "something called exit before the rank was through"
    return "its last words are in the rank's log"


def _death_fix(number: signal.Signals | None) -> str:
    if number is signal.SIGKILL:
        return "give the rank more memory or use smaller sizes (-e); see who killed it"
    if number is signal.SIGBUS:
        return "make /dev/shm larger (--shm-size, or an emptyDir of medium Memory)"
    return "read the rank's log and end the cause"


def _death_next(number: signal.Signals | None, status: RankStatus) -> str:
    where = f"on {status.host}: " if status.host else ""
    if number is signal.SIGKILL:
        return f"{where}dmesg -T | grep -i -E 'killed process|oom'"
    if number is signal.SIGBUS:
        return f"{where}df -h /dev/shm"
    return f"{where}dmesg -T | tail -n 40"


def _followers(facts: Facts, at: float, later: Iterable[Death]) -> tuple[str, ...]:
    """What ended after the first death, in order of time."""
    events = [(d.at, d.rank, returncode_text(d.returncode)) for d in later]
    events += [(r.at, r.rank, first_line(r.error)) for r in facts.raised]
    return tuple(
        f"{max(0.0, when - at):.1f} s later {facts.statuses[rank].name}: {what}"
        for when, rank, what in sorted(events)[:MOST_FINDINGS]
    )


def raised(facts: Facts, first: Raised) -> Finding:
    """RAISED-001: the exception that came first."""
    status = facts.statuses[first.rank]
    line = first_line(first.error)
    others = [r for r in facts.raised if r.rank != first.rank]
    same = [r.rank for r in others if first_line(r.error) == line]
    also = f", and so did {ranks_text(same)}" if same else ""
    different = tuple(
        f"{max(0.0, r.at - first.at):.1f} s later {facts.statuses[r.rank].name}: "
        f"{first_line(r.error)}"
        for r in sorted(others, key=lambda one: one.at)[:MOST_FINDINGS]
        if r.rank not in same
    )
    return Finding(
        id="RAISED-001",
        status="fail",
        title=f"{status.name} raised {line}{also}",
        subject=subject_of(status),
        saw=f"{line}; {last_seen(status)}",
        expected="no exception",
        because="the exception came first; the traceback names the line",
        costs=ENDED + waiting_text(facts, {first.rank}),
        fix="correct what the last line of the traceback says",
        next="run again with -v, and read the rank's log",
        evidence=cut_lines(first.trace or first.error) + different,
    )


def interrupted(facts: Facts) -> Finding:
    """INT-001: a person or a signal ended the run."""
    return Finding(
        id="INT-001",
        status="not_checked",
        title="the run was interrupted" + (f" by {facts.interrupted}" if facts.interrupted else ""),
        saw=groups_text(facts.statuses),
        expected="to run to the end",
        because="it was asked to stop",
        costs=ENDED,
        next="run the same command again",
    )


def claimed_twice(facts: Facts, rank: int, one: str, other: str) -> Finding:
    """JOIN-002: two processes that know the run's key say that they are the same rank."""
    return Finding(
        id="JOIN-002",
        status="fail",
        title=f"rank {rank} is claimed by two processes: {one} and {other}",
        subject=subject_of(facts.statuses[rank]),
        saw=f"{one} came first, then {other}",
        expected="each rank to be one process",
        because="two processes were started with the same rank, or somebody who can read the run's "
        "key takes a rank's place",
        costs=ENDED,
        fix="start each rank once; where others share the network, give the run a secret "
        "(WIRESPEED_SECRET)",
        next="env | grep -E 'RANK|WORLD_SIZE|MASTER_|WIRESPEED_' on each node",
    )


def strangers(facts: Facts) -> tuple[Finding, ...]:
    """JOIN-003 (a warning): somebody spoke to the session without the run's key."""
    if not facts.strangers:
        return ()
    times = "once" if facts.strangers == 1 else f"{facts.strangers} times"
    return (
        Finding(
            id="JOIN-003",
            status="warn",
            title=f"who does not know the run's key spoke to the session {times}",
            saw=facts.strangers_seen[0],
            expected="the ranks of this run only",
            because="a rank of another run, a port scanner, or somebody who would be taken for a rank",
            costs="nothing: each was turned away at its first line",
            fix="none needed for this run; see who calls from there",
            next=f"getent hosts {facts.strangers_seen[0].partition(':')[0]}",
            evidence=facts.strangers_seen,
        ),
    )


def abnormal_exits(facts: Facts) -> tuple[Finding, ...]:
    """EXIT-001 (a warning) for ranks whose process ended otherwise than they announced."""
    findings = []
    for status in facts.statuses:
        lingers = status.rank in facts.lingering
        odd = status.returncode is not None and status.returncode != status.exit_code
        if status.phase != "finished" or not (lingers or odd):
            continue
        how = "still runs" if lingers else returncode_text(status.returncode)
        findings.append(
            Finding(
                id="EXIT-001",
                status="warn",
                title=f"{status.name} {how} after its results were complete",
                subject=subject_of(status),
                saw=f"{how}, after it said goodbye with exit code {status.exit_code}",
                expected="the process to end with the exit code that it announced",
                because="a library's threads or destructors, such as Gloo's at exit",
                costs="nothing: its results were delivered before",
                fix="none needed here",
                next="its last words are in the rank's log",
            )
        )
    return tuple(findings)
