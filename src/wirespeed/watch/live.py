"""What a person sees of a watched job while it runs, of the table of its steps."""

from collections.abc import Sequence

import numpy as np

from wirespeed.model.records import Finding
from wirespeed.statistics import has_interval, median_interval
from wirespeed.views.live import LiveJob, LiveStep
from wirespeed.watch.judge import Judged
from wirespeed.watch.own_work import median_over
from wirespeed.watch.steps import StepTable

_RECENT = 100
"""Steps that the newest one is compared with."""
_STANDS_OUT = 0.05
"""Share of a step that a rank must be later than the median to be named."""


def live_job(table: StepTable, judged: Judged | None, findings: Sequence[Finding]) -> LiveJob:
    """A snapshot; `judged` and `findings` may be some seconds old."""
    rows = max(int(np.searchsorted(-np.cumsum(table.each[::-1]), -_RECENT)), 1)
    recent = {name: table.columns[name][:, -rows:] for name in ("step", "blocked")}
    step, blocked = recent["step"], recent["blocked"]
    if not table.each.size or np.isnan(step).all():
        return LiveJob(now=LiveStep(step=-1), hosts=tuple(table.hosts), findings=tuple(findings))
    times, own = median_over(step, 0), step - blocked
    late = median_over(own - median_over(own, 0), 1)
    whole = np.maximum(np.nansum(step, axis=1), 1e-9)
    exposed = float(np.median(np.nansum(blocked, axis=1) / whole))
    known = times[~np.isnan(times)]
    middle = median_interval([float(one) for one in known])
    certain = has_interval(len(known))
    usual = float(np.median(known))
    last = int(np.nanargmax(late)) if not np.isnan(late).all() else -1
    stands_out = last >= 0 and late[last] > _STANDS_OUT * usual
    name = f"rank {last}" if stands_out else ""
    now = LiveStep(
        step=int(table.first[-1] + table.each[-1] - 1),
        step_s=float(known[-1]),
        low_s=middle.low if certain else 0.0,
        high_s=middle.high if certain else 0.0,
        exposed=exposed,
        last=name,
        late_s=float(late[last]) if stands_out else 0.0,
        since_step=_since(judged, name),
    )
    shown = tuple(None if np.isnan(one) else float(one) for one in late)
    return LiveJob(
        now=now,
        hosts=tuple(table.hosts),
        late_s=shown,
        recent_s=tuple(float(one) for one in known),
        findings=tuple(findings),
    )


def _since(judged: Judged | None, name: str) -> int:
    changes = judged.watched.changes if judged else ()
    return next((one.step for one in changes if one.subject == name), -1)
