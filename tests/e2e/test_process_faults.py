"""A rank that dies, stops, raises, strays or never comes: the run ends in time and names it."""

import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

Finding = Callable[[dict[str, Any], str], dict[str, Any]]

LONG = ("bench", "all_reduce", "-b", "4K", "-e", "8K", "-f", "2", "-w", "2", "-q", "-o", "json")
"""One size that is over at once, and one that lasts until something ends it."""
SLOW = (*LONG, "--precision", "0.1", "--max-time", "60", "--timeout", "3")
SETTLED_S = 30.0
"""Bound of a whole run in which something goes wrong at once: start, 3 s, stacks, end."""


def slow(*more: str) -> tuple[str, ...]:
    """A run that first measures quickly, then for a minute."""
    return ("bench", "barrier", *LONG[1:], "--precision", "0.1", "--max-time", "60", *more)
