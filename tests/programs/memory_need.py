"""Runs as a rank: what each operation takes of memory, checked and timed, beside what was foretold.

Rank 0 writes a JSON list of {op, in_place, check, foretold, taken}: bytes, of the rank that took most.
"""

import gc
import json
import os
from pathlib import Path

import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.oracle import needed_bytes
from wirespeed.node.identity import Identity
from wirespeed.plan import Case, Measure, Plan
from wirespeed.rank.joining import join, leave
from wirespeed.rank.measure import measure, slots_of
from wirespeed.rank.place import site_of
from wirespeed.rank.verify import reason_not_to_run, verify
from wirespeed.training.memory.measured import (
    give_back_freed,
    highest_resident,
    reset_highest_resident,
)

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
identity = Identity(
    rank=rank,
    world_size=size,
    local_rank=rank,
    local_world_size=size,
    launcher="local",
    reason="test",
)
place = join(
    identity,
    Plan(command="check", steps=()),
    dist.FileStore(os.environ["STORE"], size),
    "gloo",
    lambda: None,
    lambda bound: None,
)
how = Measure(warmup=1, iterations=2)
results = []
for name in os.environ["OPS"].split(","):
    collective = CATALOGUE[name]
    redop = "sum" if collective.reduces else "none"
    for in_place in (False, True):
        for check in (True, False):
            case = Case(
                op=name,
                redop=redop,
                root=0 if collective.rooted else -1,
                in_place=in_place,
                size_bytes=int(os.environ["BYTES"]),
            )
            site = site_of(place, case, collective, case.size_bytes)
            if reason_not_to_run(place, site):
                continue
            foretold = needed_bytes(
                collective,
                site.geometry,
                4,
                in_place=in_place,
                check=check,
                backend="gloo",
                slots=slots_of(place, site, how),
            )
            gc.collect()
            give_back_freed()
            place.control.barrier()
            assert reset_highest_resident()
            before = highest_resident()
            if check:
                verify(place, site, 1, None)
            measure(place, site, how, None)
            taken = highest_resident() - before
            rows = place.control.matrix([float(foretold), float(taken)])
            worst = int((rows[:, 1] - rows[:, 0]).argmax())
            results.append(
                {
                    "op": name,
                    "in_place": in_place,
                    "check": check,
                    "foretold": int(rows[worst, 0]),
                    "taken": int(rows[worst, 1]),
                }
            )
if rank == 0:
    Path(os.environ["RESULT"]).write_text(json.dumps(results))
leave(place)
os._exit(0)
