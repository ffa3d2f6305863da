"""What cannot be done is refused at once: the right exit code, what was seen, no traceback."""

import re
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

SAMPLE = Path(__file__).parents[1] / "runs" / "samples" / "wrong_column.txt"

USAGE = {
    "bench all_reduce -b 1Q": "1Q",
    "bench all_reduce -b 0": "-b 0",
    "bench all_reduce -b -1K": "-1K",
    "bench all_reduce -b 1e400": "1e400",
    "bench all_reduce -b 4K -e 1K": "-e 1K is below -b 4K",
    "bench all_reduce -f 1": "--factor",
    "bench all_reduce -f 2 -i 4": "-f and -i",
    "bench all_reduce -i 1 -e 1G": "10,000 sizes",
    "bench all_reduce -n 0": "--iterations",
    "bench all_reduce -m 0": "--in-flight",
    "bench all_reduce -r -1": "--root",
    "bench all_reduce -d float33": "float33",
    "bench all_reduce -o yaml": "yaml",
    "bench all_reduce -o json -o md": "json and md",
    "bench all_reduce --groups every-0": "every-0",
    "bench all_reduce --timing never": "--timing",
    "bench all_reduce --timeout nan": "nan",
    "bench all_reduce --timeout inf": "inf",
    "bench all_reduce --max-time nan": "nan",
    "bench all_reduce --precision 0": "--precision",
    "bench all_reduce --seed -1": "--seed",
    "bench all_reduse": "all_reduse",
    "bench": "no operation",
    "check --ranks 0": "--ranks",
    "check --ranks 100000": "--ranks",
    "check --ranks two": "--ranks",
    "check --only COL-999": "COL-999",
    "check --explain COL-999": "COL-999",
    "check --only storage": "--data FOLDER",
    "check --only COL,storage -l long": "--data FOLDER",
    "check --only COL --data /tmp": "--only",
    "check --data=": "no folder",
    "check -l soak --data /tmp": "-l soak",
    "check --model tiny": "--data",
    "check --data /tmp --model tini": "no model is called 'tini'",
    "check --data /tmp --samples-per-s 0": "--samples-per-s",
    "check --inject boom:rank=1": "boom",
    "check --inject kill:rank=2 --ranks 2": "rank=0 to rank=1",
    "check --inject flip:rank=1,at=all_reduse": "all_reduse",
    "check --engine smoke": "--engine",
    "check -l forever": "--level",
    "runs show nosuch": "nosuch",
    "runs show last": "no runs",
    "runs rm nosuch --yes": "nosuch",
    "runs import nosuch.txt": "nosuch.txt",
    "chekc": "chekc",
}
ALONE = ("bench all_reduce -b 1Q", "check --inject boom:rank=1", "runs show nosuch", "chekc")
"""As processes of their own: of each way to the end one."""


@pytest.mark.parametrize("command", USAGE)
def test_wrong_usage(cli: Any, says_clearly: Any, command: str) -> None:
    words = command.split()
    done = cli(*words, timeout=15) if command in ALONE else cli.here(*words)
    assert USAGE[command] in says_clearly(done, 2)
    assert done.out == ""
    assert cli.folders() == [], "a run was begun"


@pytest.mark.parametrize("place", ["/dev/null/home", "/proc/nothing"])
def test_a_run_folder_that_cannot_be_written(cli: Any, says_clearly: Any, place: str) -> None:
    done = cli.here("check", "-l", "quick", "--ranks", "2", env={"WIRESPEED_HOME": place})
    told = says_clearly(done, 3)
    assert place in told
    assert "WIRESPEED_HOME=" in told, "no way out is shown"


def test_a_disk_that_is_full_from_the_start(cli: Any, says_clearly: Any) -> None:
    """No file may grow beyond 1000 bytes: not even the header fits."""
    done = cli(
        "bench",
        "barrier",
        "-n",
        "3",
        "--ranks",
        "2",
        "-q",
        limits={resource.RLIMIT_FSIZE: 1000},
        timeout=30,
    )
    assert "run.json" in says_clearly(done, 3)


@pytest.mark.slow
def test_a_disk_that_fills_while_it_runs(cli: Any) -> None:
    """The header fits, a later record does not: all is told, and what was written stays readable."""
    words = ("bench", "all_reduce", "-b", "1K", "-e", "16M", "-f", "2", "-n", "3", "--ranks", "2")
    limits = {resource.RLIMIT_FSIZE: 12_000}
    done = cli(*words, "-q", limits=limits, timeout=60)
    assert done.code == 0, done.err
    assert "MEASURED" in done.out and "16M" in done.out.replace(" ", "")
    assert "could not be stored whole" in done.err and "next" in done.err
    cli.nothing_runs()
    assert cli.stored("measurement"), "12 KB hold some of fifteen sizes"
    shown = cli.here("runs", "show", "last", "-o", "json")
    assert shown.code == 0, shown.err
    assert len(shown.json["measurements"]) == len(cli.stored("measurement"))
    assert shown.json["verdict"] == "UNKNOWN"


