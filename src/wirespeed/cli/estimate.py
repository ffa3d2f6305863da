"""How long a plan measures at most, as one line before long work starts."""

from wirespeed.plan import Plan

_WORTH_SAYING_S = 10.0
_WARM_AND_TIMED = 1.5
"""Of a size's time: it is warmed up for half of it, at most."""
_AFTER_ROUNDS = 2.0
"""Communication time, bucket model and cost model of `train`, in times of its rounds."""


def estimate(plan: Plan) -> str:
    """Return how long the plan measures at most; empty where that is short or not known before."""
    amount, seconds = _amount(plan)
    if plan.max_time_s is not None:
        seconds = plan.max_time_s
        amount = f"{amount}, as far as they fit into --max-time" if amount else "--max-time"
    if not amount or seconds < _WORTH_SAYING_S:
        return ""
    return f"about {_text(seconds)} at most, beside start-up and data checks: {amount}"


def _amount(plan: Plan) -> tuple[str, float]:
    """Return what is measured, and the seconds that all of it takes at most."""
    training = plan.training
    if training is not None:
        if training.lasting is not None or training.rounds is not None:
            return "", 0.0
        cases = _counted(len(training.cases), "case")
        rounds_s = training.max_time_s
        total = rounds_s * (1 + _AFTER_ROUNDS)
        return f"{cases}, {_text(rounds_s)} for their rounds, then their communication time", total
    if any((plan.compute, plan.storage, plan.soak, plan.pairs, plan.replay, plan.shape)):
        return "", 0.0  # how long these take depends on what the nodes have
    timed = [step for step in plan.steps if step.measure is not None]
    measures = [step.measure for step in timed if step.measure is not None]
    if not measures or any(one.iterations is not None for one in measures):
        return "", 0.0
    each = [_WARM_AND_TIMED * one.max_time_s for one in measures]
    operations = _counted(len({step.case.op for step in timed}), "operation")
    sizes = len({step.case.size_bytes for step in timed if step.case.size_bytes})
    grid = len({step.case.op for step in timed}) * sizes == len(timed)
    amount = (
        f"{operations} × {_counted(sizes, 'size')}"
        if grid
        else f"{_counted(len(timed), 'measurement')} of {operations}"
    )
    if plan.max_time_s is None:
        amount += f", at most {_text(max(each))} each"
    return amount, sum(each)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _text(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
