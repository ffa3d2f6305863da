"""A stranger who takes the seat of rank 1 of two: `seat_thief.py ADDRESS PORT` of the plain meeting.

Does what a rank does, knowing nothing but that place; says `taken`, or why not, and stays until ended.
"""

import sys
import time

from wirespeed.console.meeting import console_key
from wirespeed.console.plain_meeting import find_meeting
from wirespeed.errors import WorldError
from wirespeed.world.identity import detect
from wirespeed.world.secret import Seal
from wirespeed.world.watch import Beacon

BOUND_S = 30.0


def main(address: str, port: str) -> None:
    world = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": port}
    identity = detect(world)
    if identity is None:
        raise SystemExit("no rank")
    try:
        meeting = find_meeting(identity, BOUND_S, Seal(None, "meeting"))
        beacon = Beacon(address, meeting.port, console_key(None, meeting.nonce), 1, 2)
        beacon.connect(BOUND_S)
        beacon.record("seat", {"rank": 1, "host": "thief", "space": 1})
    except WorldError as error:
        sys.stdout.write(f"nothing: {error}\n")
    else:
        sys.stdout.write("taken\n")
    sys.stdout.flush()
    time.sleep(2 * BOUND_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
