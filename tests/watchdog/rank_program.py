"""A rank without PyTorch: connects a beacon and plays the steps given as JSON on its command line.

python rank_program.py PORT TOKEN RANK WORLD_SIZE STACK_FILE STEPS
"""

import atexit
import ctypes
import json
import os
import sys
import time
from pathlib import Path

from wirespeed.watchdog.heartbeat import Heartbeat


def ops(heartbeat: Heartbeat, number: int, label: str, pause: float) -> None:
    for _ in range(number):
        heartbeat.enter(label)
        time.sleep(pause)


def ticks(heartbeat: Heartbeat, number: int, pause: float) -> None:
    for _ in range(number):
        heartbeat.tick()
        time.sleep(pause)


def records(heartbeat: Heartbeat, number: int) -> None:
    for index in range(number):
        heartbeat.record("line", {"number": index})


def fail(heartbeat: Heartbeat, message: str) -> None:
    raise RuntimeError(message)


def finish(heartbeat: Heartbeat, exit_code: int) -> None:
    sys.exit(exit_code if heartbeat.finish(exit_code) else 9)


STEPS = {
    "phase": Heartbeat.phase,
    "ops": ops,
    "ticks": ticks,
    "records": records,
    "stuck_in_python": lambda heartbeat: stuck_in_python(),
    "hold_the_gil": lambda heartbeat: ctypes.PyDLL(None).sleep(60),
    "blocked_in_c": lambda heartbeat: ctypes.CDLL(None).sleep(60),
    "raise": fail,
    "exit": lambda heartbeat, code: os._exit(code),
    "abort_at_exit": lambda heartbeat: atexit.register(os.abort),
    "finish": finish,
}


def stuck_in_python() -> None:
    time.sleep(60)


def main() -> None:
    port, token, rank, size, stack_file, steps = sys.argv[1:]
    heartbeat = Heartbeat(
        "127.0.0.1", int(port), token, int(rank), int(size), stack_file=Path(stack_file)
    )
    heartbeat.connect(20.0)
    try:
        for step in json.loads(steps):
            STEPS[step[0]](heartbeat, *step[1:])
    except RuntimeError as error:
        heartbeat.failed(error)
        heartbeat.finish(1)
        sys.exit(1)


if __name__ == "__main__":
    main()
