"""What perftest and the OSU micro-benchmarks print, and perftest's JSON of both ages."""

from typing import Any

import pytest

from wirespeed.compare.figures import figures_of
from wirespeed.errors import InputError
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes


def one(text: str, **said: Any) -> Run:
    (run,) = import_bytes(text.encode(), name="out.log", **said)
    validated(Run, to_json(run), source="import")
    return run


WRITE = """
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_2
 Number of qps   : 1		Transport type : IB
 Mtu             : 4096[B]
---------------------------------------------------------------------------------------
 local address: LID 0xd06 QPN 0x095f PSN 0x3c9e82 RKey 0x080359 VAddr 0x007f9fc479c000
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
 65536      5000             {peak}            {average}		   0.376000
 8388608    20000            {peak}            {average}		   0.003007
---------------------------------------------------------------------------------------
"""
LATENCY = """
                    Send Latency Test
 Dual-port       : OFF		Device         : mlx5_0
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          1.01           9.24         1.05     	       1.06        	0.05		1.40 		5.11
"""  # noqa: E501


@pytest.mark.parametrize(
    ("unit", "figure"), [("MB/sec", "24056.72"), ("MiB/sec", "24056.72"), ("Gb/sec", "201.80")]
)
def test_the_text_of_ib_write_bw(unit: str, figure: str) -> None:
    block = WRITE.format(unit=unit, peak=figure, average=figure)
    run = one(block + block)  # the server prints what the client does
    assert [(f.test, f.place, f.size_bytes, f.samples) for f in run.figures] == [
        ("ib_write_bw", "mlx5_2", 65536, 5000),
        ("ib_write_bw", "mlx5_2", 8388608, 20000),
    ]
    assert run.figures[1].value == pytest.approx(25.225e9, rel=1e-4)
    assert len(figures_of(run)) == 2


def test_the_text_of_ib_send_lat_and_an_error() -> None:
    run = one(LATENCY + " Completion with error at client\n")
    assert {(f.test, f.unit): f.value for f in run.figures} == {
        ("ib_send_lat", "s"): pytest.approx(1.05e-6),
        ("ib_send_lat 99 %", "s"): pytest.approx(1.4e-6),
    }
    assert (run.verdict, run.findings[0].saw) == ("FAILED", "Completion with error at client")


NEW = """{
"test_info": {
"test": "RDMA_Write_Bidirectional_BW_Test",
"Device": "mlx5_11",
"Number_of_qps": 1
},
"results": {
"MsgSize": 65536,
"n_iterations": 5000,
"BW_peak": 5293.52,
"BW_average": 2229.27,
"MsgRate": 0.035668
}
}
"""
OLD = """{
test_info: {
test: RDMA_Read_BW_Test,
Device: mlx5_0,
},
results: {
MsgSize: 65536,
n_iterations: 5000,
BW_peak: 98.10,
BW_average: 97.70,
MsgRate: 0.186350,
},
}
"""


def test_the_json_has_its_unit_from_the_message_rate() -> None:
    (both,) = one(NEW).figures
    assert (both.test, both.place) == ("ib_write_bw bidirectional", "mlx5_11")
    assert both.value == pytest.approx(2229.27 * 2**20)
    (old,) = one(OLD).figures  # as it was before 2024, which no JSON reader takes
    assert (old.test, old.place, old.samples) == ("ib_read_bw", "mlx5_0", 5000)
    assert old.value == pytest.approx(97.70e9 / 8)


OSU = """
$ mpirun -n 144 -N 36 -hostfile hosts ./osu_allreduce -f
# OSU MPI-CUDA Allreduce Latency Test v7.0
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                      11.69             10.00             13.00        1000
1048576              3576.91           3000.00           4000.00         100

$ mpirun -n 4 ./osu_allgather -c
# OSU MPI Allgather Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1024                   60.00              Pass
$ mpirun -n 2 ./osu_mbw_mr
# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.3
# [ pairs: 1 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
4194304             26903.29           6414.24
# OSU MPI Latency Test v5.3.2
# Size          Latency (us)
0                       1.18
8                       1.21
[host:1234] some warning of MPI
"""


