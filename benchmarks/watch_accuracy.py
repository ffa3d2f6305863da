"""Does a watch name the right rank, and nobody in a healthy job? Real gloo jobs of four ranks.

Each job trains by one of five strategies (benchmarks/watched_job.py) under `wirespeed launch --watch`,
with one fault at a random rank and step, or none. Slow faults cost a fifth of a step or more. Goals:
precision and recall 0.95, the onset within 10 steps, nobody accused in healthy jobs; of hangs the
culprit within 20 s. A finding accuses where it fails and names a rank or node.

Run: python benchmarks/watch_accuracy.py [--each 4] [--healthy 20] [--hangs 3] [--only sleep,gc]
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watched_job import HANGS, SLOW, STRATEGIES

JOB = Path(__file__).with_name("watched_job.py")
RANKS, STEPS, BOUND_S = 4, 160, 150.0
WITHIN_STEPS, WITHIN_S, LEAST_RISE = 10, 20.0, 1.2
IDS = {
    "data": {"WATCH-003"},
    "gc": {"WATCH-004"},
    "checkpoint": {"WATCH-005"},
    "skew": {"WATCH-007"},
}
"""The finding that a fault should have; else WATCH-001, and WATCH-008 or 009 for hangs."""
_NAMED = re.compile(r"WATCH-00[89]$")


@dataclass(frozen=True)
class Job:
    strategy: str
    fault: str
    rank: int
    begin: int
    ms: float

    @property
    def title(self) -> str:
        return f"{self.strategy:6} {self.fault or 'healthy':12} rank {self.rank} from {self.begin}"


@dataclass
class Score:
    jobs: int = 0
    found: int = 0
    small: int = 0
    """Jobs not counted: the fault cost less than a fifth of a step, as a neighbour on a free core."""
    right_id: int = 0
    wrong: int = 0
    onset: int = 0
    """Jobs whose onset was told within ten steps, of those found."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=4, help="jobs of each slow fault")
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--hangs", type=int, default=3, help="jobs of each hang")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=[], type=lambda text: text.split(","))
    asked = parser.parse_args()
    scores: dict[str, Score] = defaultdict(Score)
    for job in _jobs(asked):
        score = scores[job.fault or "healthy"]
        score.jobs += 1
        if job.fault in HANGS:
            _score_hang(job, score)
        else:
            _score_slow(job, score)
    sys.stdout.write(_table(scores))
    return 0 if _kept(scores) else 1


def _jobs(asked: argparse.Namespace) -> Iterator[Job]:
    chance = random.Random(asked.seed)
    kinds = [*SLOW * asked.each, *[""] * asked.healthy, *HANGS * asked.hangs]
    for number, fault in enumerate(kinds):
        job = Job(
            strategy=STRATEGIES[number % len(STRATEGIES)],
            fault=fault,
            rank=chance.randrange(RANKS),
            begin=chance.randrange(40, 90),
            ms=chance.uniform(15, 40),
        )
        if not asked.only or (fault or "healthy") in asked.only:
            yield job


def _command(job: Job) -> list[str]:
    words = [sys.executable, "-m", "wirespeed", "launch", "--watch", "--ranks", str(RANKS), "--"]
    words += [sys.executable, str(JOB), "--strategy", job.strategy, "--steps", str(STEPS)]
    words += ["--rank", str(job.rank), "--from", str(job.begin), "--ms", f"{job.ms:.1f}"]
    return [*words, "--fault", job.fault] if job.fault else words


def _environment(home: str) -> dict[str, str]:
    return {**os.environ, "WIRESPEED_HOME": home, "OMP_NUM_THREADS": "1"}


