"""Are lemons found, and nobody else? Simulated fleets of 1,000 nodes over a year, 1 % of them lemons.

Each row is some fleets (lemon_fleet.py); it is looked every three days, over what was known
then. Accused wrongly is who is accused at any look without being a lemon by then; found is a lemon that
is accused at most 60 days after it became one. Lemons stay in use all the year, found or not.

Exit code 1 when a promise is broken. Run: python benchmarks/lemons.py
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from statistics import median

from lemon_fleet import FleetSpec, SimulatedFleet
from wirespeed.fleet.job_ends import JobTable
from wirespeed.fleet.lemons import find_lemons

DAY_S = 86400.0
EVERY_DAYS = 3
FOUND_DAYS = 60
LEAST_PRECISION, LEAST_RECALL = 0.95, 0.8
ROWS: tuple[tuple[str, FleetSpec, int, bool], ...] = (
    ("Slurm, jobs and events of nodes", FleetSpec(), 10, True),
    ("Slurm, jobs alone", FleetSpec(named=0.0), 10, False),
    ("only that jobs failed", FleetSpec(told=0.0), 4, False),
    ("weak lemons: a failure in 5 to 20 days", FleetSpec(lemon_a_day=(0.05, 0.2)), 4, False),
    ("no lemons", FleetSpec(lemons=0.0), 4, True),
)
"""What is known or so, the fleet, how many, and whether the promise is of it."""


@dataclass(slots=True)
class Score:
    lemons: int = 0
    found: int = 0
    accused: int = 0
    wrong: int = 0
    looks: int = 0
    days: list[float] = field(default_factory=list)
    """From the first day as a lemon until it is accused, of those that ever are."""

    def add(self, fleet: SimulatedFleet) -> None:
        since = {one.node: one.since_s / DAY_S for one in fleet.lemons}
        first = dict(self._accusations(fleet))
        right = {n: day - since[n] for n, day in first.items() if since.get(n, 1e9) <= day}
        self.lemons += len(since)
        self.found += sum(days <= FOUND_DAYS for days in right.values())
        self.accused += len(first)
        self.wrong += len(first) - len(right)
        self.days += right.values()

    def __add__(self, other: "Score") -> "Score":
        return Score(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def _accusations(self, fleet: SimulatedFleet) -> Iterator[tuple[str, int]]:
        """Each node that is ever accused, with the day on which it was for the first time."""
        table, known = JobTable.of(fleet.jobs), set[str]()
        for day in range(EVERY_DAYS, fleet.spec.days + 1, EVERY_DAYS):
            self.looks += 1
            for one in find_lemons(table, day * DAY_S).suspects:
                if one.accused and one.node not in known:
                    known.add(one.node)
                    yield one.node, day

    @property
    def precision(self) -> float:
        return 1 - self.wrong / self.accused if self.accused else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.lemons if self.lemons else 1.0

    def row(self, name: str, fleets: int) -> str:
        recall = f"{self.recall:.2f}" if self.lemons else "–"
        days = f"{median(self.days):.0f}" if self.days else "–"
        return (
            f"| {name} | {fleets} | {self.lemons} | {self.accused} | {self.wrong} | "
            f"{self.precision:.3f} | {recall} | {days} |"
        )


def looked_at(row: int, seed: int) -> tuple[Score, int, float]:
    """One fleet; also its jobs, and the seconds of CPU of all looks."""
    fleet, score = SimulatedFleet(ROWS[row][1], seed), Score()
    began = time.process_time()
    score.add(fleet)
    return score, len(fleet.jobs), time.process_time() - began


def main() -> int:
    print("| what is known | fleets | lemons | accused | wrongly | precision | recall | days |")
    print("|---|---|---|---|---|---|---|---|")
    good, jobs, looks, looking = True, 0, 0, 0.0
    with ProcessPoolExecutor() as pool:
        runs = [
            [pool.submit(looked_at, row, 1000 + k) for k in range(fleets)]
            for row, (_, _, fleets, _) in enumerate(ROWS)
        ]  # other seeds than it was written with
        for (name, _, fleets, promised), futures in zip(ROWS, runs, strict=True):
            done = [one.result() for one in futures]
            score = sum((one for one, _, _ in done), Score())
            kept = score.precision >= LEAST_PRECISION and score.recall >= LEAST_RECALL
            good &= kept or not promised
            jobs += sum(count for _, count, _ in done)
            looks += score.looks
            looking += sum(seconds for _, _, seconds in done)
            print(score.row(name, fleets), flush=True)
    print(f"{jobs:,} jobs, {looks:,} looks of {looking / looks:.2f} s of CPU")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
