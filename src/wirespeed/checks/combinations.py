"""Compared settings: from the rounds of each combination to verdicts against the default. Pure.

Every round gives one figure a case: the slowest rank's median in a world of its own. A combination
is compared with the default by the ratios of their rounds (`statistics.paired_verdict`, as strategies
of `train` are). The verdict on the whole takes each round's geometric mean over the cases, and divides
the error by the number of combinations (Bonferroni); the verdicts on single cases divide it by
combinations times cases. docs/settings.md says what that promises.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean, median

from wirespeed.model.bench_records import DEFAULT, Setting, SettingFigures
from wirespeed.model.records import Measurement
from wirespeed.model.training_records import Ratio
from wirespeed.model.units import format_size
from wirespeed.statistics import median_interval, paired_verdict, time_stats

_ERROR = 0.05


@dataclass(slots=True, kw_only=True)
class Taken:
    """What one combination gave so far."""

    name: str
    values: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    rounds: dict[int, dict[str, Measurement]] = field(default_factory=dict)
    """By number of the round, from 1: the measurements by `case_of`."""
    given_up: str = ""
    """`failed` or `dropped`; empty while it takes part."""
    reason: str = ""

    @property
    def label(self) -> str:
        """What marks its measurements: the default's are those of any other run."""
        return "" if self.name == DEFAULT else self.name


def case_of(m: Measurement) -> str:
    """`all_reduce float32 1 MiB`: tells the cases of one run apart."""
    if not m.size_bytes:
        return m.op
    parts = [m.op, m.dtype, format_size(m.size_bytes, exact=True)]
    parts += [m.redop] if m.redop not in ("none", "sum") else []
    parts += ["in place"] if m.in_place else []
    return " ".join(parts)


def needed_rounds(combinations: int, cases: int = 1) -> int:
    """The fewest rounds with which a verdict on so many comparisons can be given at all."""
    return _rounds_until(lambda n: 2.0 ** (1 - n), combinations * cases)


def usual_rounds(combinations: int, cases: int) -> int:
    """Rounds with which one disturbed round on either side spoils no verdict on the whole.

    The second smallest to the second largest ratio must then enclose the median: outside of it with
    the probability 2 (n + 1) / 2^n.
    """
    robust = _rounds_until(lambda n: (n + 1) * 2.0 ** (1 - n), combinations)
    return max(robust, needed_rounds(combinations, cases))


def judge_settings(taken: Sequence[Taken], combinations: int, after: int = 0) -> list[Setting]:
    """A record each, the default first among `taken`; only rounds later than `after` count.

    combinations: how many were to be compared with the default; those that failed on the way count.
    """
    default = taken[0]
    cases = max(1, len({case for one in default.rounds.values() for case in one}))
    found = [_default(default, after)]
    found += [_judged(one, default, max(1, combinations), cases, after) for one in taken[1:]]
    winner = min(filter(_could_win, found), key=_value, default=None)
    return [replace(one, winner=one is winner) for one in found]


def whole_ratios(one: Taken, default: Taken, after: int = 0) -> list[float]:
    """By round in which both took part: the geometric mean over the cases of time over the default's."""
    rounds = _common(one, default, after)
    cases = _cases(one, default, rounds)
    return [
        geometric_mean([_time(one, r, case) / _time(default, r, case) for case in cases])
        for r in (rounds if cases else ())
    ]


def pooled(one: Taken, after: int = 0) -> list[Measurement]:
    """A measurement a case, whose samples are the rounds' medians."""
    rounds = [found for number, found in sorted(one.rounds.items()) if number > after]
    cases = dict.fromkeys(case for found in rounds for case in found)
    return [_pooled([r[case] for r in rounds if case in r], one) for case in cases]


def _pooled(rounds: Sequence[Measurement], one: Taken) -> Measurement:
    first = rounds[0]
    time = time_stats([m.time.median for m in rounds])
    checked = [m.wrong for found in one.rounds.values() for m in found.values() if _like(m, first)]
    algbw = first.size_bytes / time.median if time.median > 0 else 0.0
    last, times = Counter(m.last_rank for m in rounds).most_common(1)[0]
    return replace(
        first,
        time=time,
        iterations=len(rounds),
        stopped_by="count",
        algbw=algbw,
        busbw=algbw * first.busbw / first.algbw if first.algbw else 0.0,
        wrong=max((wrong for wrong in checked if wrong is not None), default=None),
        skew=median(m.skew for m in rounds),
        last_rank=last,
        last_share=times / len(rounds),
        rank_medians=tuple(map(median, zip(*(m.rank_medians for m in rounds), strict=False))),
        setting=one.label,
    )


