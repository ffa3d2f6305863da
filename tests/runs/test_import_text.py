"""Texts of nccl-tests in every layout, in the logs they come in, whole and damaged."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from wirespeed.errors import InputError, UsageError
from wirespeed.model.codec import to_json
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes
from wirespeed.runs.schema import load_schema

SAMPLES = Path(__file__).parent / "samples"
NEW = (SAMPLES / "wrong_column.txt").read_text()
OLD = (SAMPLES / "error_column.txt").read_text()

COLUMNS = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
    "     time   algbw   busbw  #wrong\n"
)
CLOSING = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n"


def imported(text: str, *, name: str = "log.txt", op: str = "", ranks: int = 0) -> list[Run]:
    runs = import_bytes(text.encode(), name=name, op=op, ranks=ranks)
    for run in runs:
        Draft202012Validator(load_schema()).validate(to_json(run))
    return runs


def one(text: str, *, name: str = "log.txt", op: str = "", ranks: int = 0) -> Run:
    (run,) = imported(text, name=name, op=op, ranks=ranks)
    return run


def choice(run: Run, name: str) -> tuple[str, str]:
    ((value, reason),) = [(c.value, c.reason) for c in run.choices if c.name == name]
    return value, reason


def ids(run: Run) -> list[str]:
    return [finding.id for finding in run.findings]


def test_the_new_layout() -> None:
    run = one(NEW)
    assert run.command == "import"
    assert (run.verdict, run.exit_code, run.findings) == ("NONE", 0, ())
    assert run.world.size == 4
    assert [(node.host, node.ranks) for node in run.world.nodes] == [
        ("gpu-n01", (0, 1)),
        ("gpu-n02", (2, 3)),
    ]
    assert run.world.nodes[1].gpus[0] == {
        "index": 0,
        "name": "NVIDIA A100-SXM4-40GB",
        "bus": "0000:0f:00",
    }
    assert run.versions == {"nccl-tests": "2.17.6", "nccl": "2.28.8+cuda13.0"}
    assert run.config["minBytes"] == 1048576
    assert choice(run, "operation") == ("all_reduce", "the file names all_reduce_perf")
    assert choice(run, "interval")[0] == "not known"
    assert len(run.measurements) == 6
    first, second, *_, last = run.measurements
    assert (first.op, first.dtype, first.redop, first.root) == ("all_reduce", "float32", "sum", -1)
    assert (first.size_bytes, first.count, first.ranks) == (1048576, 262144, 4)
    assert (first.in_place, second.in_place) == (False, True)
    assert (first.warmup, first.iterations, first.timing) == (1, 20, "batch")
    assert first.engine == "nccl-tests"
    assert first.time.median == first.time.low == first.time.high == pytest.approx(165e-6)
    assert first.algbw == pytest.approx(1048576 / 165e-6)
    assert first.busbw == pytest.approx(1048576 / 165e-6 * 1.5)
    assert (first.wrong, last.wrong) == (0, None)


def test_the_old_layout_with_a_list_of_devices_cut_short() -> None:
    run = one(OLD, name="logs/all_reduce_old.txt")
    assert choice(run, "operation")[1] == "the file's name, all_reduce_old.txt"
    # 4 devices are listed, then "...": only 128 ranks fit all the rounded figures.
    assert choice(run, "ranks")[0] == "128"
    assert {m.ranks for m in run.measurements} == {128}
    assert run.world.size == 128
    assert [m.wrong for m in run.measurements] == [0, 0, 0, 0, 0, None, 0, 0, 0, 0]
    assert run.measurements[0].iterations == 50
    assert run.world.nodes[0].gpus[0]["bus"] == "0x27"


def test_the_bound_of_the_old_error_column() -> None:
    """nccl-tests counted float32 up to 1e-5 as right (DeltaMaxValue), integers at 0 only."""
    at = OLD.replace("1e-06    212.7", "1e-05    212.7")
    assert one(at, op="all_reduce").verdict == "NONE"
    over = OLD.replace("1e-06    212.7", "2e-05    212.7")
    run = one(over, op="all_reduce")
    assert (run.verdict, run.exit_code, ids(run)) == ("FAILED", 1, ["IMP-002"])
    assert run.measurements[0].wrong is None
    assert "1048576 B float: error 2e-05" in run.findings[0].saw
    double = OLD.replace("float ", "double")
    assert one(double, op="all_reduce").verdict == "FAILED"
    half = over.replace("float", " half")
    assert one(half, op="all_reduce").verdict == "NONE"


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[0] ",
        " 0: ",
        "0: ",
        "nccl-test-worker-0: ",
        "[pod/nccl-launcher-x7/launcher] ",
        "2026-02-16T10:00:02.000000000Z ",
        "2026-02-16T10:00:02.000000000Z nccl-node-0 ",
        "[2026-02-16 10:00:02] ",
        "2026-02-16 10:00:02,123 INFO ",
        "(head, rank=0, pid=3808) [1,0]<stdout>:",
        "> ",
        "    ",
        "\x1b[36m(worker pid=7)\x1b[0m ",
    ],
)
def test_prefixes_of_logs(prefix: str) -> None:
    plain = one(NEW)
    run = one("".join(f"{prefix}{line}\n" for line in NEW.splitlines()))
    assert run.measurements == plain.measurements
    assert run.world == plain.world
    assert run.versions == plain.versions
    assert run.findings == ()
    assert one(NEW.replace("\n", "\r\n")).measurements == plain.measurements


def test_lines_of_nccl_between_and_within_rows() -> None:
    info = "gpu-n01:490:512 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n"
    lines = NEW.splitlines(keepends=True)
    between = "".join(info + line for line in lines)
    assert one(between).measurements == one(NEW).measurements
    within = NEW.replace("-1   182.10", "-1" + info + "   182.10")
    # Nothing but cells before the line and behind it, and as many as there are columns: it is certain.
    assert one(within).measurements == one(NEW).measurements
    assert ids(one(within)) == []
    lost = NEW.replace("-1   182.10", "-1" + info + "   182.10   [node] some warning")
    run = one(lost)
    assert len(run.measurements) == 4
    assert ids(run) == ["IMP-003"]
    assert run.findings[0].title.startswith("1 rows could not be read")


def rows(*lines: str, columns: str = COLUMNS) -> str:
    return columns + "".join(line + "\n" for line in lines) + CLOSING


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # (in_place, size, redop, root, time in µs, wrong)
        (
            rows("1024 256 float none 2 10.0 0.10 0.10 0 11.0 0.09 0.09 7"),
            [(False, 1024, "none", 2, 10, 0), (True, 1024, "none", 2, 11, 7)],
        ),
        (  # old broadcast: a root, no redop
            rows(
                "1024 256 float 3 10.0 0.10 0.10 0e+00 11.0 0.09 0.09 0e+00",
                columns="# size count type root time algbw busbw error time algbw busbw error\n",
            ),
            [(False, 1024, "none", 3, 10, 0), (True, 1024, "none", 3, 11, 0)],
        ),
        (  # -T: a time stamp behind each row
            rows("1024 256 float none 0 10.0 0.10 0.10 0 11.0 0.09 0.09 0  2026-05-04 10:11:12"),
            [(False, 1024, "none", 0, 10, 0), (True, 1024, "none", 0, 11, 0)],
        ),
        (  # per-iteration columns
            rows(
                "1024 256 float none 0 10.0 0.10 0.10 0 9 12 12 3 11.0 0.09 0.09 0 9 12 12 3",
                columns="# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv%"
                " time algbw busbw #wrong i_min i_max i_p99 i_cv%\n",
            ),
            [(False, 1024, "none", 0, 10, 0), (True, 1024, "none", 0, 11, 0)],
        ),
        (  # one side in the header
            rows(
                "1024 256 float none 0 10.0 0.10 0.10 0",
                columns="# size count type redop root time algbw busbw #wrong\n",
            ),
            [(False, 1024, "none", 0, 10, 0)],
        ),
        (  # only in-place was run: the other half is blank
            rows("1024 256 float none 0" + " " * 32 + "  11.0  0.09  0.09  0"),
            [(True, 1024, "none", 0, 11, 0)],
        ),
        (  # our own view: a side that was not measured
            rows("1024 256 float none 0 nan nan nan N/A 11.0 0.09 0.09 0"),
            [(True, 1024, "none", 0, 11, 0)],
        ),
        (  # no header at all
            rows("1024 256 float none 0 10.0 0.10 0.10 0 11.0 0.09 0.09 0", columns=""),
            [(False, 1024, "none", 0, 10, 0), (True, 1024, "none", 0, 11, 0)],
        ),
    ],
)
def test_layouts(text: str, expected: list[tuple[object, ...]]) -> None:
    run = one(text, op="broadcast", ranks=4)
    found = [
        (m.in_place, m.size_bytes, m.redop, m.root, round(m.time.median * 1e6, 6), m.wrong)
        for m in run.measurements
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("printed", "ours"),
    [
        ("float", "float32"),
        ("half", "float16"),
        ("double", "float64"),
        ("bfloat16", "bfloat16"),
        ("int8", "int8"),
        ("uint64", "uint64"),
        ("f8e4m3", "float8_e4m3fn"),
        ("f8e5m2", "float8_e5m2"),
    ],
)
def test_dtypes(printed: str, ours: str) -> None:
    text = rows(f"1024 256 {printed} sum -1 10.0 0.10 0.15 0 11.0 0.09 0.13 0")
    assert {m.dtype for m in one(text, op="all_reduce", ranks=4).measurements} == {ours}


def test_each_table_is_a_run() -> None:
    second = NEW.replace("all_reduce_perf", "all_gather_perf").replace("sum ", "none")
    cut = NEW[: NEW.index("     4194304")]
    runs = imported(NEW + "\nsome other line\n" + cut + second)
    assert [run.measurements[0].op for run in runs] == ["all_reduce", "all_reduce", "all_gather"]
    assert [len(run.measurements) for run in runs] == [6, 4, 6]
    assert [ids(run) for run in runs] == [
        [],
        ["IMP-001"],
        ["IMP-006"],
    ]  # the figures are all_reduce's
    assert [run.world.size for run in runs] == [4, 4, 4]
    assert len({run.id for run in runs}) == 3


def test_wrong_data_is_not_ready() -> None:
    run = one(NEW.replace("11.52   17.27       0", "11.52   17.27      42"))
    assert (run.verdict, run.exit_code) == ("FAILED", 1)
    assert run.findings[0].status == "fail"
    assert run.findings[0].saw == "2097152 B float32: 42 wrong elements"
    only_total = one(NEW.replace("values : 0 OK", "values : 3 FAILED"))
    assert only_total.verdict == "FAILED"
    assert only_total.findings[0].saw == "Out of bounds values : 3"


def without_names(text: str) -> str:
    return re.sub(r".*all_reduce_perf.*\n", "", text)


def test_the_operation_from_the_figures() -> None:
    run = one(without_names(NEW))
    assert choice(run, "operation")[0] == "all_reduce"
    assert "1.5" in choice(run, "operation")[1]
    # (n-1)/n of a reducing operation without a root is reduce_scatter alone.
    halves = rows("1048576 65536 float sum -1 100.0 10.49 7.86 0 100.0 10.49 7.86 0")
    head = NEW[NEW.index("# nThread") : NEW.index("#   ")]
    assert choice(one(head + halves), "operation")[0] == "reduce_scatter"


def test_an_operation_that_cannot_be_told_is_asked_for() -> None:
    head = NEW[NEW.index("# nThread") : NEW.index("#   ")]
    text = head + rows("1048576 65536 float none -1 100.0 10.49 7.86 0 100.0 10.49 7.86 0")
    with pytest.raises(InputError) as caught:
        one(text, name="my log")
    assert "fit all_gather, all_to_all" in caught.value.saw
    assert "--op" in caught.value.expected
    assert caught.value.next == "wirespeed runs import 'my log' --op all_gather"
    assert choice(one(text, op="all_to_all"), "operation") == ("all_to_all", "--op")
    assert one(text, name="x/AllGather-2.log").measurements[0].op == "all_gather"
    assert one("# AllToAll\n" + text).measurements[0].op == "all_to_all"


def test_an_option_against_the_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--op broadcast, but log\.txt was written by all_reduce"):
        one(NEW, op="broadcast")


def test_ranks_that_cannot_be_told() -> None:
    text = rows("1024 256 float sum -1 10.0 0.10 0.15 0 11.0 0.09 0.13 0")
    run = one(text, op="all_reduce")
    assert run.world.size == 0
    assert run.measurements[0].ranks == 0
    assert ids(run) == ["IMP-004"]
    assert run.measurements[0].busbw == 0.15e9
    told = one(text, op="all_reduce", ranks=4)
    assert told.measurements[0].ranks == 4
    assert told.findings == ()


def test_groups_side_by_side() -> None:
    split = re.sub(
        r"Rank  (\d) Group  0", lambda m: f"Rank  {m[1]} Group  {int(m[1]) % 2}", NEW
    ).replace("9.53", "6.36")
    run = one(split)
    assert run.world.size == 4
    assert {(m.ranks, m.groups) for m in run.measurements} == {(2, "every-2")}
    nodes = re.sub(r"Rank  (\d) Group  0", lambda m: f"Rank  {m[1]} Group  {int(m[1]) // 2}", NEW)
    assert {m.groups for m in one(nodes).measurements} == {"nodes"}


def test_missing_closing_lines_are_told() -> None:
    cut = NEW[: NEW.index("# Out of bounds")]
    run = one(cut)
    assert len(run.measurements) == 6
    assert ids(run) == ["IMP-001"]
    assert run.findings[0].title == "the table ends without its closing lines: 3 rows kept"


@pytest.mark.slow
@pytest.mark.parametrize("text", [NEW, OLD], ids=["new", "old"])
def test_cut_at_every_byte(text: str) -> None:
    """Whatever is left: whole rows with their true figures, or an InputError."""
    full = one(text, op="all_reduce")
    counts = set()
    for end in range(len(text)):
        try:
            runs = import_bytes(text[:end].encode(), name="cut", op="all_reduce", ranks=0)
        except InputError as error:
            assert "no rows" in error.saw
            continue
        (run,) = runs
        counts.add(len(run.measurements))
        pairs = zip(run.measurements, full.measurements, strict=False)
        assert all(
            (a.time, a.size_bytes, a.wrong) == (b.time, b.size_bytes, b.wrong) for a, b in pairs
        )
        if end < text.index("# Out of bounds values"):
            assert "IMP-001" in ids(run)
    assert counts == set(range(2, len(full.measurements) + 1, 2))


@pytest.mark.parametrize("start", range(0, 2000, 7))
def test_cut_at_the_start(start: int) -> None:
    try:
        runs = imported(NEW[start:], op="all_reduce")
    except UsageError:  # as InputError, or because `all_` was cut from `all_reduce_perf`
        return
    assert all(run.measurements for run in runs)


def test_figures_that_belong_to_another_operation_are_told() -> None:
    run = one(NEW.replace("all_reduce_perf", "reduce_perf"))
    assert ids(run) == ["IMP-006"]
    assert run.findings[0].saw == "busbw is 1.500 × algbw"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"\x00\x01\xff\xfe" * 100,
        b"hello world",
        b"{",
        b"[]",
        b"{}",
        b'{"results": []}',
        b'{"results": 3}',
        b'{"schema": "wirespeed.run/1"}',
        b"1024 256 float",
        b"1 2 float " + b"9" * 5000 + b" 1 1 0 1 1 1 0\n",
        (COLUMNS + "1024 256 float sum -1 1e999 1 1 0 1 1 1 0\n").encode(),
        (COLUMNS + "1024 256 float sum -1 -5 1 1 0 1 1 1 0\n").encode(),
        (COLUMNS + "9" * 400 + " 256 float sum -1 5 1 1 0 1 1 1 0\n").encode(),
        (COLUMNS + "1024 256 float none -1 nan nan nan N/A nan nan nan N/A\n").encode(),
    ],
)
def test_what_has_no_rows_is_an_input_error(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        import_bytes(data, name="bad.log", op="all_reduce")
    assert "bad.log" in caught.value.saw
    assert caught.value.exit_code == 2


@pytest.mark.slow
def test_a_large_text_is_read_in_linear_time() -> None:
    noise = "gpu-n01:490:512 [0] NCCL INFO " + "1 2 3 " * 50 + "\n"
    run = one(noise * 20_000 + NEW)
    assert len(run.measurements) == 6


def test_the_config_is_plain_json() -> None:
    assert json.dumps(one(NEW).config)
