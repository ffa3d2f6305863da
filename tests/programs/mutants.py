"""A rank of a world: every operation with every data fault that applies, and without any."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.node.identity import Identity
from wirespeed.plan import Case, Plan
from wirespeed.rank.faulty_engine import DATA_FAULTS, Fault, FaultyEngine, applies
from wirespeed.rank.joining import join, leave
from wirespeed.rank.place import site_of
from wirespeed.rank.verify import verify


def cases() -> Iterator[Case]:
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


def mutants(rank: int, size: int, store: str, faulty_rank: int) -> list[dict[str, Any]]:
    """[{op, dtype, redop, root, in_place, fault, wrong, reason, errors, culprit}]."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    identity = Identity(
        rank=rank,
        world_size=size,
        local_rank=rank,
        local_world_size=size,
        launcher="local",
        reason="a test",
    )
    plan, met = Plan(command="check", steps=()), dist.FileStore(store, size)
    place = join(identity, plan, met, "gloo", lambda: None, lambda bound: None)
    clean = place.engine
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
    leave(place)
    return results
