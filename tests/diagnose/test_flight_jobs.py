"""Dumps of whole jobs: many groups, transfers, lost entries, several jobs, pickles, hostile ones."""

import json
import os
import pickle
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wirespeed.cli.diagnose import diagnose as command
from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.flight_pickle import NotPlainError, plain
from wirespeed.diagnose.sources import find_sources
from wirespeed.errors import InputError
from wirespeed.model.records import Finding

Dumps = dict[int, dict[str, Any]]
HOUR = 3600 * 10**9


def job(tp: int, dp: int, version: str = "2.10") -> Dumps:
    """A dump a rank, with TP groups of neighbours and DP groups across; names count up as torch's do."""
    world = tp * dp
    groups = {"0": ("default_pg", list(range(world)))}
    for first in range(0, world, tp):
        groups[str(len(groups))] = ("TP", list(range(first, first + tp)))
    for first in range(tp):
        groups[str(len(groups))] = ("DP", list(range(first, world, tp)))
    found: Dumps = {}
    for rank in range(world):
        config = {
            name: {"name": name, "desc": desc, "ranks": json.dumps(ranks)}
            for name, (desc, ranks) in groups.items()
            if rank in ranks
        }
        found[rank] = {"version": version, "pg_config": config, "pg_status": {}, "entries": []}
    return found


def call(dump: dict[str, Any], desc: str, seq: int, op: str = "all_reduce", **more: Any) -> None:
    name = next(name for name, one in dump["pg_config"].items() if one["desc"] == desc)
    entry = {
        "pg_id": 7,
        "process_group": (name, desc),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 10**18 + len(dump["entries"]),
        "input_sizes": [[64]],
        "input_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
    }
    dump["entries"].append(entry | more)


OPEN: dict[str, Any] = {"state": "scheduled", "retired": False}


def write(folder: Path, dumps: Dumps, name: str = "trace_{}") -> None:
    folder.mkdir(exist_ok=True)
    for rank, dump in dumps.items():
        (folder / name.format(rank)).write_bytes(pickle.dumps(dump, protocol=2))


def findings(folder: Path) -> list[Finding]:
    return list(diagnose(find_sources([str(folder)])).findings)


def blamed(folder: Path) -> list[str]:
    found = [one for one in findings(folder) if one.status == "fail"]
    return [one.subject.name for one in found if one.subject.kind == "rank"]


