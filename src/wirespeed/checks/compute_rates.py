"""Findings about how fast devices are: against others of their product, their data sheet, and cool.

A device is slow where its rate lies below the fleet's median by more than healthy devices do: the
fleet is the devices of one product in this world and in earlier runs that did not fail.
docs/compute.md says how often that accuses a good one (benchmarks/compute_verdicts.py).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, median, stdev, variance

from wirespeed.checks.compute import node_of, place_of
from wirespeed.checks.registry import not_applicable, tell
from wirespeed.model.compute_records import Compute, ComputeRate
from wirespeed.model.records import Finding, Run, Status
from wirespeed.model.units import counted
from wirespeed.model.verdicts import HISTORY
from wirespeed.reference.known import Past
from wirespeed.reference.shape import product_named
from wirespeed.statistics import MAD_TO_SIGMA, student_t

SPREAD = 0.01
"""Relative deviation between healthy devices of a product that is expected at least."""
FALSE_ALARMS = 0.0005
"""Of a healthy device over all of its figures."""
_FIGURES, _AGAINST = 12, 3
"""About so many figures has a device, each held against others, its own past and its usual share."""
FAIL_BELOW = 0.8
"""Of the median: a job that waits for it loses a fifth."""
FEW, FEW_BELOW = 4, 0.9
"""So many devices tell a spread; of fewer one is slow below this share of the best only, in the middle
of its figures of that kind (products, or memory), too."""
LEAST_RUNS = 5
"""Of a device's own past from which on it counts."""
NOISY = 0.04
"""Half width of a rate's interval from which on it is not judged."""
SURE = 0.01
"""Half width up to which it counts as a past: what was less sure would hide what is slow."""
BUSY = 0.5
"""Share of the time that a device's cores must be ours for its rate to be judged."""
NEAR_PEAK, NEAR_PEAK_BY_POWER = 0.5, 0.3
"""Share of a data sheet's peak that large products reach on healthy GPUs. Reports of V100, A40, A100 and
H100 tell of 0.6 to 0.9, of L4 0.35 to 0.5 (github.com/zzc0721/torch-performance-test-data)."""
_LITTLE_POWER = ("L4", "A10")
"""Products whose power limit (72 and 150 W) keeps large products far below the peak."""
NOT_TOLD = "clock, temperature and power are not told here"
_NOT_JUDGED = 3
"""Exit code of the first nights of a check of speed alone, which nothing can be compared with."""
_OF_OTHERS = "devices of its product"
HELD = 0.95
"""Share of its first rate that a device keeps when it is hot."""
_Who = tuple[str, str]
"""Host and device."""
_Key = tuple[str, str, str, str | int, bool, bool, int]


def fast_findings(found: Compute, past: Past) -> list[Finding]:
    """COMP-004 to 006: rates against the fleet, the data sheet, and the device's own before."""
    if not found.rates:
        return []
    earlier = [_unsuspected(run) for run in past() if _speaks(run)]
    return [*_slow(found.rates, earlier), *_peaks(found.rates), *_held(found.rates)]


def _speaks(run: Run) -> bool:
    alone = not any(node.facts.neighbours for node in run.world.nodes)
    good = run.verdict in HISTORY or run.exit_code == _NOT_JUDGED
    return good and alone and not run.config.get("inject")


def _unsuspected(run: Run) -> list[ComputeRate]:
    """Without nodes that it told to be slow: who stays slow would be its own measure in the end."""
    slow = {
        one.subject.name for one in run.findings if one.id == "COMP-004" and one.status == "warn"
    }
    return [one for one in run.compute.rates if one.host not in slow] if run.compute else []


