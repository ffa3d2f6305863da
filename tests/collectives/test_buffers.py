"""Buffers: rotation past the cache, and views for in place."""

import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Geometry
from wirespeed.collectives.oracle import MOST_SLOTS, allocate, rotation

CPU = torch.device("cpu")


def test_rotation_covers_the_cache_twice_and_is_bounded():
    assert rotation(1 << 20, 8 << 20) == 16
    assert rotation(64 << 20, 8 << 20) == 1
    assert rotation(1024, 32 << 20) == MOST_SLOTS
    assert rotation(1024, None) == rotation(0, 1 << 20) == 1


def test_in_place_buffers_share_memory_at_the_right_offset():
    (slot,) = allocate(
        CATALOGUE["all_gather"], Geometry(2, 4, 5), torch.float32, CPU, in_place=True
    )
    slot.input.fill_(7)
    assert slot.output.tolist() == [0] * 10 + [7] * 5 + [0] * 5
    (slot,) = allocate(
        CATALOGUE["reduce_scatter"], Geometry(1, 3, 4), torch.float32, CPU, in_place=True
    )
    slot.output.fill_(7)
    assert slot.input.tolist() == [0] * 4 + [7] * 4 + [0] * 4


def test_out_of_place_buffers_are_apart_and_slots_too():
    slots = allocate(
        CATALOGUE["all_reduce"], Geometry(0, 2, 8), torch.int32, CPU, in_place=False, slots=3
    )
    pointers = {t.data_ptr() for slot in slots for t in (slot.input, slot.output)}
    assert len(pointers) == 6
