"""Rank 1 sends to rank 0 for a while; rank 0 prints the bits a second that came.

Usage: sender.py RANK HOST PORT SECONDS SILENCE; both fail after that many seconds of silence.
"""

import socket
import sys
import time


def receive(port: int, silence: float) -> None:
    with socket.create_server(("", port)) as server:
        server.settimeout(silence)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(silence)
        received, began = 0, time.monotonic()
        while chunk := connection.recv(1 << 18):
            received += len(chunk)
    sys.stdout.write(f"{received * 8 / (time.monotonic() - began)}\n")


def connect(host: str, port: int, silence: float) -> socket.socket:
    deadline = time.monotonic() + silence
    while True:
        try:
            return socket.create_connection((host, port), 1.0)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def send(host: str, port: int, seconds: float, silence: float) -> None:
    with connect(host, port, silence) as connection:
        connection.settimeout(silence)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(b"x" * (1 << 17))


if __name__ == "__main__":
    rank, host, port, seconds, silence = sys.argv[1:]
    if rank == "0":
        receive(int(port), float(silence))
    else:
        send(host, int(port), float(seconds), float(silence))
