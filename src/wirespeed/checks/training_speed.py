"""The finding about the speed of training: a mean step against that of a baseline of the user."""

from collections.abc import Iterable

from wirespeed.checks.registry import tell
from wirespeed.checks.speed import STEP, by_range, grade_time, why_no_pass, worse
from wirespeed.model.records import Finding, World
from wirespeed.model.training_records import Training
from wirespeed.model.units import format_duration
from wirespeed.reference import Reference


def step_findings(
    world: World, trainings: Iterable[Training], baselines: Reference
) -> list[Finding]:
    """Return a finding for each training result whose step a baseline knows; none without one."""
    findings = []
    for training in trainings:
        if training.verdict == "yardstick":
            continue  # it trains nothing: the others are compared with it
        expectation = baselines.expect_step(world, training)
        if expectation is None or not expectation.time_s:
            continue
        step = training.step
        grade = grade_time(expectation, step.mean, step.low)
        grade = worse(grade, by_range(expectation, grade.share, step.low, step.high))
        reason = why_no_pass(expectation) if grade.status == "pass" else ""
        case = "measured" if reason else {"pass": "good"}.get(grade.status, "slow")
        status = {"status": grade.status} if case == "slow" else {}
        findings.append(
            tell(
                STEP,
                case,
                label=f"{training.strategy}, {training.model}",
                step=format_duration(step.mean),
                share=f"{grade.share:.2f}",
                expected=grade.expected,
                because=reason,
                **status,
            )
        )
    return findings
