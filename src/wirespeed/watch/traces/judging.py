"""From traces to findings, the record of what was seen, and a verdict."""

from dataclasses import replace

import numpy as np

from wirespeed.diagnose.flight import compare
from wirespeed.model.records import Finding
from wirespeed.watch.judge import LEAST_STEPS, Judged, judge
from wirespeed.watch.lateness import late_rank
from wirespeed.watch.traces.analysis import Analysed


def judged(found: Analysed) -> Judged:
    """Steps as `judge` does, and of dumps of the flight recorder who hangs."""
    seen = judge(
        found.table, world_size=found.world_size, traffic=found.traffic, unseen=found.unseen
    )
    if found.table.each.sum() < LEAST_STEPS:
        seen = replace(seen, findings=(*late_of(found), *seen.findings))
    if not found.dumps:
        return seen
    hung = [_unclear(one) for one in compare(found.dumps, len(found.damaged))]
    if len(found.dumps) < found.files:
        return replace(seen, findings=(*hung, *seen.findings))
    # Dumps alone tell who hangs; of steps they hold no more than the last collectives.
    rest = [one for one in seen.findings if one.status == "not_checked" and found.damaged]
    return replace(seen, findings=(*hung, *rest))


def _unclear(one: Finding) -> Finding:
    """Ranks that wait, nobody knows for whom: they hang, or were caught in the middle of a step."""
    return replace(one, status="not_checked") if one.status == "warn" else one


def late_of(found: Analysed) -> list[Finding]:
    """A trace of torch.profiler often holds three to ten steps, too few for `judge`."""
    caused = found.arrivals.caused(found.arrivals.offsets(), found.table.first)
    steps = found.table.columns["step"][: len(caused)]
    known = steps[~np.isnan(caused[: len(steps)])]
    return late_rank(caused, found.table.hosts, float(np.nanmedian(known)) if len(known) else 0.0)
