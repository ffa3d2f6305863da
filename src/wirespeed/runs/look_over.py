"""A look over the whole index, as a process of its own: of a large one nobody waits for it."""

import os
from contextlib import suppress

from wirespeed.errors import WirespeedError
from wirespeed.runs.index import Index

if __name__ == "__main__":
    os.nice(10)
    with suppress(WirespeedError), Index.opened() as index:
        index.look_over()
