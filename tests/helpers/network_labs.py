"""Labs of network namespaces for whole commands on several nodes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from wirespeed.lab import Lab, LabSpec

_numbers = count()


@contextmanager
def network_lab(nodes: int, *programs: str) -> Iterator[Lab]:
    """programs: needed beside ip and tc. The test is skipped where one is missing, or root."""
    needed = ("ip", "tc", *programs)
    missing = [name for name in needed if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"Requires: root and the commands {', '.join(needed)} (missing: {missing})")
    with Lab(LabSpec(nodes, f"l{os.getpid()}-{next(_numbers)}")) as made:
        yield made
