"""Files as they arrive: cut, doubled, with CRLF, behind a prefix, mixed with other lines.

Whatever was done to a file, what is read of it are its own figures, or the error is clear.
"""

import re
from pathlib import Path

import pytest

from wirespeed.errors import InputError, UsageError
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted([*(SAMPLES / "prints").iterdir(), *(SAMPLES / "tools").iterdir()])
PREFIXES = [
    "[1,0]<stdout>:",
    "[prterun-head-71@1,0]<stdout>: ",
    "0: ",
    "[0] ",
    "[pod/tests-launcher-x7/main] ",
    "2026-02-16T10:00:02.000000000Z ",
    "2026-02-16T10:00:02.1Z stdout F ",
    "[2026-02-16 10:00:02,123] [rank0]: ",
    "gpu-node-7: ",
    "alpha: ",
    "10.0.0.7: ",
    "Nov 28 10:11:12 ",
    "worker-1  | ",
    "(worker1, rank=1, pid=33870, ip=10.0.0.15) ",
    "(head, rank=0, pid=3808) [1,0]<stdout>:",
    "\x1b[36m(worker pid=7)\x1b[0m ",
    "> ",
]
AVERAGED = ("iperf3-3.17-stream", "nccl_inspector")
"""One figure over all lines: over those that are left it is another one."""
NAMES = [path.name for path in FILES]


def read(data: str, name: str) -> list[Run]:
    runs = import_bytes(data.encode(), name=name)
    for run in runs:
        validated(Run, to_json(run), source="import")
    return runs


def figures(runs: list[Run]) -> set[object]:
    """What was measured, and what the tool said of it."""
    return {
        *(one for run in runs for one in (*run.measurements, *run.figures)),
        *(one.title for run in runs for one in run.findings if one.id in ("IMP-008", "IMP-012")),
    }


def times(runs: list[Run]) -> set[object]:
    """Sizes and times alone: how many ranks there were may need rows that were cut off."""
    return {
        *((m.op, m.size_bytes, m.in_place, m.time) for run in runs for m in run.measurements),
        *(f for run in runs for f in run.figures),
        *(one.title for run in runs for one in run.findings if one.id in ("IMP-008", "IMP-012")),
    }


@pytest.fixture(params=FILES, ids=NAMES)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_before_every_line(file: Path, prefix: str) -> None:
    text = file.read_text()
    plain = read(text, file.name)
    behind = read("".join(f"{prefix}{line}\n" for line in text.splitlines()), file.name)
    assert figures(behind) == figures(plain)
    assert [run.world.size for run in behind] == [run.world.size for run in plain]


def test_lines_that_end_as_on_windows(file: Path) -> None:
    text = file.read_text()
    assert figures(read(text.replace("\n", "\r\n"), file.name)) == figures(read(text, file.name))


def test_a_file_behind_itself_counts_once(file: Path) -> None:
    text = file.read_text()
    plain, doubled = read(text, file.name), read(f"{text}\n{text}", file.name)
    assert figures(doubled) == figures(plain)
    assert len(doubled) == len(plain)


