"""Runs as a rank: every operation with every data fault that applies, and without any.

Rank 0 writes a JSON list of {op, dtype, redop, root, in_place, fault, wrong, reason, errors}.
"""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.plan import Case, Plan
from wirespeed.ranks.faults import DATA_FAULTS, Fault, FaultyEngine, applies
from wirespeed.ranks.join import join, leave
from wirespeed.ranks.place import site_of
from wirespeed.ranks.verify import verify
from wirespeed.world.identity import Identity

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.environ["STORE"], size)
identity = Identity(
    rank=rank,
    world_size=size,
    local_rank=rank,
    local_world_size=size,
    launcher="local",
    reason="a test",
)
place = join(
    identity, Plan(command="check", steps=()), store, "gloo", lambda: None, lambda bound: None
)
clean = place.engine
faulty_rank = int(os.environ["FAULTY_RANK"])


def cases():
    for collective in CATALOGUE.values():
        redops = ("sum", "prod", "max", "avg") if collective.reduces else ("none",)
        for redop in redops:
            for dtype in ("float32", "bfloat16", "int32", "uint8"):
                for in_place in (False, True):
                    root = 0 if collective.rooted else -1
                    yield Case(
                        op=collective.name,
                        dtype=dtype,
                        redop=redop,
                        root=root,
                        in_place=in_place,
                        size_bytes=4 * 1021 if collective.has_data else 0,
                    )


results, previous, seed = [], None, 0
for case in cases():
    collective = CATALOGUE[case.op]
    for kind in ("", *DATA_FAULTS):
        if kind and not applies(kind, collective, case.redop):
            continue
        culprit = 0 if case.op in ("gather", "reduce") and kind != "twice" else faulty_rank
        fault = Fault(kind, culprit)
        engine = FaultyEngine(clean, fault, rank) if kind else clean
        faulty = replace(place, engine=engine)
        site = site_of(faulty, case, collective, case.size_bytes)
        seed += 1
        found = verify(faulty, site, seed, previous)
        previous = seed
        errors = [asdict(error) for error in found.errors]
        results.append(
            {**asdict(case), "fault": kind, "wrong": found.wrong, "reason": found.reason}
            | {"errors": errors, "culprit": culprit}
        )
if rank == 0:
    Path(os.environ["RESULT"]).write_text(json.dumps(results))
leave(place)
sys.stdout.flush()
os._exit(0)