def test_osu_collectives_are_measurements_and_the_rest_are_figures() -> None:
    run = one(OSU)
    small, large, gathered = run.measurements
    # The memory that the title names is part of the series: MPI-CUDA is not MPI.
    assert (small.op, small.engine) == ("all_reduce", "osu MPI-CUDA")
    assert (small.dtype, small.ranks, gathered.engine) == ("int32", 144, "osu")
    assert (large.size_bytes, large.count, large.iterations) == (1 << 20, 1 << 18, 100)
    assert large.time.mean == pytest.approx(3576.91e-6)
    assert large.skew == pytest.approx(1e-3)
    assert large.busbw == pytest.approx(large.algbw * 2 * 143 / 144)
    assert (gathered.op, gathered.size_bytes, gathered.wrong) == ("all_gather", 4096, 0)
    assert [(f.test, f.size_bytes, f.unit) for f in run.figures] == [
        ("Multiple Bandwidth / Message Rate", 4194304, "B/s"),
        ("Multiple Bandwidth / Message Rate: Messages/s", 4194304, "1/s"),
        ("Latency", 0, "s"),
        ("Latency", 8, "s"),
    ]
    assert run.figures[0].value == pytest.approx(26903.29e6)
    assert not run.findings


def test_osu_without_its_command_asks_for_the_ranks() -> None:
    text = "# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n             5.25\n"
    run = one(text)
    assert [f.id for f in run.findings] == ["IMP-004"]
    assert "--ranks N" in run.findings[0].next
    told = one(text, ranks=8)
    assert (told.measurements[0].op, told.measurements[0].ranks, told.world.size) == (
        "barrier",
        8,
        8,
    )
    assert not told.findings


def test_osu_that_found_wrong_data_is_not_ready() -> None:
    run = one(OSU.replace("Pass", "Fail"))
    assert (run.verdict, [f.id for f in run.findings]) == ("FAILED", ["IMP-002"])


@pytest.mark.parametrize(
    "text", ["# OSU MPI Latency Test v7\n# Size  Latency (us)\n", "#bytes\n", ""]
)
def test_headers_without_rows_are_no_results(text: str) -> None:
    with pytest.raises(InputError, match="no rows of nccl-tests or of another"):
        one(text)


@pytest.mark.hostile("lines that are slow to read")
@pytest.mark.parametrize(
    "line",
    [
        "#bytes\nSend_" + "a_" * 3000,
        "# OSU\n" + "mpirun " * 100_000,
        "a1" * 100_000,
        "[1,0]<stdout>:" * 10_000,
        "\n" * 100_000 + "{",
        "nThread 1 nGpus 1\n1 1 float " + "1 " * 100_000 + "x",
    ],
    ids=["perftest", "osu", "a host", "tags", "empty lines", "cells"],
)
def test_long_lines_are_passed_over(line: str, count_attacks: Any) -> None:
    """The first took hours."""
    count_attacks("lines that are slow to read", 1)
    with pytest.raises(InputError, match=r"no rows of|no valid JSON"):
        one(line)


RCCL_TESTS = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
rccl-tests: Version develop:0a1b2c3
# Using devices
#  Rank  0 Group  0 Pid   4711 on       n01 device  0 [0000:05:00] AMD Instinct MI300X
#  Rank  1 Group  0 Pid   4712 on       n01 device  1 [0000:15:00] AMD Instinct MI300X
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong{names}
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    52.43   20.00   20.00      0    41.94   25.00   25.00      0{cells}
     2097152        524288     float     sum      -1   104.86   20.00   20.00      0    83.89   25.00   25.00    N/A{cells}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 22.5
"""  # noqa: E501


@pytest.mark.parametrize(
    ("names", "cells"),
    [("", ""), ("     algo     proto   nchannels", "  Direct    SIMPLE          32")],
)
def test_the_text_of_rccl_tests(names: str, cells: str) -> None:
    run = one(RCCL_TESTS.format(names=names, cells=cells))
    assert (run.versions, run.world.size) == ({"rccl-tests": "develop:0a1b2c3"}, 2)
    assert [(m.size_bytes, m.in_place, m.wrong) for m in run.measurements] == [
        (1 << 20, False, 0),
        (1 << 20, True, 0),
        (2 << 20, False, 0),
        (2 << 20, True, None),
    ]
    assert [m.time.median for m in run.measurements] == pytest.approx(
        [52.43e-6, 41.94e-6, 104.86e-6, 83.89e-6]
    )
    assert run.findings == ()


def test_a_row_of_rccl_tests_that_lacks_a_column_is_damaged() -> None:
    text = RCCL_TESTS.format(names="     algo     proto   nchannels", cells="  Direct    SIMPLE")
    with pytest.raises(InputError):
        one(text)
