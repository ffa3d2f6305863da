"""Let what lives in a network namespace stand still now and then: `stalls.py NET STOP_S EVERY_S`.

Run as a file until it is ended. Whoever ends it sends SIGCONT afterwards (see faults.py).
"""

import os
import signal
import sys
import time
from contextlib import suppress

_LOOK_S = 0.02


def _living(home: tuple[int, int] | None) -> list[int]:
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return [pid for pid in pids if _home(f"/proc/{pid}/ns/net") == home]


def _home(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        facts = os.stat(path)  # noqa: PTH116 - a thousand of them, often
        return facts.st_dev, facts.st_ino
    return None


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def main(net: str, stop_s: str, every_s: str) -> None:
    """Runs until a signal ends it, or until the namespace is gone."""
    home = _home(net)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    run_s = float(every_s) - float(stop_s)
    while home is not None and home == _home(net):
        until = time.monotonic() + float(stop_s)
        while (left := until - time.monotonic()) > 0:
            # Again and again: some are started meanwhile.
            _send(_living(home), signal.SIGSTOP)
            time.sleep(min(left, _LOOK_S))
        _send(_living(home), signal.SIGCONT)
        time.sleep(run_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
