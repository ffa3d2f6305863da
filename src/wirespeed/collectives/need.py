"""Memory that one configuration takes on one rank: its buffers, and what checking them needs. Pure.

A data check and the timing come one after the other, each with buffers of its own. The check compares
slice by slice (`oracle.SLICE`), so beside the buffers it holds a few slices of whole numbers, and the C
library keeps these while the timing goes on.
"""

from wirespeed.collectives.collective import Collective, Geometry

__all__ = ["SLICE", "buffer_elements", "needed_bytes"]

SLICE = 1 << 20
"""Elements that are compared at a time."""
_CHECKED = 112
"""Bytes an element of a slice: hashes, values and sums of 8 bytes each, masks, a decoy."""
_SMALL = 4 << 20
"""Segments, in which backends send, and what torch keeps of each size that it sees first."""


def buffer_elements(collective: Collective, geometry: Geometry, *, in_place: bool) -> int:
    """Elements of input and output together; in place of the one tensor that holds both."""
    n_in, n_out = collective.input_count(geometry), collective.output_count(geometry)
    if not in_place or collective.in_place_slice is None:
        return n_in + n_out
    input_at, output_at = collective.in_place_slice(geometry)
    return max(input_at + n_in, output_at + n_out)


def needed_bytes(
    collective: Collective,
    geometry: Geometry,
    itemsize: int,
    *,
    in_place: bool,
    check: bool,
    backend: str,
    slots: int = 1,
) -> int:
    """Bytes at most, at any one time, on the rank that `geometry` names.

    itemsize: bytes of an element; check: whether the data are compared first; slots: buffers that the
    timing rotates through.
    """
    elements = buffer_elements(collective, geometry, in_place=in_place)
    counts = {"input": collective.input_count, "output": collective.output_count}
    copied = collective.scratch.get(backend)
    scratch = counts[copied](geometry) * itemsize if copied else 0
    checking = _CHECKED * min(SLICE, elements) if check else 0
    return elements * itemsize * slots + checking + scratch + _SMALL