def _like(m: Measurement, other: Measurement) -> bool:
    return case_of(m) == case_of(other)


def _default(default: Taken, after: int) -> Setting:
    rounds = [number for number in sorted(default.rounds) if number > after]
    cases = _cases(default, default, rounds)
    return Setting(
        name=DEFAULT,
        unset=default.unset,
        verdict="failed" if default.given_up else DEFAULT,
        rounds=tuple(rounds),
        reason=default.reason,
        figures=tuple(_figures(default, case, rounds) for case in cases),
    )


def _judged(one: Taken, default: Taken, combinations: int, cases: int, after: int) -> Setting:
    base = Setting(
        name=one.name,
        values=dict(one.values),
        unset=one.unset,
        verdict=one.given_up or "not enough rounds",
        needed=needed_rounds(combinations),
        reason=one.reason,
    )
    rounds = _common(one, default, after)
    if one.given_up or not rounds:
        return base
    confidence = 1 - _ERROR / combinations / cases
    figures = tuple(
        _compared(one, default, case, rounds, confidence) for case in _cases(one, default, rounds)
    )
    ratio, verdict = _whole(one, default, after, 1 - _ERROR / combinations)
    verdict = "mixed" if _mixed(figures) else verdict
    return replace(base, rounds=tuple(rounds), ratio=ratio, verdict=verdict, figures=figures)


def _whole(one: Taken, default: Taken, after: int, confidence: float) -> tuple[Ratio | None, str]:
    ratios = whole_ratios(one, default, after)
    if not ratios:
        return None, "not enough rounds"
    value, interval, verdict = paired_verdict(ratios, [1.0] * len(ratios), confidence)
    return Ratio(value=value, low=interval.low, high=interval.high), verdict


def _mixed(figures: Sequence[SettingFigures]) -> bool:
    return {"faster", "slower"} <= {one.verdict for one in figures}


def _compared(
    one: Taken, default: Taken, case: str, rounds: Sequence[int], confidence: float
) -> SettingFigures:
    """One case, its time over the default's round by round."""
    mine = [_time(one, r, case) for r in rounds]
    other = [_time(default, r, case) for r in rounds]
    value, interval, verdict = paired_verdict(mine, other, confidence)
    ratio = Ratio(value=value, low=interval.low, high=interval.high)
    return replace(_figures(one, case, rounds), ratio=ratio, verdict=verdict)


def _figures(one: Taken, case: str, rounds: Sequence[int]) -> SettingFigures:
    times = [_time(one, r, case) for r in rounds]
    interval = median_interval(times)
    return SettingFigures(
        case=case,
        median=median(times),
        low=interval.low,
        high=interval.high,
        round_times=tuple(times),
    )


def _common(one: Taken, default: Taken, after: int) -> list[int]:
    return [r for r in sorted(one.rounds) if r > after and r in default.rounds]


def _cases(one: Taken, default: Taken, rounds: Sequence[int]) -> list[str]:
    """Those that both have in each of the rounds, with a time above 0."""
    if not rounds:
        return []
    worlds = [taken.rounds[r] for r in rounds for taken in (one, default)]
    first = default.rounds[rounds[0]]
    return [c for c in first if all(c in w and w[c].time.median > 0 for w in worlds)]


def _time(one: Taken, number: int, case: str) -> float:
    return one.rounds[number][case].time.median


def _could_win(one: Setting) -> bool:
    return one.verdict == "faster" and all(f.verdict != "slower" for f in one.figures)


def _value(one: Setting) -> float:
    return one.ratio.value if one.ratio else 1.0


def _rounds_until(outside: Callable[[int], float], comparisons: int) -> int:
    """The fewest rounds n with outside(n), the error of one comparison, small enough."""
    n = 2
    while outside(n) > _ERROR / max(1, comparisons):
        n += 1
    return n
