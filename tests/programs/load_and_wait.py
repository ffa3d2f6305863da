"""Reads a batch with one worker, tells the worker's pid over a socket, and waits to be killed."""

import multiprocessing
import socket
import sys
import time

from wirespeed.training.loading import Loader
from wirespeed.training.models.catalogue import model_named

if __name__ == "__main__":
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as told:
        loader = Loader(model_named("mlp"), samples=2, workers=1, seed=3)
        loader(1, 0)
        (worker,) = multiprocessing.active_children()
        told.sendall(f"{worker.pid}\n".encode())
        time.sleep(120)
