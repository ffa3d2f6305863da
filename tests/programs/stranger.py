"""A stranger on the network: connections that say nothing, and many a second that are gone at once.

stranger.py RATE SILENT ADDRESS=PID…

To each port at which wirespeed listens in the network of process PID, which has that address: SILENT
connections that are kept, and others that are reset after a moment, some of them after a word; together
RATE a second. Ends on SIGTERM and tells, as JSON, how many were opened to each port.
"""

import itertools
import json
import signal
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

TICK_S, LOOK_S = 0.02, 0.2
RESET = struct.pack("ii", 1, 0)
WORDS = (b"", b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64 + b"\n")


def ports(pid: str) -> set[int]:
    """The session listens on every address; a doorbell by TCP and UDP at the same number."""
    listening = [row for row in _rows(pid, "tcp") if row[3] == "0A"]
    udp = {_port(row) for row in _rows(pid, "udp")}
    return {_port(row) for row in listening if row[1].startswith("00000000:") or _port(row) in udp}


def _rows(pid: str, kind: str) -> list[list[str]]:
    with suppress(OSError):
        return [
            line.split() for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
        ]
    return []


def _port(row: list[str]) -> int:
    return int(row[1].rpartition(":")[2], 16)


def call(address: str, port: int) -> socket.socket:
    line = socket.socket()
    line.setblocking(False)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    line.connect_ex((address, port))
    return line


def open_still(line: socket.socket) -> bool:
    try:
        return bool(line.recv(4096))
    except BlockingIOError:
        return True
    except OSError:
        return False


def main(rate: int, silent: int, targets: list[str]) -> None:
    opened: Counter[str] = Counter()
    kept: dict[tuple[str, int], list[socket.socket]] = {}
    quick: list[socket.socket] = []
    words, owed, last, looked = itertools.cycle(WORDS), 0.0, time.monotonic(), 0.0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            now = time.monotonic()
            if now - looked > LOOK_S:
                looked = now
                seen = {
                    (a, p) for a, _, pid in (t.partition("=") for t in targets) for p in ports(pid)
                }
                kept = {
                    place: [one for one in kept.get(place, []) if open_still(one)] for place in seen
                }
                for place, lines in kept.items():
                    missing = silent - len(lines)
                    opened[f"{place[0]}:{place[1]}"] += missing
                    owed -= missing  # those that were closed are called again, within the rate
                    lines += [call(*place) for _ in range(missing)]
            for line in quick:
                with suppress(OSError):
                    line.send(next(words))
                line.close()
            owed = min(owed + rate * (now - last), float(rate)) if kept else 0.0
            last, quick = now, []
            for place in itertools.islice(itertools.cycle(kept or [("", 0)]), max(0, int(owed))):
                opened[f"{place[0]}:{place[1]}"] += 1
                quick.append(call(*place))
            owed -= max(0, int(owed))
            time.sleep(TICK_S)
    finally:
        sys.stdout.write(json.dumps(opened) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
