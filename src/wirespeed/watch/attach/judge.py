"""From what the ranks did to who holds up the job: pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirespeed.checks.registry import tell
from wirespeed.diagnose.findings import one_rank, ranks_told
from wirespeed.errors import UsageError
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import format_size, listed, spans
from wirespeed.model.verdicts import Verdict
from wirespeed.watch.attach.activity import Activity, Kind, activity_of
from wirespeed.watch.attach.frames import main_frames, stack_told
from wirespeed.watch.attach.look import NodeLook

_MOST = 16
"""Ranks that are told one by one."""
_MOST_NATIVE = 40
"""Frames."""
_FEWEST_READINGS = 10
_LATE, _WAITING = 0.1, 0.6
"""Of the readings: one that waits so rarely is waited for where every other waits so often."""
_EXIT: dict[Verdict, int] = {"PROGRESSING": 0, "SLOW": 0, "HUNG": 1, "CANNOT TELL": 3}

_MOVES: tuple[Verdict, ...] = ("PROGRESSING", "SLOW")


@dataclass(frozen=True, slots=True)
class Seen:
    """All ranks that were looked at, on whatever nodes."""

    ranks: tuple[Activity, ...]
    """By rank."""
    seconds: float
    size: int
    """Ranks of the job; 0: not told."""
    ended: dict[int, str]
    """Host by rank that has no process there."""
    beside: tuple[int, ...]
    """Ranks on these nodes that were not named."""

    def of(self, *kinds: Kind) -> list[Activity]:
        return [one for one in self.ranks if one.kind in kinds]

    @property
    def missing(self) -> list[int]:
        """Ranks of the job that nobody looked at."""
        known = {one.rank for one in self.ranks} | self.ended.keys()
        return sorted({*range(self.size), *self.beside} - known)


def seen(looks: Sequence[NodeLook]) -> Seen:
    """UsageError where two nodes have the same rank."""
    _refuse_twice(looks)
    every = sorted((activity_of(one) for look in looks for one in look.ranks), key=_rank)
    return Seen(
        tuple(every),
        max((look.seconds for look in looks), default=0.0),
        max((one.look.process.world_size for one in every), default=0),
        {rank: look.host for look in looks for rank in look.ended},
        tuple(rank for look in looks for rank in look.beside),
    )


def _refuse_twice(looks: Sequence[NodeLook]) -> None:
    hosts: dict[int, str] = {}
    for look in looks:
        for rank in [one.process.rank for one in look.ranks]:
            if rank in hosts:
                raise UsageError(
                    f"rank {rank} is on {hosts[rank]} and on {look.host}: these are two jobs",
                    expected="one job",
                    next="--match TEXT, which is in the command line of its ranks only",
                )
            hosts[rank] = look.host


def judge(
    job: Seen, recorded: Sequence[tuple[str, Finding]] = (), *, issued: bool = False
) -> tuple[list[Finding], Verdict]:
    """recorded: what the flight recorder and RAS say, with their names; issued: whether the recorder
    of a rank has a newer collective than when the look began."""
    found, verdict = _by_stacks(job)
    if issued and verdict not in _MOVES and not job.of("stopped", "ended"):
        found, verdict = [tell("WATCH-015", "issued", evidence=groups(job))], "PROGRESSING"
    if verdict not in _MOVES and recorded:
        found, verdict = _with_recorded(job, found, verdict, recorded)
    if verdict in _MOVES and not issued and job.of("unseen"):
        verdict = "CANNOT TELL"
    unread = [one for one in job.of("unseen", "stopped") if not one.frames]
    for why in dict.fromkeys(one.look.unread for one in unread):
        ranks = [one.rank for one in unread if one.look.unread == why]
        found.append(tell("WATCH-016", "unread", who=ranks_told(ranks), why=why))
    return found, verdict


def subject_of(verdict: Verdict, findings: Sequence[Finding]) -> str:
    """Return who HUNG or SLOW is about; empty where it is the whole job."""
    if verdict not in ("HUNG", "SLOW"):
        return ""
    subjects = [finding.subject for finding in findings if finding.status in ("fail", "warn")]
    return next((subject.name for subject in subjects if subject.kind != "job"), "")


def exit_code(verdict: Verdict) -> int:
    return _EXIT[verdict]


def _by_stacks(job: Seen) -> tuple[list[Finding], Verdict]:
    held = [*job.of("stopped"), *job.of("ended")]
    waits, stands, works = job.of("waits"), job.of("stands"), job.of("works")
    if len(job.of("ended")) == len(job.ranks):
        return [tell("WATCH-016", "over")], "CANNOT TELL"
    if held or (job.ended and not works):
        told = [_held(one, job) for one in held[:_MOST]]
        return [*told, *(_ended(rank, host, job) for rank, host in job.ended.items())], "HUNG"
    if works and not stands:
        late = _late(job)
        return ([late], "SLOW") if late else ([_progress(job, works, waits)], "PROGRESSING")
    if stands and waits and not works:
        return [_stands(one, job) for one in stands[:_MOST]], "HUNG"
    if waits and not stands:
        return _all_wait(job, waits)
    return [_unsure(job, stands, works)], "CANNOT TELL"


def _held(one: Activity, job: Seen) -> Finding:
    if one.kind == "ended":
        return _ended(one.rank, one.look.process.host, job)
    return _about(one, job, "WATCH-008", "looked stopped", what=one.what, state=one.look.states[-1])


def _ended(rank: int, host: str, job: Seen) -> Finding:
    return tell(
        "WATCH-008",
        "looked ended",
        subject=one_rank([rank]),
        evidence=groups(job),
        **{"who": f"rank {rank}", "host": host, "waiting": _waiting(job)},
    )


def _stands(one: Activity, job: Seen) -> Finding:
    kernel = one.look.waits_in_kernel
    return _about(
        one,
        job,
        "WATCH-008",
        "looked stands",
        where=f": {one.where}" if one.where else "",
        kernel=f", in the kernel's {kernel}" if kernel else "",
        more=f"; it {one.what}" if one.what else "",
        state=one.look.states[-1],
        cores=one.look.cores,
        woken=one.look.switches,
    )


def _about(one: Activity, job: Seen, id: str, case: str, **values: object) -> Finding:
    """One rank, with its stack first and the others' after it."""
    process = one.look.process
    own = f"rank {one.rank}: {stack_told(one.frames) or one.look.unread}"
    native = _native([one])
    return tell(
        id,
        case,
        subject=one_rank([one.rank]),
        evidence=dict.fromkeys([own, *native, *groups(job)]),
        who=f"rank {one.rank}",
        pid=process.pid,
        host=process.host,
        seconds=job.seconds,
        waiting=_waiting(job),
        **values,
    )


