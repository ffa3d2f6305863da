"""Many stored runs, and what commands take there: `python benchmarks/many_runs.py [--runs N]`.

It makes their folders in a temporary home (--home: in that one, which is kept and used again, with its
index): copies of one real `check -l quick`, on other nodes of 1,000, with figures of a 3 % spread that
are 10 % slower since the middle, 3 % of them failed; one in 100 was cut. Then it runs each command five
times (`check` three) and prints the least and the median of its wall time, and what the index took to be
made. Goals at 100,000 runs: `runs list` 0.3 s, `trend all_reduce` 1 s, `check -l quick` no slower.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

COMMANDS = (
    *("runs list", "runs list --last 20 --verdict fail", "runs list --node node-0017 --since 30d"),
    *("runs show last", "trend all_reduce", "nodes list"),
)
CHECK = "check -l quick --ranks 2"


def wirespeed(home: Path, words: str) -> float:
    """Seconds that it takes."""
    environ = os.environ | {"WIRESPEED_HOME": str(home), "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", *words.split()],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{words}: {done.stderr.decode()}")
    return time.monotonic() - begun


def template() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        wirespeed(Path(home), CHECK)
        (document,) = Path(home).glob("runs/*/run.json")
        data: dict[str, Any] = json.loads(document.read_text())
    return data


def make(home: Path, runs: int) -> None:
    dice, like = random.Random(19), template()
    times = [dict(one["time_us"]) for one in like["measurements"]]
    first = datetime.now(UTC) - timedelta(minutes=5 * runs)
    for number in range(runs):
        at = first + timedelta(minutes=5 * number)
        like["id"] = f"{dice.getrandbits(32):08x}"
        like["started"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        like["verdict"], like["exit_code"] = (
            ("NOT READY", 1) if dice.random() < 0.03 else ("READY", 0)
        )
        like["world"]["nodes"][0]["host"] = f"node-{dice.randrange(1000):04}"
        factor = dice.lognormvariate(0, 0.03) * (1.1 if number > runs / 2 else 1)
        for one, time_us in zip(like["measurements"], times, strict=True):
            one["time_us"] = {name: value * factor for name, value in time_us.items()}
        folder = home / "runs" / f"{at:%Y%m%d-%H%M%S}-{like['id']}"
        (folder / "logs").mkdir(parents=True, mode=0o700)
        text = json.dumps(like)
        (folder / "run.json").write_text(text[: len(text) // 2] if number % 100 == 50 else text)
        header = like | {"measurements": [], "findings": [], "verifications": []}
        record = json.dumps({"kind": "run", "at": 0.0, "data": header})
        (folder / "records.jsonl").write_text(f"{record}\n")


def told(words: str, seconds: Sequence[float]) -> str:
    least, middle = min(seconds), statistics.median(seconds)
    return f"| `{words}` | {least:.2f} | {middle:.2f} | {len(seconds)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = asked.home or Path(temporary)
        if not (home / "runs").exists():
            begun = time.monotonic()
            make(home, asked.runs)
            print(f"{asked.runs:,} runs made in {time.monotonic() - begun:.0f} s")
        print("| command | least s | median s | times |\n|---|---|---|---|")
        if not list(home.glob("index-*")):
            print(told("runs list, without an index", [wirespeed(home, "runs list")]))
        size = sum(index.stat().st_size for index in home.glob("index-*"))
        for words in COMMANDS:
            print(told(words, [wirespeed(home, words) for _ in range(5)]), flush=True)
        with tempfile.TemporaryDirectory() as empty:
            alone = [(wirespeed(Path(empty), CHECK), wirespeed(home, CHECK)) for _ in range(3)]
        print(told(f"{CHECK}, no runs", [one for one, _ in alone]))
        print(told(CHECK, [one for _, one in alone]))
        print(f"index: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
