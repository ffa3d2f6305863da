"""Efficiency of every number of ranks against the fewest, and where the rest went."""

from collections.abc import Sequence
from dataclasses import replace

from wirespeed.model.training_records import Ratio, Training
from wirespeed.rank.training.rounds import PARTS, Samples
from wirespeed.rank.training.summary import yardstick_of
from wirespeed.training.efficiency import Loss, ScalePoint, scaled

_WORDS = {
    "exposed_communication": "exposed communication",
    "slowest_rank": "slowest rank",
    "contention": "memory, cores",
    "smaller_batch": "smaller batch",
    "slower_compute": "slower compute",
    "unexplained": "not explained",
}


def efficiencies(records: Sequence[Training], taken: Sequence[Samples]) -> list[Training]:
    """The same records with their efficiency, grade and losses, where they belong to a scaling."""
    done = list(records)
    families: dict[tuple[str, str, float | None], list[int]] = {}
    for i, one in enumerate(records):
        if one.study != "compare":
            families.setdefault((one.study, one.strategy, one.bucket_mb), []).append(i)
    for members in families.values():
        points = {records[i].ranks: (i, _point(taken[i], taken)) for i in members}
        for found in scaled([point for _, point in points.values()]):
            i, _ = points[found.point.ranks]
            told = found.efficiency
            done[i] = replace(
                records[i],
                efficiency=Ratio(value=told.value, low=told.low, high=told.high),
                grade=told.grade,
                loss=_shares(found.loss),
            )
    return done


def _point(samples: Samples, taken: Sequence[Samples]) -> ScalePoint:
    case = samples.case
    yardstick = yardstick_of(case, taken)
    return ScalePoint(
        ranks=case.ranks,
        samples=case.samples,
        step_s=tuple(samples.round_means()),
        unsynchronised_s=_by_rank(yardstick) if yardstick else (),
    )


def _by_rank(samples: Samples) -> tuple[float, ...]:
    import torch

    step = PARTS.index("step")
    means: list[float] = torch.cat([turn[:, :, step] for turn in samples.turns], 1).mean(1).tolist()
    return tuple(means)


def _shares(loss: Loss) -> dict[str, float]:
    """Those that are known; `slower compute` only where it was not split further."""
    shares = {}
    for name, words in _WORDS.items():
        value = getattr(loss, name)
        split = name == "slower_compute" and loss.contention is not None
        if value is not None and not split and (value or name != "unexplained"):
            shares[words] = value
    return shares
