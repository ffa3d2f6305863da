"""`make gpu` where there is no GPU, and what docs/gpu.md shows of a day with one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT, PAGE = ROOT / "benchmarks" / "gpu.py", ROOT / "docs" / "gpu.md"
DAY = SCRIPT.with_suffix(".json")
_BLOCK = re.compile(r"(<!-- made by benchmarks/gpu\.py [^\n]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    for name in ("gpu", "gpu_day", "gpu_parts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import gpu

    return gpu


def test_the_page_shows_the_day_or_that_there_was_none(gpu: Any) -> None:
    told = json.loads(DAY.read_text()) if DAY.exists() else None
    text = PAGE.read_text()
    made = _BLOCK.sub(lambda found: found[1] + gpu.page(told) + found[3], text)
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made


def test_the_page_has_every_part_with_its_time(gpu: Any) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert [(name, float(seconds)) for name, seconds in rows] == [
        (part.__name__, seconds) for part, seconds in gpu.PARTS.items()
    ]


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="Requires: no GPU")
def test_without_a_gpu_it_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3
    assert "a GPU: there is no device /dev/nvidia0" in done.stderr
    assert "libcuda.so.1" in done.stderr
    assert "docs/gpu.md" in done.stderr and not done.stdout


def good(day: Any) -> None:
    """What works."""
    day.figure("all_reduce", "12 µs | 3 <GB/s>")


def absent(day: Any) -> None:
    """What cannot."""
    with day.trying("one thing"):
        raise FileNotFoundError("no such program")
    raise KeyError("time_us")


def wrong(day: Any) -> None:
    """What is not right."""
    day.figure("data", "3 wrong", False)


def hung(day: Any) -> None:
    """What does not end."""
    day.program([sys.executable, "-c", "import time; time.sleep(60)"], bound_s=0.0)


def broken(day: Any) -> None:
    """A run that broke off."""
    bad = {"id": "RAISED-001", "status": "fail", "title": "rank 0 raised", "saw": "CUDA error"}
    run = {"verdict": "FAILED", "findings": [bad], "seconds": 2.0, "measurements": []}
    day_of: Any = sys.modules["gpu_day"]
    day_of.sound(day, run, "graph")


def faulty(day: Any) -> None:
    """An error of ours."""
    day.figure("ratio", f"{1 / len(day.part['figures'])}")


def empty(day: Any) -> None:
    """A check that checked nothing."""
    day_of: Any = sys.modules["gpu_day"]
    day_of.verdict(day, {"verdict": "UNKNOWN", "findings": [], "seconds": 2.0}, "check")


def unchecked(day: Any) -> None:
    """No data were compared."""
    day_of: Any = sys.modules["gpu_day"]
    day_of.data(day, {"verifications": []})


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ((good, absent), 0),
        ((absent,), 3),
        *(((one, good), 1) for one in (wrong, hung, broken, faulty, empty, unchecked)),
    ],
)
def test_what_cannot_run_says_why_and_what_is_wrong_counts(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: Any, code: int
) -> None:
    monkeypatch.setattr(gpu, "missing_for_torch", lambda _: [])
    monkeypatch.setattr(gpu, "NAMED", {part.__name__: part for part in parts})
    monkeypatch.setattr(gpu, "PARTS", dict.fromkeys(parts, 30.0))
    file = tmp_path / "build" / "gpu.json"
    assert gpu.measure(file, []) == code
    told = json.loads(file.read_text())
    assert [*told["parts"]] == [part.__name__ for part in parts]
    text = gpu.page(told)
    assert ("| all_reduce | 12 µs / 3 ‹GB/s› |" in text) == (good in parts)
    assert ("| ✗ " in text) == (code == 1)
    if absent in parts:
        assert "- Not run: one thing: FileNotFoundError: no such program" in text
        assert "- Not run: absent: KeyError: 'time_us'" in text


def test_a_gpu_that_torch_cannot_use_is_said_and_nothing_measured(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    """As of a torch whose CUDA is newer than the driver."""
    monkeypatch.setattr(gpu, "TRIED", "raise RuntimeError('driver too old (found version 12020)')")
    assert gpu.measure(tmp_path / "gpu.json", ["facts"]) == 3
    said = capfd.readouterr().err
    assert "torch can use: RuntimeError: driver too old (found version 12020)" in said
    assert not (tmp_path / "gpu.json").exists()


def test_no_part_begins_when_the_time_is_over(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    day = sys.modules["gpu_day"]
    monkeypatch.setattr(day, "WHOLE_S", 1.0)
    monkeypatch.setattr(gpu, "missing_for_torch", lambda _: [])
    assert gpu.measure(tmp_path / "gpu.json", ["soak"]) == 3
    part = json.loads((tmp_path / "gpu.json").read_text())["parts"]["soak"]
    assert part["cannot"] == ["soak: the nine minutes were over"] and not part["commands"]


def test_ranks_of_an_nccl_before_2_30_call_themselves_hosts(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    parts: Any = sys.modules["gpu_parts"]
    for nccl, variable in (("2.30.7", "NCCL_MULTI_RANK_GPU_ENABLE"), ("2.28.9", "NCCL_HOSTID")):
        day = sys.modules["gpu_day"].Day(notes={"nccl": nccl})
        _, each = parts.sharing(day)
        assert variable in each(1) and each(1)["NCCL_NVLS_ENABLE"] == "0"
        assert {each(rank)["CUDA_VISIBLE_DEVICES"] for rank in range(4)} == {"0"}  # of eight, say
    assert each(0)["NCCL_HOSTID"] != each(1)["NCCL_HOSTID"]


def test_times_of_nccl_tests_are_read_out_of_place(gpu: Any) -> None:
    text = (
        "#       size         count      type   redop    root     time   algbw   busbw  wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       \n"
        "       65536         16384     float     sum      -1     4.62   14.18    0.00      0"
        "     0.38  172.14    0.00      0\n"
        "# Out of bounds values : 0 OK\n"
    )
    assert [*sys.modules["gpu_parts"].perf_rows(text)] == [(65536, 4.62)]


@pytest.mark.slow
def test_a_pretended_day(tmp_path: Path) -> None:
    """Control flow only: tests/programs/pretended_gpu."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tests" / "programs" / "pretended_gpu"),
        "WIRESPEED_TEST_PRETENDED_GPUS": "1",
        "WIRESPEED_HOME": str(tmp_path / "home"),
    }
    words = [
        sys.executable,
        str(SCRIPT),
        "--only",
        "facts,mig",
        "--out",
        str(tmp_path / "gpu.json"),
    ]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    node = {one["what"]: one["value"] for one in told["facts"]["figures"]}["node"]
    assert node.startswith("PASSED")
    assert told["mig"]["cannot"]
