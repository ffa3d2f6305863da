"""How fast `wirespeed diagnose` reads, beside `grep -c NCCL` on the same file, and in how much memory.

    python benchmarks/diagnose_speed.py [--megabytes 2000] [--rounds 3]

One interleaved run: each round times both. Bounds: 100 MB/s or more, under 200 MB of memory, and the
planted cause is named first.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_job_log import MILLION, write

LEAST_MBPS = 100
MOST_MB = 200


def diagnosed(log: Path, home: Path) -> tuple[float, float, str]:
    """Seconds, peak memory in MB, and the first cause's id."""
    words = [sys.executable, "-m", "wirespeed", "diagnose", str(log), "-q", "-o", "json"]
    begin = time.perf_counter()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, env={**os.environ, "WIRESPEED_HOME": str(home)}
    )
    out = process.stdout.read() if process.stdout else b""
    _, _, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    findings = json.loads(out)["findings"]
    return seconds, used.ru_maxrss / 1024, findings[0]["id"] if findings else "none"


def counted(log: Path) -> float:
    begin = time.perf_counter()
    # Not to /dev/null: grep then stops at its first match.
    subprocess.run(["grep", "-c", "NCCL", str(log)], stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "job.log"
        write(log, 1024, given.megabytes, 7)
        size = log.stat().st_size / MILLION
        counted(log)  # the file is in memory for both
        ours, peers, peaks, causes = [], [], [], set()
        for _ in range(given.rounds):
            peers.append(counted(log))
            seconds, peak, cause = diagnosed(log, Path(folder))
            ours.append(seconds)
            peaks.append(peak)
            causes.add(cause)
    mine, peer = statistics.median(ours), statistics.median(peers)
    print(f"log of 1,024 ranks: {size:.0f} MB; grep -c NCCL {peer:.2f} s, diagnose {mine:.2f} s")
    print(f"{size / mine:.0f} MB/s (bound {LEAST_MBPS}), {mine / peer:.2f} times grep's time")
    print(
        f"peak memory {max(peaks):.0f} MB (bound {MOST_MB}); first cause {', '.join(sorted(causes))}"
    )
    good = size / mine >= LEAST_MBPS and max(peaks) < MOST_MB and causes == {"KERN-010"}
    print("The bounds hold." if good else "A bound is missed.")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
