"""Real traces of torch 2.13 (two ranks on gloo, rank 1 late from step 5 on), and rubbish."""

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirespeed.errors import InputError
from wirespeed.watch.traces.naming import op_of_kernel
from wirespeed.watch.traces.reading import calls_of

MADE = Path(__file__).parent / "made"


@pytest.mark.parametrize(
    ("kind", "ops"),
    [
        ("ddp", {"all_reduce": 8}),
        ("plain", {"all_reduce": 32}),
        ("fsdp", {"all_gather": 24, "all_reduce": 12}),  # gloo's reduce-scatter is one
    ],
)
def test_calls_of_both_ranks(kind: str, ops: dict[str, int]) -> None:
    calls = calls_of([str(MADE / f"{kind}_rank*.json.gz")])
    assert set(calls) == {0, 1}
    for rank, of in calls.items():
        assert Counter(one.op for one in of) == ops
        assert {(one.rank, one.group, one.dtype) for one in of} == {(rank, (0, 1), "float32")}
        assert all(one.end_s is not None and one.end_s > one.begin_s > 1.7e9 for one in of)
        assert all(one.size_bytes > 0 for one in of)


def test_an_execution_trace_tells_calls_without_times() -> None:
    found = calls_of([str(MADE / "et_rank0.json.gz")])[0]
    assert {(one.op, one.size_bytes, one.group, one.begin_s) for one in found} == {
        ("all_reduce", 526336, (0, 1), 0.0)
    }
    assert len(found) == 16


def test_a_rank_is_told_by_content_then_name_then_order(tmp_path: Path) -> None:
    shutil.copy(MADE / "ddp_rank1.json.gz", tmp_path / "rank7.json.gz")
    shutil.copy(MADE / "et_rank0.json.gz", tmp_path / "et_5.json.gz")
    shutil.copy(MADE / "et_rank0.json.gz", tmp_path / "z.json.gz")
    assert set(calls_of([str(tmp_path)])) == {1, 5, 2}


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgs4K)", "reduce_scatter"),
        ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs)", "all_reduce"),
        (
            "void multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
            "all_reduce",
        ),
        ("void two_shot_all_reduce_kernel<float, 16, 8>(float**)", "all_reduce"),
        ("void at::native::reduce_kernel<512, 1>(float*)", None),
    ],
)
def test_kernels_on_symmetric_memory_communicate_too(kernel: str, op: str | None) -> None:
    assert op_of_kernel(kernel) == op