def _waiting(job: Seen) -> str:
    waits = job.of("waits")
    if not waits:
        return ""
    verb = "waits" if len(waits) == 1 else "wait"
    return f"; {_ranks(waits)} {verb} in {waits[0].where}"


def _progress(job: Seen, works: list[Activity], waits: list[Activity]) -> Finding:
    stacks = {main_frames(threads) for one in job.ranks for threads in one.look.stacks}
    if not waits:
        cores = sum(one.look.cores for one in works) / len(works)
        told = {"count": len(works), "cores": cores, "stacks": len(stacks), "seconds": job.seconds}
        return tell("WATCH-015", "all", evidence=groups(job), **told)
    most = max(works, key=lambda one: bool(one.what))
    return tell(
        "WATCH-015",
        "some",
        subject=one_rank([one.rank for one in works]),
        evidence=groups(job),
        who=_ranks(works),
        what=most.what or "works on its own code",
        others=_ranks(waits),
        cores=most.look.cores,
        written=format_size(most.look.io_bytes),
        seconds=job.seconds,
        where=most.where or "a place that is not told",
    )


def _late(job: Seen) -> Finding | None:
    """One that hardly ever waits where all others mostly do, so that they wait for it."""
    if len(job.ranks) < 3 or min(len(one.look.stacks) for one in job.ranks) < _FEWEST_READINGS:
        return None
    last, *others = sorted(job.ranks, key=lambda one: one.waited)
    if last.waited > _LATE or others[0].waited < _WAITING or last.kind != "works":
        return None
    return tell(
        "WATCH-015",
        "late",
        subject=one_rank([last.rank]),
        evidence=groups(job),
        who=f"rank {last.rank}",
        where=f": {last.where}" if last.where else "",
        waited=last.waited,
        least=others[0].waited,
        readings=len(last.look.stacks),
    )


def _all_wait(job: Seen, waits: list[Activity]) -> tuple[list[Finding], Verdict]:
    where = listed(list(dict.fromkeys(one.where for one in waits)))
    told: dict[str, object] = {"who": _ranks(waits), "where": where}
    if job.missing:
        launcher = f"wirespeed attach {waits[0].look.process.parent}, their launcher"
        elsewhere = "the same on the nodes of the others"
        told |= {"missing": ranks_told(job.missing), "next": launcher if job.beside else elsewhere}
        return [tell("WATCH-016", "elsewhere", evidence=groups(job), **told)], "CANNOT TELL"
    if any(one.look.cuda for one in waits):
        return [tell("WATCH-016", "device", evidence=groups(job), **told)], "CANNOT TELL"
    places = _places(waits)
    if len(places) > 1:
        return [_apart(job, places)], "HUNG"
    told |= {"count": len(waits), "seconds": job.seconds}
    return [tell("WATCH-008", "looked all wait", evidence=groups(job), **told)], "HUNG"


