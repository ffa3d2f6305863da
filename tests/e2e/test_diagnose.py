"""`wirespeed diagnose` as its users call it."""

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest

FULL = (
    "node-1:51:54 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : "
    "No space left on device\n"
)


def test_a_cause_is_named_with_its_line_and_exit_code_1(cli: Any, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("epoch 1\n" + FULL)
    done = cli("diagnose", str(log), "-o", "json")
    assert done.code == 1, done.err
    (finding,) = (one for one in done.json["findings"] if one["status"] == "fail")
    assert (finding["id"], finding["category"]) == ("SHM-001", "shm-too-small")
    assert finding["confidence"] == "certain"
    assert finding["subject"] == {"kind": "node", "name": "node-1"}
    assert finding["evidence"][0].startswith(f"{log}:2: ")
    assert done.json["config"]["lines"] == 2
    assert cli.run() == done.json


def test_standard_input_and_a_packed_file_together(cli: Any, tmp_path: Path) -> None:
    packed = tmp_path / "old.log.gz"
    packed.write_bytes(gzip.compress(FULL.encode()))
    words = f"echo nothing here | {sys.executable} -m wirespeed diagnose - {packed}"
    done = cli.start_words(["sh", "-c", words]).wait()
    assert done.code == 1, done.err
    assert "/dev/shm is full" in done.out


def test_a_log_without_anything_known_is_no_pass(cli: Any, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1\nstep 2\n")
    done = cli.here("diagnose", str(log))
    assert done.code == 3
    assert "no known trouble in 2 lines; the logs show no end" in " ".join(done.out.split())
    assert "NOTHING KNOWN" in done.out and "READY" not in done.out


@pytest.mark.slow
def test_the_logs_of_a_stored_run(cli: Any, tmp_path: Path) -> None:
    run = cli("check", "-l", "quick", "--ranks", "2", "--only", "COL-012", "-o", "json").json
    done = cli.here("diagnose", run["id"])
    assert (done.code, run["verdict"]) == (0, "PASSED"), done.err
    assert "wirespeed check ended with exit code 0" in " ".join(done.out.split())
    assert "ENDED WELL" in done.out and "READY" not in done.out


OWN = """\
rules:
  - id: MINE-001
    category: storage
    role: cause
    anchors: [stale file handle]
    pattern: '(?P<path>/\\S+): stale file handle'
    sentence: 'the NFS server no longer knows {path}'
    fix: mount it again
    positive: ['cat: /data/x: Stale file handle']
"""


@pytest.mark.parametrize("named", [True, False])
def test_rules_of_ones_own(cli: Any, tmp_path: Path, named: bool) -> None:
    """Named, or in the folder where they always count."""
    log, rules = tmp_path / "job.log", tmp_path / "mine.yaml"
    log.write_text("open: /data/train.bin: Stale file handle\n")
    if not named:
        (cli.home / "rules").mkdir(mode=0o700, parents=True)
        rules = cli.home / "rules" / "mine.yaml"
    rules.write_text(OWN)
    words = ("--rules", str(rules)) if named else ()
    done = cli.here("diagnose", str(log), *words)
    assert done.code == 1, done.err
    assert "the NFS server no longer knows /data/train.bin" in " ".join(done.out.split())
    assert "mount it again" in cli.here("diagnose", "--explain", "mine-001", *words).out
    rules.write_text(OWN.replace("role: cause", "role: because"))
    done = cli.here("diagnose", str(log), *words)
    assert done.code == 2
    assert "mine.yaml:4: rules[0].role: saw 'because'" in done.err
    assert "Traceback" not in done.err


def test_a_file_of_rules_that_is_not_there(cli: Any) -> None:
    done = cli.here("diagnose", "job.log", "--rules", "nowhere.yaml")
    assert done.code == 2
    assert "nowhere.yaml cannot be read: No such file" in done.err


@pytest.mark.parametrize(
    "words", [("--list",), ("--explain", "shm-001"), ("--explain", "DIAG-000"), ("--rules-schema",)]
)
def test_what_it_knows_is_told(cli: Any, words: tuple[str, ...]) -> None:
    done = cli.here("diagnose", *words)
    assert done.code == 0
    assert len(done.out) > 80


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no log is given"),
        (("no-such-file",), "there is no no-such-file"),
        (("--explain", "XX-1"), "no rule has the id"),
    ],
)
def test_bad_input_is_told(cli: Any, words: tuple[str, ...], told: str) -> None:
    done = cli.here("diagnose", *words)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_check_and_the_diagnosis_of_its_logs_agree(cli: Any) -> None:
    """A setting that names no interface: the check names it, and so does what its ranks printed."""
    env = {"GLOO_SOCKET_IFNAME": "ib0"}
    done = cli("check", "-l", "quick", "--ranks", "2", "-o", "json", env=env)
    assert done.code == 1, done.err
    findings = done.json["findings"]
    assert [one["id"] for one in findings if one["status"] == "fail"] == ["NET-002"]
    (logged,) = (one for one in findings if one.get("category"))
    assert logged["status"] == "warn" and "ib0" in logged["title"]
    alone = cli.here("diagnose", done.json["id"], "-o", "json").json
    (cause,) = (one for one in alone["findings"] if one["status"] == "fail")
    assert cause["id"] == logged["id"]
