"""Does the barrier wait? Told by marks in the store, not by clocks, so that noise cannot matter."""

import time
from itertools import count

from wirespeed.collectives.engines.base import Call
from wirespeed.ranks.place import Place, Site

__all__ = ["broken_barriers"]

_LATE_S = 0.02
"""How late the late rank comes: long enough for a barrier that does not wait to be seen."""

_rounds = count()
"""Number of rounds so far; advances alike on every rank and keeps the marks apart."""


def broken_barriers(place: Place, site: Site) -> tuple[int, int]:
    """(ranks that passed before all had come, passages checked), summed over the world."""
    import torch

    wrong = checked = 0
    for late in sorted({0, site.ranks - 1}):
        mark = f"wirespeed/barrier/{next(_rounds)}"
        place.control.barrier()
        if site.group is not None:
            empty = torch.empty(0, device=place.device)
            call = Call(
                collective=site.collective,
                geometry=site.geometry,
                redop="none",
                input=empty,
                output=empty,
                group=site.group,
            )
            wrong += not _waited(place, call, late, mark)
            checked += 1
    totals = place.control.matrix([float(wrong), float(checked)]).sum(0)
    return int(totals[0]), int(totals[1])


def _waited(place: Place, call: Call, late: int, mark: str) -> bool:
    """Whether every rank of the group had left its mark when this rank came out."""
    pass_through = place.engine.bind(call)
    if call.geometry.rank == late:
        time.sleep(_LATE_S)
    # Not `set`, which a TCP store does not answer: the barrier could end before the mark is there.
    place.store.add(f"{mark}/{place.rank}", 1)
    place.tick()
    pass_through()
    if place.device.type == "cuda":
        import torch

        torch.cuda.synchronize(place.device)
    return bool(place.store.check([f"{mark}/{rank}" for rank in call.group.ranks]))