def event(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def test_kernels_of_nccl_tell_group_number_and_size(tmp_path: Path) -> None:
    told = {
        "Collective name": "_allgather_base",
        "In msg nelems": 1000,
        "Out msg nelems": 4000,
        "dtype": "BFloat16",
        "Process Group Name": "tp",
        "Process Group Ranks": "[4, 5, 6, 7]",
        "Seq": 17,
    }
    kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    trace = {
        "distributedInfo": {"rank": 5, "world_size": 8},
        "baseTimeNanoseconds": 10**18,
        "traceEvents": [
            event("record_param_comms", "cpu_op", 1.0, 2.0, **told),
            event(kernel, "kernel", 10.0, 5.0, **told),
            event("ncclDevKernel_SendRecv(x)", "kernel", 20.0, 5.0),
        ],
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    gathered, sent = calls_of([str(path)])[5]
    assert (gathered.op, gathered.group, gathered.group_name) == ("all_gather", (4, 5, 6, 7), "tp")
    assert (gathered.seq, gathered.size_bytes, gathered.dtype) == (17, 2000, "bfloat16")
    assert (sent.op, sent.size_bytes, sent.seq) == ("send_recv", 0, -1)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.json", b"", "is empty"),
        ("a.json", b'{"name": "x"}', "JSON of another kind"),
        ("a.txt", b"hello\n" * 99, "is no trace"),
        ("a.et", b"\x14\n\x0c1.1.1-chakra\x00\x01", "protobuf"),
        ("a.json", b'{"traceEvents": [', ""),
    ],
)
def test_what_is_no_trace_is_a_clear_error(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    if not said:
        assert calls_of([str(path)]) == {0: []} or not calls_of([str(path)])
        return
    with pytest.raises(InputError, match=said) as caught:
        calls_of([str(path)])
    assert caught.value.expected


def pg(name: str, *ranks: int) -> dict[str, object]:
    return {"pg_name": name, "pg_desc": f"of {name}", "ranks": list(ranks)}


def of_groups(path: Path, *groups: dict[str, object]) -> list[str]:
    told = {"Input type": ["float"], "Input Dims": [[8]]}
    events = [event("gloo:all_reduce", "user_annotation", 1.0, 2.0, **told)]
    head = {"rank": 0, "world_size": 4, "pg_config": groups}
    path.write_text(json.dumps({"distributedInfo": head, "traceEvents": events}))
    return [str(path)]


def test_where_groups_are_not_told_nothing_is_made_up(tmp_path: Path) -> None:
    """gloo's events tell no group."""
    path = tmp_path / "t.json"
    (call,) = calls_of(of_groups(path, pg("0", 0, 1), pg("1", 0, 1), pg("2", 0)))[0]
    assert (call.group, call.group_name) == ((0, 1), "")
    with pytest.raises(InputError, match="does not tell the groups"):
        calls_of(of_groups(path, pg("0", 0, 1, 2, 3), pg("1", 0, 1)))


def test_a_dump_tells_groups_numbers_and_peers(tmp_path: Path) -> None:
    def entry(name: str, seq: int, **more: object) -> dict[str, object]:
        same = {"process_group": ["7", "pp"], "input_sizes": [[8, 2]], "input_dtypes": ["Half"]}
        times = {"time_created_ns": 10**18 + seq * 10**6}
        return {"profiling_name": name, "collective_seq_id": seq, **same, **times, **more}

    dump = {
        "rank": 4,
        "pg_config": {"7": {"name": "7", "desc": "pp", "ranks": "[4, 6]"}},
        "entries": [
            entry("nccl:all_reduce", 1, time_discovered_completed_ns=10**18 + 2 * 10**6),
            entry("nccl:send 0->1", 2, is_p2p=True),
        ],
    }
    path = tmp_path / "nccl_trace_rank_4"
    path.write_text(json.dumps(dump))
    reduced, sent = calls_of([str(path)])[4]
    assert (reduced.op, reduced.group, reduced.seq, reduced.size_bytes) == (
        "all_reduce",
        (4, 6),
        1,
        32,
    )
    assert reduced.end_s is None, "when torch noticed it is no time of the GPU"
    assert (sent.op, sent.peer, sent.seq, sent.dtype) == ("send", 6, -1, "float16")


def test_one_damaged_file_among_others_does_not_hide_them(tmp_path: Path) -> None:
    shutil.copy(MADE / "ddp_rank1.json.gz", tmp_path)
    (tmp_path / "rank0.json").write_text('{"schemaVersion": 1, "deviceProperties": [')
    assert set(calls_of([str(tmp_path)])) == {1}


TEXT = gzip.decompress((MADE / "ddp_rank0.json.gz").read_bytes())


@pytest.mark.hostile("fuzzed files")
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_cut_or_damaged_anywhere_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    end = data.draw(st.integers(0, len(TEXT)))
    text = bytearray(TEXT[:end])
    for at in data.draw(st.lists(st.integers(0, max(0, end - 1)), max_size=5)):
        if text:
            text[at] = data.draw(st.sampled_from(b'"{}[],\\x0\x00\xff'))
    path.write_bytes(text)
    try:
        calls = calls_of([str(path)])
    except InputError as error:
        assert error.saw
    else:
        assert all(one.size_bytes >= 0 for of in calls.values() for one in of)
