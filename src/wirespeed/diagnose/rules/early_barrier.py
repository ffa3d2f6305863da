"""Who is missing at a barrier early in a job: a guess that other signs can refute."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence, rank_of
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]


def _without_rank_0(evidence: Evidence) -> Iterator[Hit]:
    """The early barrier's lines, unless rank 0 waits at it too: then it prepares nothing.

    Of torch's timeouts every rank that waits prints one, so one who prints none is awaited.
    """
    waits = evidence.seen["WD-011"]
    told = evidence.seen["WD-001"].hits if "WD-001" in evidence.seen else []
    if 0 in waits.ranks or any(_rank(hit) == 0 for hit in told):
        return
    for hit in waits.hits:
        yield Hit(RULES[0], hit.line, hit.groups)


def _rank(hit: Hit) -> int | None:
    """Who wrote it, else the rank in its group that it names: the barrier is the whole job's."""
    told = hit.groups.get("group_rank", "")
    own = rank_of(hit)
    return own if own is not None else int(told) if told.isdecimal() else None


RULES: tuple[Rule, ...] = (
    Rule(
        id="WD-002",
        category="barrier-timeout-preprocessing",
        role="cause",
        stage="wait",
        needs=("WD-011",),
        # Somebody who is named, or who was killed or crashed, is missing for another reason.
        absent=(
            "WD-005",
            "WD-010",
            "MM-010",
            "MM-011",
            "MM-013",
            "END-001",
            "END-002",
            "END-003",
            "END-009",
            "PY-031",
        ),
        derive=_without_rank_0,
        sentence="ranks waited {limit} ms at an early barrier (a 1-element {op}, sequence number "
        "{seq}) for a missing rank: most likely rank 0 still prepares data",
        because="a 1-element all-reduce is torch's barrier, and rank 0 reports no timeout; so early in "
        "a job the others usually wait while it preprocesses (tokenises, downloads, caches) the data "
        "set or loads a model, which took longer than the timeout of 10 or 30 min",
        costs="the job ends before the first step",
        fix="preprocess the data set once beforehand, or raise the timeout: ddp_timeout=7200 "
        "(Trainer), InitProcessGroupKwargs(timeout=…) (accelerate), "
        "init_process_group(timeout=timedelta(hours=2)); if rank 0 was not slow, see "
        "its log for an error, and the network between the nodes",
        next="py-spy dump --pid PID-OF-RANK-0 while the others wait",
        explains=(
            "WD-001",
            "watchdog-aftermath",
            "launcher-exit",
            "exit-code",
            "END-004",
            "sigterm",
            "nccl-trace",
        ),
        links=(
            "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",
            "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
        ),
    ),
)