@dataclass(frozen=True, slots=True)
class Slow:
    """How far a rate lies below what it is compared with."""

    share: float
    """Of the median."""
    fails: bool
    sigmas: float
    spread: float
    """Relative deviation of the others that it was held against."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Rates that one is held against, itself among them."""

    middle: float
    """Their median; of few the best."""
    spread: float
    """Relative deviation: of the median absolute one, and SPREAD at least."""
    count: int

    @staticmethod
    def of(rates: Collection[float]) -> "Fleet":
        if len(rates) < FEW:
            return Fleet(max(rates), SPREAD, len(rates))
        middle = median(rates)
        apart = median(abs(math.log(one / middle)) for one in rates)
        return Fleet(middle, max(SPREAD, MAD_TO_SIGMA * apart), len(rates))

    @staticmethod
    def of_past(rates: Sequence[float]) -> "Fleet":
        """Of a device's own good runs, LEAST_RUNS at least.

        What made some of them slow may come again, so that none is left out; and so few tell their
        deviation badly: it is widened as Student's t is wider than a normal distribution out there.
        """
        count, sure = len(rates), 1 - 2 * FALSE_ALARMS / (_FIGURES * _AGAINST)
        wider = student_t(sure, count - 1) / NormalDist().inv_cdf((1 + sure) / 2)
        spread = stdev(map(math.log, rates)) * wider * math.sqrt(1 + 1 / count)
        return Fleet(median(rates), max(SPREAD, spread), count)


def judged(rate: float, fleet: Fleet, tests: int, own: float = 0.0) -> Slow | None:
    """Whether a rate is slow beside those of others; None: it is not, or there are none.

    tests: figures of a device that may each accuse it; own: half width of its 95 % interval, relative.
    """
    share = rate / fleet.middle
    if fleet.count < 2 or (fleet.count < FEW and share > FEW_BELOW):
        return None
    sigmas = -math.log(share) / math.hypot(fleet.spread, own / 1.96)
    limit = NormalDist().inv_cdf(1 - FALSE_ALARMS / max(1, tests))
    if sigmas <= limit:
        return None
    return Slow(share, share * (1 + own) < FAIL_BELOW, sigmas, fleet.spread)


def _key(one: ComputeRate) -> _Key:
    """What must be alike for two rates to be compared."""
    how = one.together, bool(one.held), one.cores
    return one.product, one.op, one.dtype, one.size, *how


def _judgeable(one: ComputeRate) -> bool:
    return not one.reason and one.own_spread <= NOISY and one.own_share >= BUSY


def _slow(rates: Sequence[ComputeRate], earlier: Iterable[Sequence[ComputeRate]]) -> list[Finding]:
    """One for each slow device, with its worst figure."""
    timed = [one for one in rates if not one.reason]
    if not timed:
        return []
    fit = [one for one in timed if _judgeable(one)]
    if not fit:
        worst = max(timed, key=lambda one: (one.own_spread, -one.own_share))
        return [tell("COMP-004", "noisy", one=worst, at=place_of(worst))]
    groups: dict[_Key, dict[_Who, ComputeRate]] = defaultdict(dict)
    for one in fit:
        groups[_key(one)][one.host, one.device] = one
    before = _earlier(earlier, groups.keys())
    compared = [case for key, group in groups.items() for case in _compared(group, before[key])]
    few: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for one, rate, _, fleet in compared:
        if fleet.count < FEW:
            few[_kind(one)].append(rate / fleet.middle)
    found: dict[_Who, list[tuple[Slow, ComputeRate, str]]] = defaultdict(list)
    for one, rate, what, fleet in compared:
        slow = judged(rate, fleet, _AGAINST * len(groups), one.own_spread)
        if slow and (fleet.count >= FEW or median(few[_kind(one)]) <= FEW_BELOW):
            found[one.host, one.device].append((slow, one, what))
    if found:
        return [_told(cases) for cases in found.values()]
    if not compared:
        return [tell("COMP-004", "alone", one=fit[0], figure=fit[0].text(fit[0].own_per_second))]
    devices = counted(len({(one.host, one.device) for one in fit}), "device")
    against_others = any(what.endswith(_OF_OTHERS) for _, _, what, _ in compared)
    case = "good" if against_others else "as before"
    return [tell("COMP-004", case, devices=devices, figures=len(compared), left=_left(timed, fit))]