def test_a_file_that_is_cut(file: Path) -> None:
    """At a hundred places: its own figures and no other, or an error that says where it breaks."""
    text = file.read_text()
    whole = times(read(text, file.name))
    kept = 0
    for part in range(1, 100):
        try:
            found = times(read(text[: len(text) * part // 100], file.name))
        except (InputError, UsageError) as error:
            assert file.name in str(error)
            continue
        kept = max(kept, len(found))
        if not file.name.startswith(AVERAGED):
            assert found <= whole
    lines = text.count("\n") > 1 and not file.name.endswith(".json")
    assert kept or not lines, "a file of lines keeps its whole lines"


TEXTS = [path for path in FILES if path.suffix == ".txt"]


@pytest.mark.parametrize("path", TEXTS, ids=[path.name for path in TEXTS])
def test_lines_of_nccl_between_all_lines(path: Path) -> None:
    info = "gpu-n01:490:512 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n"
    text = path.read_text()
    mixed = "".join(info + line for line in text.splitlines(keepends=True))
    assert figures(read(mixed, path.name)) == figures(read(text, path.name))


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_two_writers_whose_lines_alternate(path: Path) -> None:
    """The lines of two pods, or of server and client: the same output twice counts once."""
    text = path.read_text()
    mixed = "".join(
        f"[pod/{pod}/main] {line}\n"
        for line in text.splitlines()
        for pod in ("server-0", "client-0")
    )
    plain, both = read(text, path.name), read(mixed, path.name)
    assert figures(both) == figures(plain)
    assert len(both) == len(plain)


def test_two_writers_with_different_figures() -> None:
    first = (SAMPLES / "prints" / "perftest-4.5.txt").read_text()
    second = first.replace("mlx5_3", "mlx5_4").replace("196.24", "98.12")
    mixed = "".join(
        f"node-1: {a}\nnode-2: {b}\n"
        for a, b in zip(first.splitlines(), second.splitlines(), strict=True)
    )
    found = {(f.place, f.size_bytes): f.value for run in read(mixed, "x") for f in run.figures}
    assert found["mlx5_3", 8388608] == pytest.approx(196.24e9 / 8)
    assert found["mlx5_4", 8388608] == pytest.approx(98.12e9 / 8)


def test_a_tag_within_a_row() -> None:
    """mpirun puts its tag where the program flushed: between out-of-place and in-place."""
    text = (SAMPLES / "prints" / "nccl_tests-2.17.6.txt").read_text()
    tagged = "".join(
        "[1,0]<stdout>:" + re.sub(r"(sum +-1)(?=\s)", r"\1[1,0]<stdout>:", line) + "\n"
        for line in text.splitlines()
    )
    assert tagged.count("[1,0]<stdout>:") > text.count("\n")
    assert figures(read(tagged, "x")) == figures(read(text, "x"))


@pytest.mark.parametrize("place", [7, 200, 701, 702, 703, 704, 705])
def test_a_tag_within_a_document(place: int) -> None:
    """mpirun puts its tag again where a long line fills its buffer, within a number too."""
    line = (SAMPLES / "prints" / "iperf3-3.9-bidir.json").read_text().rstrip("\n")
    tagged = f"[1,0]<stdout>:{line[:place]}[1,0]<stdout>:{line[place:]}\n"
    assert figures(read(tagged, "x")) == figures(read(line, "x"))


def test_a_row_of_osu_with_a_tag_or_another_rank_in_it() -> None:
    text = (SAMPLES / "prints" / "osu-7.4.txt").read_text()
    plain = figures(read(text, "x"))
    for tag in ("[1,0]<stdout>:", "[1,1]<stderr>:some warning\n[1,0]<stdout>:"):
        tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
        cut = tagged.replace("65536                  1", f"65536       {tag}           1")
        assert cut != tagged
        assert figures(read(cut, "x")) == plain


def test_a_document_behind_lines_of_a_script() -> None:
    text = (SAMPLES / "prints" / "nccl_tests-straggler.json").read_text()
    assert figures(read(f"+ ./all_reduce_perf -J out.json\n{text}", "x")) == figures(
        read(text, "x")
    )


def test_a_line_that_the_container_runtime_cut() -> None:
    line = (SAMPLES / "prints" / "iperf3-3.9-bidir.json").read_text().rstrip("\n")
    stamp = "2026-02-16T10:00:02.1Z stdout"
    cut = f"{stamp} P {line[:700]}\n{stamp} F {line[700:]}\n"
    assert figures(read(cut, "x")) == figures(read(line, "x"))


def test_a_last_row_without_its_end() -> None:
    """Pasted: what may be cut is left out, and the run says so; of perftest all that counts is there."""
    osu = (SAMPLES / "prints" / "osu-7.4.txt").read_text().rstrip("\n")
    (run,) = read(osu, "x")
    assert "last line" in [choice.name for choice in run.choices]
    assert not [f for f in run.figures if f.test == "Latency" and f.size_bytes == 65536]
    text = (SAMPLES / "prints" / "perftest-4.5.txt").read_text()
    pasted = text[: text.index("0.002924") + len("0.002924")]
    assert figures(read(pasted, "x")) == figures(read(text, "x"))


@pytest.mark.parametrize(
    "text",
    ['{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n{"step": 3, "loss": 2.3}\n'],
)
def test_json_lines_of_others_are_named_for_what_they_are(text: str) -> None:
    with pytest.raises(InputError, match="JSON Lines of an unknown tool"):
        read(text, "metrics.jsonl")
