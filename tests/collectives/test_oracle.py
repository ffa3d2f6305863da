"""The oracle and its guesses on outputs that are made wrong by hand; no collective runs here."""

import pytest
import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Geometry, dtype_named
from wirespeed.collectives.guess import describe_value, guess
from wirespeed.collectives.oracle import Oracle, bits, sentinel_fill
from wirespeed.collectives.patterns import pattern_for


def oracle_of(op="all_gather", rank=1, ranks=4, count=300, redop="none", dtype="float32", seed=3):
    pattern = pattern_for(dtype_named(dtype), redop, ranks, seed)
    return Oracle(CATALOGUE[op], Geometry(rank, ranks, count, 0), pattern)


def right_output(oracle, dtype=torch.float32):
    output = torch.zeros(oracle.collective.output_count(oracle.geometry), dtype=dtype)
    for segment in oracle.collective.layout(oracle.geometry):
        part = oracle.expected(segment, 0, segment.length, output)
        output[segment.start : segment.start + segment.length] = part
    return output


def judged(oracle, output, previous=None):
    found = oracle.compare(output)
    return found, guess(oracle, output, found, previous)


@pytest.mark.parametrize("op", [name for name, c in CATALOGUE.items() if c.has_data])
def test_the_right_output_is_right(op):
    redop = "sum" if CATALOGUE[op].reduces else "none"
    oracle = oracle_of(op, rank=0, redop=redop)
    output = right_output(oracle)
    found = oracle.compare(output)
    assert (found.wrong, found.elements) == (0, output.numel()) and output.numel() > 0


def test_one_flipped_bit_is_found_where_it_is():
    oracle = oracle_of()
    output = right_output(oracle)
    bits(output)[777] ^= 1 << 20
    found, said = judged(oracle, output)
    assert (found.wrong, found.first, found.last) == (1, 777, 777)
    assert found.segment.source.rank == 2
    assert said.text == "bit flip"
    assert describe_value(found, output.dtype).startswith("element 777: saw ")


def test_nan_and_negative_zero_are_wrong_where_zero_is_right():
    oracle = oracle_of()
    output = right_output(oracle)
    output[5] = float("nan")
    assert oracle.compare(output).wrong == 1


def test_swapped_chunks_name_whose_chunk_came():
    oracle = oracle_of()
    output = right_output(oracle)
    output[:300], output[300:600] = output[300:600].clone(), output[:300].clone()
    found, said = judged(oracle, output)
    assert found.segments_wrong == 2 and found.wrong > 500
    assert said.text == "swapped chunks: holds the chunk from rank 1"


def test_a_shift_by_one_is_told():
    oracle = oracle_of()
    found, said = judged(oracle, right_output(oracle).roll(-1))
    assert found.wrong > 1000
    assert said.text == "shifted by 1 elements"


def test_an_unwritten_last_element_is_told():
    oracle = oracle_of()
    output = right_output(oracle)
    sentinel_fill(output[-1:])
    found, said = judged(oracle, output)
    assert (found.wrong, found.last) == (1, 1199)
    assert said.text == "stale: never written"


def test_the_result_of_the_operation_before_is_told():
    oracle, before = oracle_of(seed=4), oracle_of(seed=3)
    _, said = judged(oracle, right_output(before), previous=3)
    assert said.text == "stale: result of the operation before"


@pytest.mark.parametrize(
    ("ranks_used", "text", "suspect"),
    [
        ([0, 1, 3], "partial sum: rank 2 is missing", 2),
        ([0, 1, 2, 3, 3], "rank 3 contributes twice", 3),
    ],
)
def test_a_missing_or_doubled_rank_is_named(ranks_used, text, suspect):
    oracle = oracle_of("all_reduce", redop="sum")
    output = oracle.pattern.reduced_over(ranks_used, 0, 300, torch.device("cpu")).float()
    _, said = judged(oracle, output)
    assert (said.text, said.suspect) == (text, suspect)


@pytest.mark.parametrize(("redop", "other"), [("sum", "max"), ("sum", "prod"), ("prod", "max")])
def test_another_reduction_is_told(redop, other):
    oracle = oracle_of("all_reduce", redop=redop)
    cpu = torch.device("cpu")
    values = torch.stack([oracle.pattern.values(rank, 0, 300, cpu) for rank in range(4)])
    wrong = {"max": values.max(0).values, "prod": values.prod(0)}[other]
    _, said = judged(oracle, wrong.float())
    assert said.text == f"{other} instead of {redop}"


def test_a_broadcast_from_another_root_names_it():
    oracle = oracle_of("broadcast", rank=1)
    output = oracle.pattern.values(2, 0, 300, torch.device("cpu")).float()
    _, said = judged(oracle, output)
    assert said.text == "wrong root: data of rank 2"


def test_noise_is_called_unexplained():
    oracle = oracle_of("all_reduce", redop="sum")
    generator = torch.Generator().manual_seed(1)
    output = torch.randint(1, 1 << 20, (300,), generator=generator).float()
    _, said = judged(oracle, output)
    assert said.text == "unexplained"


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int8", "uint8", "int64", "float64", "float8_e4m3fn"]
)
def test_the_decoy_never_holds_the_right_value(dtype):
    oracle = oracle_of("broadcast", rank=1, dtype=dtype, count=3000)
    output = torch.zeros(3000, dtype=getattr(torch, dtype))
    oracle.fill_decoy(output)
    assert oracle.compare(output).wrong == 3000


def test_large_outputs_are_compared_in_slices(monkeypatch):
    monkeypatch.setattr("wirespeed.collectives.oracle.SLICE", 64)
    oracle = oracle_of()
    output = right_output(oracle)
    output[[3, 700, 1199]] += 1
    found = oracle.compare(output)
    assert (found.wrong, found.first, found.last, found.elements) == (3, 3, 1199, 1200)
    assert [index for index, _, _ in found.samples] == [3, 700, 1199]


def test_a_tolerance_is_only_what_the_engine_announces():
    exact = oracle_of("all_reduce", redop="sum")
    output = right_output(exact)
    bits(output)[10] += 2
    assert exact.compare(output).wrong == 1
    lenient = Oracle(exact.collective, exact.geometry, exact.pattern, ulps=2)
    assert lenient.compare(output).wrong == 0
