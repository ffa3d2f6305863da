"""How often `bench --env` is wrong about a setting, and how small a difference it finds. Simulated.

Each run is a default and one setting (or four) over the usual number of rounds. A round's figure is
the machine's mood of that round, shared by all, times noise of its own; the setting's true effect is
known. Told are the shares of the verdicts on a setting; without a difference, of the runs in which any
setting is called different. Exit code 1 when that is above 5 % and three sigma of the count.

Run: python benchmarks/settings_verdicts.py [RUNS]
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

from wirespeed.checks.combinations import Taken, judge_settings, usual_rounds
from wirespeed.model.records import Measurement, TimeStats

RUNS = 2000
PROMISED = 0.05
EFFECTS = (1.0, 1.03, 1.05, 1.10, 1.20)
VERDICTS = ("same", "slower", "faster", "not enough rounds")

Noise = Callable[[random.Random], float]


def lognormal(sigma: float, generator: random.Random) -> float:
    return generator.lognormvariate(0, sigma)


def two_modes(generator: random.Random) -> float:
    """A world draws the slow path in half of the rounds."""
    return generator.choice((1.0, 1.15)) * generator.lognormvariate(0, 0.01)


def outliers(generator: random.Random) -> float:
    """One round in ten is disturbed."""
    disturbed = 3.0 if generator.random() < 0.1 else 1.0
    return disturbed * generator.lognormvariate(0, 0.02)


NOISES: dict[str, Noise] = {
    "quiet, 1 %": partial(lognormal, 0.01),
    "2 %": partial(lognormal, 0.02),
    "5 %": partial(lognormal, 0.05),
    "10 %": partial(lognormal, 0.10),
    "two modes": two_modes,
    "outliers": outliers,
}


def measurement(seconds: float) -> Measurement:
    time = dict.fromkeys(("median", "mean", "low", "high", "min", "p95", "p99", "max"), seconds)
    return Measurement(
        op="all_reduce",
        engine="torch",
        dtype="float32",
        redop="sum",
        root=-1,
        in_place=False,
        size_bytes=1024,
        count=256,
        ranks=2,
        iterations=9,
        time=TimeStats(**time),
        algbw=1024 / seconds,
        busbw=1024 / seconds,
    )


def taken(name: str, times: list[float]) -> Taken:
    rounds = {n: {"all_reduce": measurement(t)} for n, t in enumerate(times, 1)}
    return Taken(name=name, rounds=rounds)


def verdicts(generator: random.Random, noise: Noise, effect: float, rivals: int) -> list[str]:
    rounds = usual_rounds(rivals, 1)
    moods = [generator.lognormvariate(0, 0.3) for _ in range(rounds)]
    default = taken("default", [mood * noise(generator) for mood in moods])
    others = [
        taken(f"A={n}", [effect * mood * noise(generator) for mood in moods]) for n in range(rivals)
    ]
    return [one.verdict for one in judge_settings([default, *others], rivals)[1:]]


def shares(noise: Noise, effect: float, rivals: int, runs: int) -> tuple[Counter[str], int]:
    """(verdicts of all settings, runs in which any setting is called faster or slower)."""
    generator, counts, different = random.Random(11), Counter[str](), 0
    for _ in range(runs):
        found = verdicts(generator, noise, effect, rivals)
        counts.update(found)
        different += any(one in ("faster", "slower") for one in found)
    return counts, different


def main(runs: int) -> int:
    lines, broken = [], False
    for rivals in (1, 4):
        lines += [f"settings beside the default: {rivals}; rounds: {usual_rounds(rivals, 1)}", ""]
        lines += ["| noise of a round | effect | same | slower | faster | not enough rounds |"]
        lines += ["|---|---|---|---|---|---|"]
        for name, noise in NOISES.items():
            for effect in EFFECTS:
                counts, different = shares(noise, effect, rivals, runs)
                cells = [f"{counts[v] / counts.total():.1%}" for v in VERDICTS]
                lines.append(f"| {name} | {effect - 1:+.0%} | {' | '.join(cells)} |")
                bound = runs * PROMISED + 3 * (runs * PROMISED * (1 - PROMISED)) ** 0.5
                broken |= effect == 1.0 and different > bound
        lines.append("")
    sys.stdout.write("\n".join(lines) + ("promise broken\n" if broken else "promise kept\n"))
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
