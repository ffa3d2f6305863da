"""`wirespeed predict` as a command: exit codes, formats, mistakes."""

import json
import math

import pytest

from wirespeed.cli import run as cli
from wirespeed.runs.importers import import_bytes
from wirespeed.runs.store import save

HEAD = "# nThread 1 nGpus 1 minBytes 1024 maxBytes 16777216 step: 4(factor) iters: 20"
COLUMNS = "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


def table(ranks):
    """What nccl-tests prints for a ring of 20 µs + 10 µs a step, 1 GB/s, a rank a node."""
    lines = [HEAD]
    lines += [
        f"#  Rank  {r} Group  0 Pid  {r} on  node-{r} device  0 [0x0] GPU" for r in range(ranks)
    ]
    lines.append(COLUMNS)
    for power in range(5, 13):
        size = 4**power
        share = 2 * (ranks - 1) / ranks
        us = 20 + 10 * 2 * (ranks - 1) + share * size / 1e3
        rate = size / us / 1e3
        figures = f"{us:.2f} {rate:.4f} {rate * share:.4f} 0"
        lines.append(f"{size} {size // 4} float sum -1 {figures} {figures}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1"]
    return "\n".join(lines).encode()


@pytest.fixture
def refs(tmp_path, monkeypatch):
    """Stored runs of nccl-tests on 2, 3 and 4 nodes."""
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = []
    for ranks in (2, 3, 4):
        (run,) = import_bytes(table(ranks), name="all_reduce.log", op="all_reduce", ranks=ranks)
        save(run)
        names.append(run.id)
    return names


def test_imported_runs_are_enough(refs, capsys):
    assert cli(["predict", *refs, "--nodes", "8", "--sizes", "1M", "-o", "json", "-q"]) == 0
    out = capsys.readouterr()
    (one,) = json.loads(out.out)["collectives"]
    truth = 20 + 140 + 2 * 7 / 8 * 2**20 / 1e3
    assert one["time_us"]["value"] == pytest.approx(truth, rel=0.05)
    assert one["time_us"]["low"] <= truth <= one["time_us"]["high"]
    assert out.err == ""


@pytest.mark.parametrize("format", ["table", "md"])
def test_every_format_prints(refs, capsys, format):
    assert cli(["predict", *refs, "--nodes", "4,16", "-o", format]) == 0
    out = capsys.readouterr()
    assert "all" in out.out
    assert "fitting all_reduce" in out.err


def test_one_world_is_refused_with_the_runs_that_would_help(refs, capsys):
    assert cli(["predict", refs[0], "--nodes", "64", "-q"]) == 3
    out = capsys.readouterr()
    assert "measured on 2 nodes only" in out.err
    assert "wirespeed bench all_reduce --on ssh" in out.err
    assert out.out == ""


def test_a_refusal_among_answers_is_no_success(refs, capsys):
    assert cli(["predict", *refs, "--nodes", "8,4096", "-q"]) == 3
    out = capsys.readouterr().out
    assert "8 × 1" in out
    assert "not predicted: all_reduce on 4096 nodes" in out


def test_a_model_without_its_run_is_refused(refs, capsys):
    assert cli(["predict", *refs, "--nodes", "8", "--model", "small", "-q"]) == 3
    assert "wirespeed train --model small" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--nodes", "4", "--ranks", "4"],
        ["--nodes", "0"],
        ["--nodes", "x"],
        ["--nodes", "٤"],
        ["--nodes", ","],
        ["--nodes", "9" * 30],
        ["--nodes", "4", "--sizes", "1X"],
        ["--nodes", "4", "--sizes", "0"],
        ["--nodes", "4", "--op", "no_such"],
        ["--nodes", "4", "--improve", "magic"],
        ["--nodes", "4", "--strategy", "none-such"],
        ["--nodes", "4", "--bucket-mb", str(math.nan)],
        ["--nodes", "4", "--ranks-per-node", "0"],
    ],
)
def test_mistakes_are_told(refs, capsys, words):
    assert cli(["predict", *refs, *words]) == 2
    out = capsys.readouterr()
    assert out.err
    assert out.out == ""


def test_a_run_that_is_not_there(refs, capsys):
    assert cli(["predict", "no-such-run", "--nodes", "4"]) == 2
    assert "no-such-run" in capsys.readouterr().err