def _score_slow(job: Job, score: Score) -> None:
    with tempfile.TemporaryDirectory() as home:
        env = _environment(home)
        done = subprocess.run(_command(job), env=env, capture_output=True, timeout=BOUND_S)
        show = [sys.executable, "-m", "wirespeed", "runs", "show", "last", "-o", "json"]
        shown = subprocess.run(show, env=env, capture_output=True, check=True, timeout=60)
    run = json.loads(shown.stdout)
    if done.returncode:
        sys.stdout.write(done.stderr.decode()[-2000:])
    rise = _rise(run["watched"], job.begin)
    if job.fault and rise < LEAST_RISE:
        score.jobs, score.small = score.jobs - 1, score.small + 1
        sys.stdout.write(f"{job.title} {job.ms:4.0f} ms: costs {rise:.2f} ×, not counted\n")
        return
    accused = [
        (one["id"], one["subject"]["name"])
        for one in run["findings"]
        if one["status"] == "fail" and one["subject"]["kind"] in ("rank", "node")
    ]
    name = f"rank {job.rank}" if job.fault not in ("", "skew") else ""
    hits = [id for id, who in accused if who == name]
    if job.fault == "skew":  # large batches are at any rank: nobody is to blame
        hits = [one["id"] for one in run["findings"] if one["id"] == "WATCH-007"]
    score.found += bool(hits)
    score.right_id += bool(IDS.get(job.fault, {"WATCH-001"}) & set(hits))
    score.wrong += sum(who != name for _, who in accused)
    changes = [one for one in run["watched"]["changes"] if one["subject"] in (name, "job")]
    near = any(abs(one["step"] - job.begin) <= WITHIN_STEPS for one in changes)
    score.onset += bool(hits) and near
    sys.stdout.write(
        f"{job.title} {job.ms:4.0f} ms {rise:.2f} ×: {accused or 'nobody'} {_onsets(changes)}\n"
    )
    sys.stdout.flush()


def _rise(watched: dict[str, Any], begin: int) -> float:
    """Mean step from then on over that of the thirty before."""
    steps = {True: [0.0, 0], False: [0.0, 0]}
    for one in watched["windows"]:
        if one["first_step"] >= begin - 30:
            part = steps[one["first_step"] >= begin]
            part[0] += one["step_ms"] * one["steps"]
            part[1] += one["steps"]
    (after, n_after), (before, n_before) = steps[True], steps[False]
    return (after / max(n_after, 1)) / max(before / max(n_before, 1), 1e-9)


def _onsets(changes: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"since {one['step']}" for one in changes)


def _score_hang(job: Job, score: Score) -> None:
    """The line that names somebody is read as it comes, with its time; then the job is ended."""
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            _command(job), env=_environment(home), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            line, seconds = _accusation(process)
            how = "ended by itself, nobody named" if process.poll() is not None else "nobody"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    named = bool(re.search(rf"\brank {job.rank}\b(?! wait)", line.split(", and ")[0]))
    score.found += named and seconds <= WITHIN_S
    score.right_id += named
    score.wrong += bool(line) and not named
    sys.stdout.write(f"{job.title}: {line or how} after {seconds:.0f} s\n")
    sys.stdout.flush()


def _accusation(process: "subprocess.Popen[bytes]") -> tuple[str, float]:
    """(the line that accuses, seconds that it says nothing had moved; without one, all seconds)."""
    began = time.monotonic()
    for raw in process.stderr or ():
        text = raw.decode(errors="replace").strip()
        if _NAMED.search(text):
            return text, _still(process)
        if time.monotonic() - began > BOUND_S:
            return "", BOUND_S
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    return "", time.monotonic() - began


def _still(process: "subprocess.Popen[bytes]") -> float:
    """How long the job had stood still, as the next lines say."""
    for raw in process.stderr or ():
        if match := re.search(r"nothing has moved for (\d+) s", raw.decode(errors="replace")):
            return float(match[1])
        if not raw.startswith(b"  "):
            break
    return 0.0


def _table(scores: dict[str, Score]) -> str:
    lines = [
        "| job | runs | named | by the right finding | onset ± 10 | others accused | too small |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, one in scores.items():
        near = "" if name in (*HANGS, "healthy") else str(one.onset)
        lines.append(
            f"| {name} | {one.jobs} | {one.found} | {one.right_id} | {near} | {one.wrong} "
            f"| {one.small} |"
        )
    slow = [one for name, one in scores.items() if name in SLOW]
    found, wrong = sum(one.found for one in slow), sum(one.wrong for one in slow)
    jobs, onset = sum(one.jobs for one in slow), sum(one.onset for one in slow)
    if jobs:
        lines.append(
            f"\nslow: recall {found / jobs:.3f}, precision {found / max(found + wrong, 1):.3f}, "
            f"onset within 10 steps in {onset} of {found}"
        )
    return "\n" + "\n".join(lines) + "\n"


def _kept(scores: dict[str, Score]) -> bool:
    slow = [one for name, one in scores.items() if name in SLOW]
    hangs = [one for name, one in scores.items() if name in HANGS]
    found, jobs = sum(one.found for one in slow), sum(one.jobs for one in slow)
    wrong = sum(one.wrong for one in slow)
    healthy = scores.get("healthy", Score())
    good = found >= 0.95 * jobs and found >= 0.95 * (found + wrong) and not healthy.wrong
    caught = sum(one.found for one in hangs) >= 0.95 * sum(one.jobs for one in hangs)
    return good and caught


if __name__ == "__main__":
    sys.exit(main())
