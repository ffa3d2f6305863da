"""How often `check` accuses a healthy device of being slow, and finds one that is 5 % slower.

Fleets are simulated: devices of a product differ by a lognormal spread, each figure of a device by a
noise of its own. The verdict is that of `checks/compute_rates.py`, on the figures that `check -l long`
takes of a GPU. Then devices that are held against their own past alone: one; two and eight that all
become faster and slower together from run to run. Run it as

    python benchmarks/compute_verdicts.py [DEVICES]

and see docs/benchmarks.md for what it gave.
"""

import sys
from functools import partial
from random import Random

from wirespeed.checks.compute_rates import fast_findings
from wirespeed.checks.levels import compute_plan
from wirespeed.model.compute_records import Compute, ComputeRate
from wirespeed.model.records import Run, World
from wirespeed.plan import ComputeWork

SLOWER = 0.95
DEVICES = 20_000
"""Healthy ones of each row of the table, at least."""
SPREAD = 0.01
"""Between devices that are held against their own past."""
INTERVAL = 0.003
"""Half width of a figure's own 95 % interval."""


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else DEVICES
    print(
        f"{'devices':>8} {'spread':>7} {'noise':>6} {'healthy':>8} {'accused':>8} {'per 1,000':>10} "
        f"{'slower':>7} {'found':>6}"
    )
    for count in (8, 64, 1000):
        for spread, noise in ((0.002, 0.002), (0.005, 0.005), (0.01, 0.003)):
            row(count, spread, noise, max(1, wanted // count))

    print(
        f"{'devices':>8} {'together':>8} {'runs':>6} {'noise':>7} {'nights':>8} {'accused':>8} "
        f"{'5 % slower found':>17}"
    )
    for devices, together in ((1, 0.0), (2, 0.03), (8, 0.03)):
        for runs in (5, 10, 30):
            for noise in (0.002, 0.005, 0.01, 0.03):
                nights(devices, together, runs, noise, max(1, wanted // 10 // devices))


def nights(devices: int, together: float, runs: int, noise: float, count: int) -> None:
    """Devices against their own past, whose figures differ so much from run to run, and all alike."""
    draw = Random(f"{devices} {runs} {noise}")
    accused = found = 0
    for _ in range(count):
        usual = [draw.lognormvariate(0, SPREAD) for _ in range(devices)]
        night = partial(one_night, usual, together, noise, draw)
        earlier = [run_of(night()) for _ in range(runs)]
        for slower in (1.0, SLOWER):
            findings = fast_findings(night(slower), partial(list, earlier))
            names = {one.subject.name for one in findings if one.status in ("warn", "fail")}
            found += slower < 1 and "n0" in names
            accused += len(names - {"n0"} if slower < 1 else names)
    print(
        f"{devices:>8} {together:>8.1%} {runs:>6} {noise:>7.1%} {count:>8,} {accused:>8} "
        f"{found / count:>17.1%}",
        flush=True,
    )


def one_night(
    usual: list[float], together: float, noise: float, draw: Random, slower: float = 1.0
) -> Compute:
    """slower: of the first device."""
    alike, rates = draw.lognormvariate(0, together), []
    for number, own in enumerate(usual):
        factor = alike * own * (1.0 if number else slower)
        rates += [
            figure(f"n{number}", work, factor * draw.lognormvariate(0, noise)) for work in works()
        ]
    return Compute(rates=tuple(rates))


def run_of(compute: Compute) -> Run:
    world = World(size=1, nodes=(), backend="nccl", launcher="local")
    return Run(
        id="00000000",
        command="check",
        verdict="READY",
        exit_code=0,
        started="2026-11-26T00:00:00Z",
        seconds=1.0,
        world=world,
        compute=compute,
    )


def row(count: int, spread: float, noise: float, fleets: int) -> None:
    draw = Random(f"{count} {spread} {noise}")
    accused = found = 0
    for _ in range(fleets):
        accused += len(named(count, spread, noise, draw, slow=False))
        found += "slow" in named(count, spread, noise, draw, slow=True)
    healthy = fleets * count
    print(
        f"{count:>8} {spread:>7.1%} {noise:>6.1%} {healthy:>8,} {accused:>8} "
        f"{1000 * accused / healthy:>10.2f} {fleets:>7,} {found / fleets:>6.1%}",
        flush=True,
    )


def named(count: int, spread: float, noise: float, draw: Random, *, slow: bool) -> set[str]:
    """Hosts that a verdict names; with `slow` one of them is 5 % slower than it would be."""
    rates = []
    for number in range(count):
        own = draw.lognormvariate(0, spread)
        host = "slow" if slow and number == 0 else f"n{number}"
        for work in works():
            value = own * draw.lognormvariate(0, noise) * (SLOWER if host == "slow" else 1.0)
            rates.append(figure(host, work, value))
    findings = fast_findings(Compute(rates=tuple(rates)), tuple)
    return {one.subject.name for one in findings if one.status in ("warn", "fail")}


def works() -> list[ComputeWork]:
    plan = compute_plan("long", frozenset())
    return [one for one in plan.works if one.on == "gpu"] if plan else []


def figure(host: str, work: ComputeWork, value: float) -> ComputeRate:
    return ComputeRate(
        host=host,
        device="GPU0",
        product="GPU",
        rank=0,
        dtype=work.dtype,
        op=work.op,
        together=True,
        per_second=value,
        low=value,
        high=value,
        own_per_second=value,
        own_spread=INTERVAL,
        samples=20,
    )


if __name__ == "__main__":
    main()
