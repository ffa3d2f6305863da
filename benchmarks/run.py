"""All benchmarks, one after another, as Markdown for docs/benchmarks.md.

Exit code 1 when one of them breaks its bound. Run on a quiet machine: make benchmark
"""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ALL = (
    "adaptive_stop.py",
    "aggregate.py",
    "diagnose_speed.py",
    "user_time.py",
    "overhead.py",
    "train_strategies.py",
    "launch_time.py",
)


def main() -> int:
    here = Path(__file__).parent
    cores = len(os.sched_getaffinity(0))
    now = datetime.now(UTC).strftime("%Y-%m-%d")
    sys.stdout.write(f"Measured {now} on {cores} cores, {platform.platform()}\n")
    worst = 0
    for name in ALL:
        sys.stdout.write(f"\n## {name}\n\n")
        sys.stdout.flush()
        worst = max(worst, subprocess.run([sys.executable, here / name], timeout=1800).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
