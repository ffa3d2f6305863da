"""A stranger who takes the seat of rank 1 of two: `seat_thief.py ADDRESS PORT` of the plain meeting.

Does what a rank does, knowing nothing but that place; says `taken`, or why not, and stays until ended.
"""

import sys
import time

from wirespeed.errors import WorldError
from wirespeed.node.identity import detect
from wirespeed.node.secret import Seal
from wirespeed.session.plain_rendezvous import find_rendezvous
from wirespeed.session.rendezvous import session_key
from wirespeed.watchdog.heartbeat import Heartbeat

BOUND_S = 30.0


def main(address: str, port: str) -> None:
    world = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": port}
    identity = detect(world)
    if identity is None:
        raise SystemExit("no rank")
    try:
        sync_point = find_rendezvous(identity, BOUND_S, Seal(None, "sync_point"))
        heartbeat = Heartbeat(address, sync_point.port, session_key(None, sync_point.nonce), 1, 2)
        heartbeat.connect(BOUND_S)
        heartbeat.record("seat", {"rank": 1, "host": "thief", "space": 1})
    except WorldError as error:
        sys.stdout.write(f"nothing: {error}\n")
    else:
        sys.stdout.write("taken\n")
    sys.stdout.flush()
    time.sleep(2 * BOUND_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