def _kind(one: ComputeRate) -> tuple[str, str, bool]:
    """A device's products, or what it moves."""
    return one.host, one.device, one.computes


def _left(timed: Sequence[ComputeRate], fit: Sequence[ComputeRate]) -> str:
    left = len(timed) - len(fit)
    return f"; {counted(left, 'figure')} too noisy to judge" if left else ""


def _earlier(
    earlier: Iterable[Sequence[ComputeRate]], keys: Iterable[_Key]
) -> dict[_Key, list[dict[_Who, float]]]:
    """Rates of earlier runs: by what was done, a run after the other, by device."""
    found: dict[_Key, list[dict[_Who, float]]] = {key: [] for key in keys}
    for run in earlier:
        rates: dict[_Key, dict[_Who, float]] = defaultdict(dict)
        for one in run:
            sure = _judgeable(one) and one.own_spread <= SURE
            if sure and (key := _key(one)) in found:
                rates[key][one.host, one.device] = one.own_per_second
        for key, by_device in rates.items():
            found[key].append(by_device)
    return found


def _compared(
    group: Mapping[_Who, ComputeRate], before: Sequence[Mapping[_Who, float]]
) -> Iterator[tuple[ComputeRate, float, str, Fleet]]:
    """Each device with what it is held against: others now or earlier, its own past, its usual share."""
    now = {who: one.own_per_second for who, one in group.items()}
    past: dict[_Who, list[float]] = defaultdict(list)
    for run in before:
        for who, rate in run.items():
            past[who].append(rate)
    every = {who: median(rates) for who, rates in past.items()} | now
    # Few tell nothing of how rates change from one time to another.
    fleet = Fleet.of((every if len(every) >= FEW else now).values())
    if fleet.count >= FEW:
        fleet = replace(fleet, spread=max(fleet.spread, math.hypot(SPREAD, _noise(before))))
    alike = [run for run in before if len(now) > 1 and run.keys() == now.keys()]
    for who, one in group.items():
        rate = now[who]
        if fleet.count > 1:
            what = "median" if fleet.count >= FEW else "best"
            yield one, rate, f"the {what} of {fleet.count} {_OF_OTHERS}", fleet
        if len(past[who]) >= LEAST_RUNS:
            what = f"the median of its own {len(past[who])} earlier runs"
            yield one, rate, what, Fleet.of_past(past[who])
        if len(alike) >= LEAST_RUNS and _lost_itself(who, now, past):
            what = f"what it was beside the same devices in {len(alike)} earlier runs"
            yield one, _share(who, now), what, Fleet.of_past([_share(who, run) for run in alike])


def _noise(before: Sequence[Mapping[_Who, float]]) -> float:
    """Relative deviation of a device's rate from run to run, beside that of the others; 0: not known.

    Eight devices of one run tell badly how far healthy ones lie apart: their noise is known from before.
    """
    shares: dict[_Who, list[float]] = defaultdict(list)
    for run in before:
        if len(run) >= FEW:
            middle = median(run.values())
            for who, rate in run.items():
                shares[who].append(math.log(rate / middle))
    known = [variance(one) for one in shares.values() if len(one) >= LEAST_RUNS]
    return math.sqrt(fmean(known)) if known else 0.0


def _share(who: _Who, rates: Mapping[_Who, float]) -> float:
    """Of the median of the others, which worked in the same minutes: what slows or speeds up all devices
    alike, such as a processor's clock, does not change it."""
    return rates[who] / median(rate for other, rate in rates.items() if other != who)


def _lost_itself(
    who: _Who, now: Mapping[_Who, float], past: Mapping[_Who, Sequence[float]]
) -> bool:
    """Whether a share that fell is its own loss: beside one or two others, these may have become faster,
    such as by a repair."""
    usual = {other: median(past[other]) for other in now}
    own = now[who] / usual[who]
    others = own * _share(who, usual) / _share(who, now)
    return len(now) >= FEW or own * others < 1


