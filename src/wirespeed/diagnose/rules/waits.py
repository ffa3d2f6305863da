"""What the watchdogs of several ranks say together: which rank is behind the collective that hangs."""

from collections import Counter
from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence, rank_of
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]


def _behind(evidence: Evidence) -> Iterator[Hit]:
    """Ranks whose last enqueued work comes before the one in which others timed out.

    A work's number counts within its process group, so only ranks of one group are compared; lines
    that name no group are of one.
    """
    waits = evidence.seen["WD-001"].hits
    last: dict[tuple[str, int], tuple[int, Hit]] = {}
    for hit in evidence.seen["WD-003"].hits:
        rank = _rank(hit)
        if rank is not None:
            key = hit.groups.get("group", ""), rank
            last[key] = max(last.get(key, (-1, hit)), (_number(hit, "enqueued"), hit), key=_first)
    stuck = Counter(_number(hit, "seq") for hit in waits)
    number, times = stuck.most_common(1)[0]
    wait = next(hit for hit in waits if _number(hit, "seq") == number)
    waiting = {_rank(hit) for hit in waits if _number(hit, "seq") == number}
    group = next((group for (group, rank) in last if rank in waiting), "")
    late = {rank: found for (of, rank), found in last.items() if of == group and found[0] < number}
    # A rank that timed out elsewhere waits for somebody too: who is to blame cannot be told.
    if not late or len(late) > times or {_rank(hit) for hit in waits} & set(late):
        return
    for rank, (enqueued, hit) in sorted(late.items()):
        groups = {
            **wait.groups,
            "rank": str(rank),
            "enqueued": str(enqueued),
            "waiting": str(times),
        }
        yield Hit(RULES[0], hit.line, groups)


def _rank(hit: Hit) -> int | None:
    told = hit.groups.get("group_rank", "")
    own = rank_of(hit)
    return own if own is not None else int(told) if told.isdecimal() else None


def _number(hit: Hit, name: str) -> int:
    return int(hit.groups[name])


def _first(pair: tuple[int, Hit]) -> int:
    return pair[0]


RULES: tuple[Rule, ...] = (
    Rule(
        id="WAIT-001",
        category="rank-behind",
        role="cause",
        stage="program",
        needs=("WD-001", "WD-003"),
        absent=("WD-005", "WD-008", "WD-010", "MM-010", "MM-011", "MM-013"),
        derive=_behind,
        sentence="rank {rank} is behind: its last enqueued work is {enqueued}, while others wait in "
        "{op} (sequence number {seq}, size {size})",
        because="a collective ends only when every rank calls it; this rank never called it, so it is "
        "stuck or slow in its own code before it",
        costs="{waiting} rank(s) waited until their watchdogs ended the job",
        fix="look at what rank {rank} did before it: its log, data loading, a checkpoint, an "
        "evaluation on this rank only, an exception that was caught",
        next="py-spy dump --pid PID on rank {rank} while it hangs, or TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
        "and wirespeed diagnose on the dumps",
        explains=(
            "watchdog-timeout",
            "watchdog-aftermath",
            "launcher-exit",
            "barrier-timeout-preprocessing",
        ),
        links=("https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",),
    ),
)