def test_one_of_many_groups_stops_all_and_one_rank_is_named(tmp_path: Path) -> None:
    """256 ranks, 72 groups of three descriptions: 8 wait for it at once, 247 behind them."""
    dumps = job(8, 32)
    for rank, dump in dumps.items():
        call(dump, "TP", 40)
        if rank == 77:
            continue
        call(dump, "TP", 41, **(OPEN if rank // 8 == 77 // 8 else {}))
        if rank // 8 != 77 // 8:
            call(dump, "DP", 9, **(OPEN if rank % 8 else {"state": "started", "retired": False}))
    write(tmp_path, dumps, "a-file.{}.bin")
    (one,) = findings(tmp_path)
    assert (one.id, one.subject.name, one.confidence) == ("FLIGHT-002", "rank 77", "certain")
    assert "collective 41 of group TP (10)" in one.title
    assert "more wait behind them" in one.saw


def test_the_content_tells_the_rank_under_any_name(tmp_path: Path) -> None:
    dumps = job(2, 2)
    for rank, dump in dumps.items():
        call(dump, "TP", 1)
        if rank != 2:
            call(dump, "TP", 2, **(OPEN if rank == 3 else {}))
            call(dump, "DP", 1, **OPEN)
    for name, dump in zip("zyxw", dumps.values(), strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(dump))
    assert blamed(tmp_path) == ["rank 2"]


@pytest.mark.parametrize("version", ["2.2", "2.10"])
def test_a_list_of_entries_and_other_keys_of_older_versions(tmp_path: Path, version: str) -> None:
    for rank in range(3):
        entries: list[dict[str, Any]] = [
            {"pg_id": 0, "seq_id": n, "state": "completed"} for n in (1, 2)
        ]
        entries += [{"pg_id": 0, "seq_id": 3, "state": "scheduled"}] if rank != 1 else []
        for one in entries:
            one |= {"profiling_name": "nccl:all_reduce", "input_sizes": [[4]]}
        dump: object = entries if version == "2.2" else {"version": version, "entries": entries}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    assert blamed(tmp_path) == ["rank 1"]


def test_who_waits_for_a_transfer_is_no_culprit(tmp_path: Path) -> None:
    """Stage 1 waits for what stage 0 does not send; the rest waits for stage 1."""
    dumps = job(1, 3)
    receive: dict[str, Any] = {"is_p2p": True, "p2p_seq_id": 5, "profiling_name": "nccl:recv 1<-0"}
    call(dumps[1], "default_pg", 0, **receive, **OPEN)
    call(dumps[2], "default_pg", 4, **OPEN)
    write(tmp_path, dumps)
    assert blamed(tmp_path) == ["rank 0"]


def test_ranks_that_wait_for_each_other_are_told_and_nobody_named(tmp_path: Path) -> None:
    dumps = job(2, 2)
    call(dumps[0], "TP", 1, **OPEN)
    call(dumps[1], "DP", 1, **OPEN)
    call(dumps[2], "DP", 1, **OPEN)
    call(dumps[3], "TP", 1, **OPEN)
    write(tmp_path, dumps)
    (one,) = findings(tmp_path)
    assert (one.id, one.status, one.subject.kind) == ("FLIGHT-006", "fail", "job")


STEP = [("TP", "all_gather"), ("TP", "all_gather"), ("DP", "all_reduce")]
EVALUATION = ("default_pg", "all_reduce")


def program(dumps: Dumps, of: dict[int, list[tuple[str, str]]]) -> None:
    """Each rank's calls in their order; the last one is open."""
    for rank, calls in of.items():
        numbers: Counter[str] = Counter()
        for place, (desc, op) in enumerate(calls):
            last = OPEN if place == len(calls) - 1 else {}
            call(dumps[rank], desc, numbers[desc], op, record_id=place, **last)
            numbers[desc] += 1


@pytest.mark.parametrize(
    ("after", "named"),
    [
        # One rank calls what the others do not: its neighbours wait for it, and it for all.
        ({0: STEP, 1: STEP, 2: [EVALUATION], 3: STEP[:1]}, ["rank 2"]),
        # One rank leaves out what the others call, and waits for one of these.
        ({0: [EVALUATION], 1: [EVALUATION], 2: [EVALUATION], 3: STEP[:1]}, ["rank 3"]),
        # Two and two: who is right is open.
        ({0: STEP[:1], 1: [EVALUATION], 2: [EVALUATION], 3: STEP[:1]}, []),
    ],
    ids=["calls another", "leaves one out", "two and two"],
)
def test_peers_at_the_same_place_tell_who_of_a_circle_left_the_order(
    tmp_path: Path, after: dict[int, list[tuple[str, str]]], named: list[str]
) -> None:
    dumps = job(2, 2)
    program(dumps, {rank: [*STEP, *STEP, *calls] for rank, calls in after.items()})
    write(tmp_path, dumps)
    assert blamed(tmp_path) == named


def test_two_ranks_have_no_peers_that_tell(tmp_path: Path) -> None:
    dumps = job(2, 1)
    program(dumps, {0: [*STEP[:2] * 3, EVALUATION], 1: [*STEP[:2] * 3, STEP[0]]})
    write(tmp_path, dumps)
    (one,) = findings(tmp_path)
    assert (one.id, one.subject.kind) == ("FLIGHT-006", "job")


def test_groups_alike_tell_which_of_two_is_odd(tmp_path: Path) -> None:
    dumps = job(2, 3)
    for rank, dump in dumps.items():
        call(
            dump,
            "TP",
            5,
            "all_gather" if rank == 3 else "all_reduce",
            **(OPEN if rank in (2, 3) else {}),
        )
    write(tmp_path, dumps)
    assert blamed(tmp_path) == ["rank 3"]


@pytest.mark.parametrize(("backend", "named"), [("gloo", ["rank 2"]), ("nccl", [])])
def test_gathers_of_other_sizes_are_a_mismatch_on_gloo_alone(
    tmp_path: Path, backend: str, named: list[str]
) -> None:
    """gloo aborted rank 3, to whom too much came; the others' last calls failed."""
    dumps = job(4, 1)
    for rank, dump in dumps.items():
        name, size = f"{backend}:all_gather", 65536 if rank == 2 else 9264
        call(dump, "TP", 5, profiling_name=name, input_sizes=[[size]], state="scheduled")
    del dumps[3]
    write(tmp_path, dumps)
    assert blamed(tmp_path) == named


def test_a_tie_that_nothing_breaks_names_nobody(tmp_path: Path) -> None:
    dumps = job(2, 1)
    call(dumps[0], "TP", 5, "all_gather", **OPEN)
    call(dumps[1], "TP", 5, "all_reduce", **OPEN)
    write(tmp_path, dumps)
    (one,) = findings(tmp_path)
    assert (one.id, one.subject.kind) == ("FLIGHT-001", "job")


def test_uneven_all_to_all_and_two_backends_of_one_group_are_no_mismatch(tmp_path: Path) -> None:
    dumps = job(2, 1)
    for rank, dump in dumps.items():
        call(dump, "TP", 5, "all_to_all", input_sizes=[[7 + rank, 4]])
        call(dump, "TP", 6, profiling_name="gloo:all_reduce" if rank else "nccl:broadcast")
    write(tmp_path, dumps)
    assert not [one for one in findings(tmp_path) if one.status == "fail"]


def test_a_ring_that_lost_entries_still_tells(tmp_path: Path) -> None:
    """The culprit's ring holds nothing of the group any more that others wait in."""
    dumps = job(4, 1)
    for rank, dump in dumps.items():
        for seq in range(900, 905):
            call(dump, "default_pg", seq)
        if rank != 2:
            call(dump, "TP", 3, **OPEN)
    write(tmp_path, dumps)
    assert blamed(tmp_path) == ["rank 2"]


def test_a_rank_that_ended_has_victims_whose_calls_are_retired(tmp_path: Path) -> None:
    """gloo retires a collective that failed, in the state `scheduled`."""
    failed: dict[str, Any] = {"state": "scheduled", "retired": True}
    dumps = job(4, 1)
    for rank, dump in dumps.items():
        call(dump, "TP", 1, **failed)
        if rank != 3:
            call(dump, "TP", 2, **failed)
    write(tmp_path, dumps)
    assert blamed(tmp_path) == ["rank 3"]


def test_the_rank_without_a_dump_may_be_it(tmp_path: Path) -> None:
    dumps = job(4, 1)
    for dump in dumps.values():
        call(dump, "TP", 1, **OPEN)
    del dumps[3]
    write(tmp_path, dumps)
    (one,) = findings(tmp_path)
    assert (one.id, one.status) == ("FLIGHT-003", "warn")
    assert "no dump of rank 3" in one.saw
    done = CliRunner().invoke(command, [str(tmp_path), "-q"], standalone_mode=False)
    assert done.return_value == 3


def test_dumps_of_two_jobs_are_told_and_judged_apart(tmp_path: Path) -> None:
    for number, culprit in enumerate((0, 1)):
        dumps = job(2, 1)
        for rank, dump in dumps.items():
            call(dump, "TP", 1, time_created_ns=10**18 + number * 50 * HOUR)
            if rank != culprit:
                call(dump, "TP", 2, time_created_ns=10**18 + number * 50 * HOUR, **OPEN)
        write(tmp_path / f"job-{number}", dumps)
    assert [one.id for one in findings(tmp_path)] == ["FLIGHT-002", "FLIGHT-002", "FLIGHT-007"]
    assert blamed(tmp_path) == ["rank 0", "rank 1"]


def test_a_pickle_that_breaks_off_is_told_and_never_good(tmp_path: Path) -> None:
    dumps = job(2, 1)
    for dump in dumps.values():
        call(dump, "TP", 1)
    write(tmp_path, dumps)
    whole = (tmp_path / "trace_1").read_bytes()
    (tmp_path / "trace_1").write_bytes(whole[:-40])
    found = findings(tmp_path)
    assert [one.id for one in found] == ["FLIGHT-003", "FLIGHT-004"]
    assert "breaks off" in found[1].title
    with pytest.raises(InputError, match="breaks off"):
        findings(tmp_path / "trace_1")


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.hostile("pickles")
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "it-ran"
    data = pickle.dumps({"pg_config": {}, "entries": Hostile(mark)}, protocol=protocol)
    (tmp_path / "trace_0").write_bytes(data)
    with pytest.raises(InputError, match="more than plain data"):
        findings(tmp_path / "trace_0")
    assert not mark.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n.",
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a memo of 2 billion places
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x02P0\n.",
        b"\x80\x02K\x01e.",
        b"\x80\x02h\x05.",
        b"\x80\x02.",
        b"\x80\x02]" + b"]" * 50,
        struct.pack("<2sB8s", b"\x80\x04", 0x8E, b"\xff" * 8),
    ],
)
def test_no_instruction_costs_memory_or_more_than_an_error(code: bytes) -> None:
    with pytest.raises(NotPlainError):
        plain(code)