def _told(cases: Sequence[tuple[Slow, ComputeRate, str]]) -> Finding:
    slow, one, what = min(cases, key=lambda case: case[0].share)
    status: Status = "fail" if slow.fails else "warn"
    lines = tuple(f"{_what(each)}: {case.share:.3f} of {named}" for case, each, named in cases)
    return tell(
        "COMP-004",
        "slow",
        status=status,
        subject=node_of(one),
        at=place_of(one),
        slow=slow,
        what=what,
        less=1 - slow.share,
        figure=one.text(one.own_per_second),
        of=_what(one),
        evidence=lines,
        felt=one.felt or NOT_TOLD,
        core=_slow_core(one),
    )


def _slow_core(one: ComputeRate) -> str:
    """The core that holds it back, where one does."""
    if not one.slowest or one.slowest_share > FEW_BELOW:
        return ""
    return f"; {one.slowest} gives {one.slowest_share:.2f} of the median core"


def _what(one: ComputeRate) -> str:
    """`gemm bfloat16 8192x8192x8192 (all at once)`."""
    words = [one.op, one.dtype if one.op == "gemm" else "", one.shape]
    return " ".join([*filter(None, words), "(all at once)" if one.together else "(alone)"])


def _peaks(rates: Sequence[ComputeRate]) -> list[Finding]:
    """The best of each type, and of memory, against the data sheet; of each device.

    Not of int8: torch's call names no workspace and takes kernels of sm80 on Blackwell, far below the
    peak on good GPUs (github.com/pytorch/pytorch/issues/187094).
    """
    best: dict[tuple[str, str, str], ComputeRate] = {}
    for one in rates:
        key = one.host, one.device, one.dtype if one.op == "gemm" else "memory"
        if (
            one.peak
            and one.dtype != "int8"
            and (key not in best or one.per_second > best[key].per_second)
        ):
            best[key] = one
    low = [one for one in best.values() if one.high < _near(one) * one.peak]
    if low:
        return [
            tell(
                "COMP-005",
                "low",
                subject=node_of(one),
                at=place_of(one),
                of=_what(one),
                figure=one.text(one.own_per_second),
                share=one.per_second / one.peak,
                peak=one.text(one.peak),
                near=_near(one),
                felt=one.felt or NOT_TOLD,
            )
            for one in low
        ]
    if best:
        least = min(best.values(), key=lambda one: one.per_second / one.peak)
        return [
            tell(
                "COMP-005",
                "good",
                devices=counted(len({key[:2] for key in best}), "device"),
                share=least.per_second / least.peak,
                of=_what(least),
                at=place_of(least),
            )
        ]
    return [not_applicable("COMP-005", "share of the peak", "no peak is known of these devices")]


def _near(one: ComputeRate) -> float:
    product = product_named(one.product)
    little = product is not None and product.name in _LITTLE_POWER
    return NEAR_PEAK_BY_POWER if little else NEAR_PEAK


def _held(rates: Sequence[ComputeRate]) -> list[Finding]:
    long = [one for one in rates if one.held]
    sure = [one for one in long if _judgeable(one)]
    fell = [one for one in sure if one.held * (1 + 2 * one.own_spread) < HELD]
    if fell:
        return [
            tell(
                "COMP-006",
                "fell",
                subject=node_of(one),
                at=place_of(one),
                of=_what(one),
                held=one.held,
                less=1 - one.held,
                felt=one.felt or NOT_TOLD,
            )
            for one in fell
        ]
    if not sure:
        return [tell("COMP-006", "noisy", one=one, at=place_of(one)) for one in long[:1]]
    least = min(sure, key=lambda one: one.held)
    return [
        tell(
            "COMP-006",
            "good",
            devices=counted(len({(o.host, o.device) for o in sure}), "device"),
            held=least.held,
            felt=least.felt or NOT_TOLD,
        )
    ]
