"""Rank 1 sends to rank 0 for a while; rank 0 prints the bits a second that came."""

import socket
import sys
import time

BOUND_S = 3.0


def receive(port: int) -> None:
    with socket.create_server(("", port)) as server:
        server.settimeout(BOUND_S)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(BOUND_S)
        received, began = 0, time.monotonic()
        while chunk := connection.recv(1 << 18):
            received += len(chunk)
    sys.stdout.write(f"{received * 8 / (time.monotonic() - began)}\n")


def connect(host: str, port: int) -> socket.socket:
    deadline = time.monotonic() + BOUND_S
    while True:
        try:
            return socket.create_connection((host, port), 1.0)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def send(host: str, port: int, seconds: float) -> None:
    with connect(host, port) as connection:
        connection.settimeout(BOUND_S)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(b"x" * (1 << 17))


if __name__ == "__main__":
    rank, host, port, seconds = sys.argv[1:]
    if rank == "0":
        receive(int(port))
    else:
        send(host, int(port), float(seconds))