def test_stdout_that_is_full(cli: Any) -> None:
    """`wirespeed … > /dev/full`: said, no traceback, and no success."""
    script = f"exec {sys.executable} -m wirespeed check --list > /dev/full"
    done = cli.start_words(["sh", "-c", script]).wait(15)
    assert done.code == 3
    assert "Traceback" not in done.err
    assert "No space left" in done.err


def test_a_reader_that_leaves(cli: Any) -> None:
    script = f"{sys.executable} -m wirespeed check --list | head -n 1"
    done = cli.start_words(["sh", "-c", script]).wait(15)
    assert done.err == ""
    assert len(done.out.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed(cli: Any, closed: str) -> None:
    """Nothing opened later takes their place, and the run is stored with its own exit code."""
    words = "-m wirespeed launch --ranks 1 -- sh -c 'echo told; exit 7'"
    done = cli.start_words(["sh", "-c", f"{sys.executable} {words} {closed}"]).wait(30)
    assert done.code == 7 and "Traceback" not in done.err
    assert cli.run()["exit_code"] == 7
    logs = [path.read_text() for path in cli.folders()[0].glob("logs/rank-*.log")]
    assert logs == ["told\n"]


def test_a_reader_that_leaves_before_the_verdict(cli: Any) -> None:
    """The exit code is the verdict's, and the run is stored."""
    log = cli.folder / "job.log"
    log.write_text("nothing known\n")
    script = f"({sys.executable} -m wirespeed diagnose {log} -q; echo $? >&2) | true"
    assert cli.start_words(["sh", "-c", f"sleep 0.1; {script}"]).wait(30).err == "3\n"
    assert cli.run()["exit_code"] == 3


@pytest.fixture(scope="module")
def kept(new_cli: Any) -> tuple[Any, Any, bytes]:
    """A run that was stored: its home, what was said, and the bytes of its run.json."""
    cli = new_cli()
    done = cli("bench", "barrier", "-n", "3", "-w", "1", "--ranks", "2", "-q", "-o", "json")
    (folder,) = cli.folders()
    return cli, done, (folder / "run.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1, 200])
def test_a_run_folder_cut_short(kept: tuple[Any, Any, bytes], left: int) -> None:
    """run.json cut at any place: the records alone tell the run, with a finding that says so."""
    cli, done, whole = kept
    (folder,) = cli.folders()
    (folder / "run.json").write_bytes(whole[:left])
    shown = cli.here("runs", "show", "last", "-o", "json")
    assert shown.code == 0, shown.err
    assert "Traceback" not in shown.err
    assert shown.json["measurements"] == done.json["measurements"]
    assert "RUN-001" in {one["id"] for one in shown.json["findings"]}


def test_a_run_folder_without_anything(cli: Any, says_clearly: Any) -> None:
    folder = cli.home / "runs" / "20261103-101112-0badcafe"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"schema": "wirespeed.run/1", "id"')
    told = says_clearly(cli.here("runs", "show", "last"), 2)
    assert "run.json" in told
    listed = cli.here("runs", "list")
    assert listed.code == 0
    assert "damaged" in listed.out


def test_nccl_tests_text_cut_in_the_middle(cli: Any, says_clearly: Any) -> None:
    """Refused with a reason where no row is whole, else stored with a warning; nothing in between."""
    text, file = SAMPLE.read_text(), cli.folder / "cut.txt"
    rows = [found.start() for found in re.finditer(r"^ +\d+ +\d+ +float", text, re.MULTILINE)]
    assert len(rows) == 3
    for end in (0, rows[0], rows[0] + 60):
        file.write_text(text[:end])
        says_clearly(cli.here("runs", "import", str(file)), 2)
        assert cli.folders() == []
    file.write_text(text[: rows[2] + 60])
    done = cli.here("runs", "import", str(file))
    assert done.code == 0, done.err
    assert {m["size_bytes"] for m in cli.run()["measurements"]} == {1048576, 2097152}
    assert [one["id"] for one in cli.run()["findings"] if one["status"] == "warn"]


def test_a_file_that_is_no_measurement(cli: Any, says_clearly: Any) -> None:
    says_clearly(cli.here("runs", "import", "/bin/true"), 2)
    says_clearly(cli.here("runs", "import", "/dev/null"), 2)
    says_clearly(cli.here("runs", "import", str(cli.folder)), 2)
