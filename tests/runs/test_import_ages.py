"""Tables as each age of nccl-tests prints them: no good one is accused, and the busbw is right.

Formats: src/common.cu, src/util.cu, src/all_reduce.cu … of NVIDIA/nccl-tests, 2017 to 2025.
"""

from itertools import product
from pathlib import Path

import pytest

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import Source
from wirespeed.runs.importers import run_from_table
from wirespeed.runs.importers.nccl_tests import read_tables

RANKS = 8
SIZES = (8, 1 << 20, 1 << 30, 1 << 34)
FACTOR = {"all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "reduce": 1.0, "broadcast": 1.0}
OF = {
    "all_reduce": {"redop": "sum"},
    "all_gather": {},
    "reduce": {"redop": "sum", "root": "0"},
    "broadcast": {"root": "0"},
}
AGES = ("2017", "2019", "2022", "2025")


def figure(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:7.0f}" if us > 10000 else f"{us:7.1f}" if us > 100 else f"{us:7.2f}"


def side(age: str, size: int, op: str, mark: str) -> str:
    seconds = 20e-6 + size / 100e9
    rate = size / seconds / 1e9
    if age == "2017":
        shown = "\tN/A" if mark == "N/A" else f"{mark:>7}"
        return f"  {seconds * 1e3:7.3f}  {rate:5.2f}  {rate * FACTOR[op]:5.2f}  {shown}"
    return f"  {figure(seconds)}  {rate:6.2f}  {rate * FACTOR[op]:6.2f}  {mark:>5}"


def table(age: str, op: str, mark: str) -> str:
    """One whole output with a device list, out-of-place and in-place."""
    extra = {"redop": "none", "root": "-1", **OF[op]} if age >= "2022" else dict(OF[op])
    last = {"2017": "res", "2019": "error"}.get(age, "#wrong")
    first = ["bytes", "N"] if age == "2017" else ["size", "count"]
    names = ["op" if age == "2017" and name == "redop" else name for name in extra]
    half = ["time", "algbw", "busbw", last]
    sides = 1 if (age, op) == ("2017", "broadcast") else 2
    sharp = "" if age == "2017" else "# "
    pid = "" if age == "2017" else " Pid   1115"
    lines = [
        f"{sharp}nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 "
    ]
    lines += [
        f"#   Rank {rank:2d}{pid} on host-{rank} device  0 [0x04] Tesla" for rank in range(RANKS)
    ]
    lines.append("#  " + "  ".join([*first, "type", *names, *half * sides]))
    for size in SIZES:
        values = "".join(f"  {value:>6}" for value in extra.values())
        row = f"{size:12d}  {size // 4:12d}  {'float':>6}{values}"
        lines.append(row + side(age, size, op, mark) * sides)
    lines.append(f"{sharp} Out of bounds values : 0 OK\n{sharp} Avg bus bandwidth    : 44.1 ")
    return "\n".join(lines) + "\n"


MARKS = {"2017": "0e+00 5e-07 1e-06 N/A", "2019": "0e+00 5e-07 1e-06 N/A"}
CASES = [
    (age, op, mark) for age, op in product(AGES, OF) for mark in MARKS.get(age, "0 N/A").split()
]


@pytest.mark.parametrize("age", AGES)
def test_a_good_table_of_any_age_is_good(age: str, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    for case in (case for case in CASES if case[0] == age):
        text = table(*case)
        log.write_text(text)
        found = diagnose([Source("job.log", log)])
        assert found.verdict == "ENDED WELL", (case, found.findings[0].title)
        (read,) = read_tables(text)
        run = run_from_table(read, name=f"{case[1]}_perf.txt")
        assert not [one for one in run.findings if one.status == "fail"], case
        assert read.complete and not read.damaged, case
        assert len(run.measurements) == len(SIZES) * (1 if case[:2] == ("2017", "broadcast") else 2)
        for one in run.measurements:
            seconds = 20e-6 + one.size_bytes / 100e9
            wanted = one.size_bytes / seconds * FACTOR[case[1]]
            assert one.time.median == pytest.approx(seconds, rel=0.03, abs=6e-7), case
            assert one.busbw == pytest.approx(wanted, rel=0.03, abs=6e6), case
            assert one.wrong == (None if case[2] == "N/A" else 0), case


@pytest.mark.parametrize(
    ("age", "mark"),
    [("2017", "1e+00"), ("2019", "3e-01"), ("2019", "nan"), ("2022", "17"), ("2025", "1.2e+06")],
)
def test_wrong_data_of_any_age_are_seen(age: str, mark: str, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    for op in OF:
        text = table(age, op, mark)
        log.write_text(text)
        found = diagnose([Source("job.log", log)])
        assert [one.category for one in found.findings if one.status == "warn"] == [
            "data-corruption"
        ], (op, text)
