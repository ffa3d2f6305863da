"""From traces to findings, the record of what was seen, and a verdict."""

from dataclasses import replace

from wirespeed.diagnose.flight import compare
from wirespeed.watch.judge import LEAST_STEPS, Judged, judge
from wirespeed.watch.traces.analysis import Analysed
from wirespeed.watch.traces.lateness import late_rank


def judged(found: Analysed) -> Judged:
    """Steps as `judge` does, and of dumps of the flight recorder who hangs."""
    seen = judge(
        found.table, world_size=found.world_size, traffic=found.traffic, unseen=found.unseen
    )
    if found.table.each.sum() < LEAST_STEPS:
        seen = replace(seen, findings=(*late_rank(found), *seen.findings))
    if not found.dumps:
        return seen
    hung = compare(found.dumps, len(found.damaged))
    if len(found.dumps) < found.files:
        return replace(seen, findings=(*hung, *seen.findings))
    # Dumps alone tell who hangs; of steps they hold no more than the last collectives.
    rest = [one for one in seen.findings if one.status == "not_checked" and found.damaged]
    return replace(seen, findings=(*hung, *rest))
