import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.records import Run
from wirespeed.model.watch_records import Gain, StepChange, Traffic, Watched, WatchWindow

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def check() -> Run:
    """A run of `check` with findings of every status, on two nodes."""
    return from_json(Run, json.loads((GOLDEN / "check.run.json").read_text()))


@pytest.fixture
def bench() -> Run:
    """A run of `bench` with several operations, both sides, and a barrier."""
    return from_json(Run, json.loads((GOLDEN / "bench.run.json").read_text()))


@pytest.fixture
def flip() -> Run:
    """A real `check -l quick --inject flip:rank=1` on a noisy laptop: long before it is folded."""
    return from_json(Run, json.loads((GOLDEN / "flip.run.json").read_text()))


@pytest.fixture
def train() -> Run:
    """A real `train` of several strategies with --memory, --load and --scaling put together."""
    return from_json(Run, json.loads((GOLDEN / "train.run.json").read_text()))


@pytest.fixture
def watched() -> Run:
    """A run of `launch --watch`: 4 ranks on 2 hosts, rank 2 late at its own work since step 50."""
    return from_json(Run, json.loads((GOLDEN / "watched.run.json").read_text()))


class Job:
    """A watched job that a test describes: times are seconds, `late` those of a rank since `since`."""

    def __init__(self, ranks: int, hosts: int, late: Mapping[int, float], since: int = 50) -> None:
        self._dice = random.Random(7)
        self._ranks, self._late, self._since = ranks, late, since
        self.hosts = tuple(f"node-{rank * hosts // ranks}" for rank in range(ranks))

    def window(self, first: int, steps: int) -> WatchWindow:
        """All ranks end a step together: who is early at its own work waits for who is late."""
        late = self._late if first >= self._since else {}
        owns = [0.024 + self._dice.gauss(0, 3e-4) + late.get(r, 0.0) for r in range(self._ranks)]
        step = max(owns) + 0.006
        return WatchWindow(
            first_step=first, steps=steps, since_s=round(0.045 * first, 6), step=round(step, 6),
            own=tuple(round(own, 6) for own in owns),
            blocked=tuple(round(step - own, 6) for own in owns),
            data=tuple(round(0.0021 + self._dice.random() * 2e-4, 6) for _ in owns),
        )  # fmt: skip

    def watched(self, steps: int = 200, each: int = 10) -> Watched:
        windows = tuple(self.window(first, each) for first in range(0, steps, each))
        middle = sorted(one.step for one in windows)[len(windows) // 2]
        changes = [
            StepChange(
                step=self._since, low_step=self._since - 2, high_step=self._since + 1,
                subject_kind="rank", subject=f"rank {rank}", before=0.031, after=0.031 + by,
            )
            for rank, by in self._late.items()
        ]  # fmt: skip
        parts = {"data": 2.2, "forward": 7.9, "backward": 11.4, "optimizer": 2.1}
        parts |= {"blocked": 35.1, "checkpoint": 0.4, "gc": 0.0, "other": 0.6}
        ranks = self._ranks
        reduced = Traffic(
            group="default", ranks=ranks, op="all_reduce", calls=4, bytes_per_step=98e6
        )
        traffic = (
            replace(reduced, exposed=0.0331),
            replace(reduced, op="broadcast", calls=0.02, bytes_per_step=4096.0),
        )
        return Watched(
            ranks=ranks, world_size=ranks, hosts=self.hosts, steps=steps,
            boundary="optimizer", step=middle, step_low=0.98 * middle, step_high=1.03 * middle,
            exposed=0.58, exposed_low=0.55, exposed_high=0.6, parts_ms=parts, windows=windows,
            changes=tuple(changes), traffic=traffic,
            last_rank=min(self._late, default=-1), last_share=0.74 if self._late else 0.0,
            gains=tuple(
                Gain(
                    what=f"rank {rank} as quick as the others", share=by / middle,
                    low=0.9 * by / middle, high=1.1 * by / middle, finding="WATCH-001",
                )
                for rank, by in self._late.items()
            ),
            unseen=("memory of the GPU: the job runs on CPUs",),
        )  # fmt: skip


@pytest.fixture
def job() -> type[Job]:
    return Job


@pytest.fixture
def crowd(watched: Run) -> Run:
    """256 ranks on 32 hosts, of which one rank is late."""
    return replace(watched, watched=Job(256, 32, {77: 0.012}).watched())


@pytest.fixture
def unknown(watched: Run) -> Run:
    """Ranks told that they are there, and nothing else."""
    nothing = Watched(ranks=2, world_size=4, hosts=("a", "", "", "b"), steps=0)
    told = replace(nothing, unseen=("steps: the job called no optimizer",))
    return replace(watched, watched=told, findings=())
