"""All that can be seen of a node's ranks from outside, judged together."""

from dataclasses import replace

from wirespeed.checks.registry import tell
from wirespeed.diagnose.findings import ranks_told
from wirespeed.diagnose.flight import compare
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Finding
from wirespeed.model.verdicts import Verdict
from wirespeed.watch.attach.flight import Dumps, ask_for_dumps, moved
from wirespeed.watch.attach.judge import judge, seen
from wirespeed.watch.attach.look import NodeLook, look
from wirespeed.watch.attach.ranks import Selection
from wirespeed.watch.attach.ras import addresses, ras_says

_RECORDER = "torch's flight recorder"


def whole_look(
    chosen: Selection, seconds: float, *, native: bool
) -> tuple[NodeLook, list[Finding], Verdict]:
    """Stacks and counts over that time; the flight recorder before and after it; RAS at the end."""
    before = ask_for_dumps(chosen.ranks)
    one = look(chosen.ranks, seconds, native=native, ended=chosen.ended, beside=chosen.beside)
    after = ask_for_dumps(chosen.ranks) if before.by_rank else before
    recorded = (
        [(_RECORDER, each) for each in compare(after.by_rank.values())] if after.by_rank else []
    )
    reported, lines, unread = _ras(one)
    recorded += [("NCCL's RAS", each) for each in reported]
    failed = [(source, each) for source, each in recorded if each.status == "fail"]
    found, verdict = judge(seen([one]), failed, issued=moved(before.by_rank, after.by_rank))
    lines += [f"{source}: {each.title}" for source, each in recorded if each.status != "fail"]
    if lines:
        found[0] = replace(found[0], evidence=(*found[0].evidence, *lines))
    return one, [*found, *unread, *_without_dump(after)], verdict


def _without_dump(dumps: Dumps) -> list[Finding]:
    reasons = dict.fromkeys(dumps.unread.values())
    ranks = {why: [rank for rank, told in dumps.unread.items() if told == why] for why in reasons}
    return [tell("WATCH-016", "no dump", who=ranks_told(of), why=why) for why, of in ranks.items()]


def _ras(one: NodeLook) -> tuple[list[Finding], list[str], list[Finding]]:
    """Its findings, its text, and why a job that names its address gave none."""
    named = [rank.process for rank in one.ranks if "NCCL_RAS_ADDR" in rank.process.environment]
    asked = named or [rank.process for rank in one.ranks if rank.cuda]
    found: list[Finding] = []
    lines: list[str] = []
    unread: list[Finding] = []
    for address in addresses(asked):
        try:
            reported, told = ras_says(address)
        except CannotMeasure as error:
            unread += [tell("WATCH-016", "no RAS", why=error.saw)] if named else []
        else:
            found += reported
            lines += told
    return found, lines, unread