def _places(waits: Iterable[Activity]) -> list[tuple[str, list[int]]]:
    """Ranks by the collective that they wait in, the fewest first."""
    found: dict[str, list[int]] = {}
    for one in waits:
        found.setdefault(one.where, []).append(one.rank)
    return sorted(found.items(), key=lambda item: len(item[1]))


def _apart(job: Seen, places: list[tuple[str, list[int]]]) -> Finding:
    odd = places[0][1] if len(places[0][1]) < len(places[1][1]) else []
    told = "; ".join(f"{ranks_told(ranks)} in {where}" for where, ranks in places[:4])
    values = {"told": told, "seconds": job.seconds}
    return tell("WATCH-009", "apart", subject=one_rank(odd), evidence=groups(job), **values)


def _unsure(job: Seen, stands: list[Activity], works: list[Activity]) -> Finding:
    if not stands:
        return tell("WATCH-016", "unseen", evidence=groups(job))
    return tell(
        "WATCH-016",
        "mixed" if works else "stand",
        subject=one_rank([one.rank for one in stands]) if works else Subject("job", "job"),
        evidence=groups(job),
        who=_ranks(stands),
        where=stands[0].where,
        others=_ranks(works) if works else "",
    )


def _with_recorded(
    job: Seen,
    found: list[Finding],
    verdict: Verdict,
    recorded: Sequence[tuple[str, Finding]],
) -> tuple[list[Finding], Verdict]:
    """Another source names somebody: it is followed where the stacks name nobody."""
    named = [(source, one) for source, one in recorded if one.subject.kind == "rank"]
    if not named:
        return found, verdict
    source, other = named[0]
    mine = {one.subject.name for one in found if one.subject.kind == "rank"}
    if verdict == "HUNG" and mine:
        if other.subject.name in mine:
            return [*found, other], verdict
        told = {"who": listed(sorted(mine)), "source": source, "other": other.title}
        return [_disagree(found, **told)], "CANNOT TELL"
    stacks = [one for one in job.ranks if f"rank {one.rank}" == other.subject.name]
    own = [f"rank {one.rank}: {stack_told(one.frames)}" for one in stacks]
    values = {"who": other.subject.name, "source": source, "said": other.title}
    evidence = [*own, *other.evidence, *groups(job)]
    return [
        tell("WATCH-008", "recorded", subject=other.subject, evidence=evidence, **values)
    ], "HUNG"


def _disagree(found: list[Finding], **told: object) -> Finding:
    evidence = [text for one in found for text in one.evidence]
    return tell("WATCH-016", "disagree", evidence=dict.fromkeys(evidence), **told)


def groups(job: Seen) -> list[str]:
    """Ranks by equal stack, the fewest first: who is odd stands in front."""
    found: dict[tuple[str, bool], list[int]] = {}
    for one in job.ranks:
        text = stack_told(one.frames) or one.look.unread or "its process has ended"
        found.setdefault((text, one.kind == "stopped"), []).append(one.rank)
    ordered = sorted(((text, of) for (text, _), of in found.items()), key=lambda item: len(item[1]))
    firsts = [one for one in job.ranks if one.rank in {ranks[0] for _, ranks in ordered}]
    return [f"{ranks_told(ranks)}: {text}" for text, ranks in ordered] + _native(firsts)


def _native(some: Iterable[Activity]) -> list[str]:
    """Where they were asked for: the stacks with C frames."""
    return [
        f"rank {one.rank} with C frames: {stack_told(main_frames(one.look.native), _MOST_NATIVE)}"
        for one in some
        if one.look.native
    ]


def _ranks(some: Sequence[Activity]) -> str:
    return ranks_told([one.rank for one in some])


def _rank(one: Activity) -> int:
    return one.rank


def summary(job: Seen) -> str:
    """`4 ranks looked at: 1 stopped, 3 wait`."""
    told = {kind: len(job.of(kind)) for kind in dict.fromkeys(one.kind for one in job.ranks)}
    parts = ", ".join(f"{count} {kind}" for kind, count in told.items())
    return f"ranks {spans(one.rank for one in job.ranks)}: {parts}"
