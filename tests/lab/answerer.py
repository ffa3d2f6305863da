"""Answer on ports of a node, or ask at ports of another; over real TCP and UDP.

answerer.py serve tcp|udp PORT…      answers with its host name until it is ended
answerer.py ask tcp|udp HOST PORT…   one line a port: the answer, `nothing` or `refused`
answerer.py hold HOST PORT FILE      asks, makes FILE, waits until it is gone, asks again on
                                     the same connection and prints the second answer
"""

import selectors
import socket
import sys
import time
from pathlib import Path

WAIT_S = 1.0
LONGEST_S = 30.0
KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def serve(kind: str, ports: list[int]) -> None:
    ready = selectors.DefaultSelector()
    for port in ports:
        door = socket.socket(socket.AF_INET, KINDS[kind])
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("", port))
        if kind == "tcp":
            door.listen()
        ready.register(door, selectors.EVENT_READ, accept if kind == "tcp" else answer)
    while True:
        for key, _ in ready.select():
            key.data(ready, key.fileobj)


def accept(ready: selectors.DefaultSelector, door: socket.socket) -> None:
    connection, _ = door.accept()
    ready.register(connection, selectors.EVENT_READ, answer)


def answer(ready: selectors.DefaultSelector, asked: socket.socket) -> None:
    question, asker = asked.recvfrom(100)
    name = socket.gethostname().encode()
    if question:
        asked.sendto(name, asker) if asker else asked.sendall(name)
    else:
        ready.unregister(asked)
        asked.close()


def ask(asking: socket.socket) -> str:
    asking.sendall(b"?")
    return asking.recv(100).decode()


def ask_once(kind: str, host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, KINDS[kind]) as asking:
        asking.settimeout(WAIT_S)
        try:
            asking.connect((host, port))
            return ask(asking)
        except TimeoutError:
            return "nothing"
        except ConnectionRefusedError:
            return "refused"


def hold(host: str, port: int, file: Path) -> str:
    with socket.create_connection((host, port), WAIT_S) as asking:
        ask(asking)
        file.touch()
        deadline = time.monotonic() + LONGEST_S
        while file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return ask(asking)


if __name__ == "__main__":
    what, first, second, *rest = sys.argv[1:]
    if what == "serve":
        serve(first, [int(port) for port in [second, *rest]])
    elif what == "ask":
        lines = [ask_once(first, second, int(port)) for port in rest]
        sys.stdout.write("\n".join(lines) + "\n")
    else:
        sys.stdout.write(hold(first, int(second), Path(rest[0])))