def test_plain_data_come_back_as_they_were() -> None:
    data = {"a": [1, -5, 2**40, 300, 70000, None, True, (1, 2.5)], "ä" * 300: (), "b": ("x",) * 9}
    for protocol in (2, 3, 4, 5):
        assert plain(pickle.dumps(data, protocol=protocol)) == data


def test_a_list_that_holds_itself_is_no_trouble(tmp_path: Path) -> None:
    laughs: Any = [1]
    for _ in range(60):
        laughs = [laughs] * 10
    dumps = job(2, 1)
    for rank, dump in dumps.items():
        call(dump, "TP", 1 + rank, input_sizes=laughs, input_dtypes=laughs, **OPEN)
        call(dump, "TP", 2 + rank, profiling_name=laughs, state=laughs, pg_id=laughs)
        dump["entries"][-1]["process_group"] = [laughs, laughs]
    write(tmp_path, dumps)
    assert findings(tmp_path)


@pytest.mark.slow
def test_a_real_gloo_job(tmp_path: Path) -> None:
    """Four ranks, torch's own dumps."""
    pytest.importorskip("torch", reason="Requires: torch")
    script = Path(__file__).parents[2] / "benchmarks" / "flight_worlds.py"
    typed = [sys.executable, str(script), "--worlds", "1", "--most", "4"]
    done = subprocess.run(typed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "precision 1.000, recall 1.000" in done.stdout


@pytest.mark.skipif("WIRESPEED_TEST_FLIGHT" not in os.environ, reason="Requires: real dumps")
def test_real_dumps_of_a_hang() -> None:
    folder = Path(os.environ["WIRESPEED_TEST_FLIGHT"])
    assert blamed(folder) == ["rank 9", "rank 14"]
