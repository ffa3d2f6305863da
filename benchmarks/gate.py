"""How long a gate takes on a good node, whole process, and how late its answer comes when it hangs.

    python benchmarks/gate.py --calls 300 --hung 20

Bounds: 99 % of the calls under 1 s, none refused, and each hung call answered within its 5 s.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from wirespeed.process import descendants, read_processes

_GATE = (sys.executable, "-m", "wirespeed", "gate", "--for", "slurm-prolog")
_WITHIN_S, _BOUND_S = 5.0, 1.0


def call(home: str, *, stopped: bool = False) -> tuple[float, int]:
    """Seconds and exit code. stopped: its worker is held by SIGSTOP as soon as it is there."""
    began = time.monotonic()
    gate = subprocess.Popen(
        _GATE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "WIRESPEED_HOME": home},
    )
    if stopped:
        threading.Thread(target=_hold, args=(gate,)).start()
    code = gate.wait()
    return time.monotonic() - began, code


def _hold(gate: subprocess.Popen[bytes]) -> None:
    """Stop each worker that it starts."""
    while gate.poll() is None:
        for one in descendants(gate.pid, read_processes()):
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGSTOP)
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--hung", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir(mode=0o700)
        told = sorted(call(str(home)) for _ in range(asked.calls))
        hung = sorted(call(str(home), stopped=True) for _ in range(asked.hung))
    times = [seconds for seconds, _ in told]
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    refused = sum(code != 0 for _, code in told)
    print("| calls | median, s | p99, s | max, s | refused | hung calls: latest answer, s |")
    print("|---|---|---|---|---|---|")
    latest = hung[-1][0] if hung else 0.0
    middle = times[len(times) // 2]
    print(
        f"| {len(times)} | {middle:.2f} | {p99:.2f} | {times[-1]:.2f} | {refused} | {latest:.2f} |"
    )
    wrong = refused or p99 > _BOUND_S or latest > _WITHIN_S + _BOUND_S
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
