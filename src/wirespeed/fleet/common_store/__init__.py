"""The common store: a PostgreSQL database to which every run is sent, and which a team reads from.

A run is stored in its folder first, whatever becomes of the rest, and waits in the outbox
(`outbox.py`) until it is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reading_common_store(url: str) -> Iterator[None]:
    """Within, stored runs are those of the store of that address."""
    from wirespeed.fleet.common_store.connection import libraries
    from wirespeed.runs.source import reading_from
    from wirespeed.runs.unsent import checked_address

    libraries()
    from wirespeed.fleet.common_store.reading import CommonStore

    with CommonStore.of(checked_address(url)) as store, reading_from(store):
        yield


def made_ready(url: str) -> str:
    """Make the tables of that store, or bring them up to this version; what was done."""
    from wirespeed.fleet.common_store.connection import libraries
    from wirespeed.runs.unsent import checked_address, label

    libraries()
    from wirespeed.fleet.common_store.tables import VERSION, set_up

    before = set_up(checked_address(url))
    if before == VERSION:
        return f"the store {label(url)} is ready: version {VERSION}"
    came = f"brought from version {before}" if before else "set up"
    return f"the store {label(url)} was {came}: version {VERSION}"
