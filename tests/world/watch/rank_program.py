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

from wirespeed.world.watch.beacon import Beacon


def ops(beacon: Beacon, number: int, label: str, pause: float) -> None:
    for _ in range(number):
        beacon.enter(label)
        time.sleep(pause)


def ticks(beacon: Beacon, number: int, pause: float) -> None:
    for _ in range(number):
        beacon.tick()
        time.sleep(pause)


def records(beacon: Beacon, number: int) -> None:
    for index in range(number):
        beacon.record("line", {"number": index})


def fail(beacon: Beacon, message: str) -> None:
    raise RuntimeError(message)


def finish(beacon: Beacon, exit_code: int) -> None:
    sys.exit(exit_code if beacon.finish(exit_code) else 9)


STEPS = {
    "phase": Beacon.phase,
    "ops": ops,
    "ticks": ticks,
    "records": records,
    "stuck_in_python": lambda beacon: stuck_in_python(),
    "hold_the_gil": lambda beacon: ctypes.PyDLL(None).sleep(60),
    "blocked_in_c": lambda beacon: ctypes.CDLL(None).sleep(60),
    "raise": fail,
    "exit": lambda beacon, code: os._exit(code),
    "abort_at_exit": lambda beacon: atexit.register(os.abort),
    "finish": finish,
}


def stuck_in_python() -> None:
    time.sleep(60)


def main() -> None:
    port, token, rank, size, stack_file, steps = sys.argv[1:]
    beacon = Beacon(
        "127.0.0.1", int(port), token, int(rank), int(size), stack_file=Path(stack_file)
    )
    beacon.connect(20.0)
    try:
        for step in json.loads(steps):
            STEPS[step[0]](beacon, *step[1:])
    except RuntimeError as error:
        beacon.failed(error)
        beacon.finish(1)
        sys.exit(1)


if __name__ == "__main__":
    main()
