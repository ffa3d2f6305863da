"""A wirespeed.yaml in the working directory: who may have written it decides what it may choose."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wirespeed.cli import run

pytestmark = pytest.mark.hostile("working directories")

Do = Callable[..., tuple[int, str]]
STRANGER = 4242


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work" / "wirespeed.yaml"


@pytest.fixture
def do(capsys: pytest.CaptureFixture[str]) -> Do:
    def command(*words: str) -> tuple[int, str]:
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return command


CHOOSING = [
    ("train", "model: mine:model"),
    ("check", "python: ./python"),
    ("check", "on: ssh"),
    ("bench", "hosts: a,b"),
    ("bench", "env: [LD_PRELOAD=./x.so]"),
    ("launch", "with: [ssh-config=./config]"),
    ("launch", "x: [LD_PRELOAD=./x.so]"),
    ("train", "html: ../.bashrc"),
    ("cluster", "new: {output: ../.bashrc}"),
    ("launch", "command: [./x]"),
    ("cluster", "clean: {yes: true}"),
    ("cluster", "nccl-tests: {program: ./x}"),
]


@pytest.mark.parametrize(("verb", "line"), CHOOSING)
def test_what_chooses_needs_trust(do: Do, here: Path, verb: str, line: str) -> None:
    here.write_text(f"{verb}:\n  {line}\n")
    code, said = do(verb, "--help")
    assert code == 2
    assert "chooses what is run" in said
    assert "next      wirespeed config trust wirespeed.yaml" in said
    other = "compare" if verb != "compare" else "trend"
    assert do(other, "--help")[0] == 0, "only the verb that it would change is refused"


def test_numbers_and_formats_hold_from_any_file(do: Do, here: Path) -> None:
    here.write_text(
        "check: {level: quick, ranks: 2, timeout: 7, fail-on: warn, quiet: yes, allow: PLACE-001}\n"
        "bench: {max-bytes: 1M, dtypes: [bfloat16], output: [wide]}\ntrain: {model: small}\n"
    )
    here.chmod(0o666)
    code, said = do("check", "--print-config")
    assert code == 0, said
    assert [line.split()[1:] for line in said.splitlines() if line.startswith("timeout")] == [
        ["7.0", "wirespeed.yaml"]
    ]
    for words in (("bench", "all_reduce"), ("train",)):
        code, said = do(*words, "--print-config")
        assert code == 0, said


def test_a_key_without_a_value_says_nothing(do: Do, here: Path) -> None:
    here.write_text("check:\n  level:\n  timeout: 7\n")
    code, said = do("check", "--print-config")
    assert code == 0, said
    shown = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line}
    assert (shown["level"], shown["timeout"]) == (["medium", "default"], ["7.0", "wirespeed.yaml"])


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("check: {ranks: [2, 4]}", ("check", "--print-config"), "`check: ranks` holds a list"),
        ("check: {ranks: [[2]]}", ("check", "--print-config"), "`check: ranks` holds a list"),
        ("check: {timeout: [7]}", ("check", "--print-config"), "`check: timeout` holds a list"),
        ("check: {timeout: {a: b}}", ("check", "--print-config"), "`check: timeout` holds keys"),
        ("check: {level: {a: b}}", ("check", "--print-config"), "`check: level` holds keys"),
        ("bench: {dtypes: [[a]]}", ("bench", "--print-config"), "`bench: dtypes` holds a list"),
        ("runs: {show: {output: [md]}}", ("runs", "show"), "`runs: show: output` holds a list"),
    ],
)
def test_an_option_has_words(
    do: Do, here: Path, text: str, words: tuple[str, ...], told: str
) -> None:
    here.write_text(text + "\n")
    code, said = do(*words)
    assert code == 2
    assert told in said and "expected" in said


def test_confirmed_once_and_again_once_changed(do: Do, here: Path, tmp_path: Path) -> None:
    here.write_text("train: {model: mine:model}\n")
    code, said = do("config", "trust")
    assert (code, "it chooses train: model" in said) == (0, True), said
    assert do("train", "--print-config")[0] == 0
    (record,) = (tmp_path / "home" / "trusted").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert json.loads(record.read_text())["file"] == str(here)
    here.write_text("train: {model: theirs:model}\n")
    code, said = do("train", "--print-config")
    assert (code, "changed since you confirmed it" in said) == (2, True), said
    assert do("config", "trust", str(here))[0] == 0
    assert do("train", "--print-config")[0] == 0
    assert do("config", "untrust")[0] == 0
    assert do("train", "--print-config")[0] == 2
    assert do("config", "untrust")[0] == 2


def test_a_copy_elsewhere_is_another_file(
    do: Do, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write_text("train: {model: mine:model}\n")
    assert do("config", "trust")[0] == 0
    other = here.parent / "below"
    other.mkdir()
    (other / here.name).write_text(here.read_text())
    monkeypatch.chdir(other)
    assert do("train", "--print-config")[0] == 2


def test_a_file_that_others_may_write_is_never_trusted(do: Do, here: Path) -> None:
    here.write_text("train: {model: mine:model}\n")
    assert do("config", "trust")[0] == 0
    here.chmod(0o664)
    for words in (("train", "--print-config"), ("config", "trust"), named(here)):
        code, said = do(*words)
        assert (code, "can be written by other users" in said) == (2, True), said


def test_a_file_of_somebody_else_is_never_trusted(
    do: Do, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write_text("train: {model: mine:model}\n")
    assert do("config", "trust")[0] == 0
    if os.geteuid() == 0:  # whose files count as everybody's
        os.chown(here, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    for words in (("train", "--print-config"), named(here)):
        code, said = do(*words)
        assert (code, "belongs to another user" in said) == (2, True), said


def named(file: Path) -> tuple[str, ...]:
    return "--config", str(file), "train", "--print-config"


def test_a_named_file_is_the_users_word(
    do: Do, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write_text("train: {model: mine:model}\n")
    assert do(*named(here))[0] == 0
    monkeypatch.setenv("WIRESPEED_CONFIG", str(here))
    assert do("train", "--print-config")[0] == 0
    code, said = do("--config", "none.yaml", "check", "--print-config")
    assert (code, "none.yaml cannot be read" in said) == (2, True), said


def test_billion_laughs(do: Do, here: Path) -> None:
    levels = "\n".join(
        f"  {chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]" for n in range(9)
    )
    here.write_text(f"check:\n  a: &a [lol,lol]\n{levels}\n")
    code, said = do("check", "--print-config")
    assert (code, "wirespeed.yaml:2: an anchor" in said) == (2, True), said


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_a_file_that_is_none(do: Do, here: Path, make: Callable[[Path], None]) -> None:
    make(here)
    code, said = do("check", "--print-config")
    assert (code, "wirespeed.yaml cannot be read: it is a" in said) == (2, True), said


def test_programs_are_not_looked_for_in_the_working_directory(
    do: Do, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f".:/usr/bin::{here.parent}:bin")
    assert do("config", "--help")[0] == 0
    assert os.environ["PATH"] == f"/usr/bin:{here.parent}"


def test_where_runs_are_sent_needs_trust(
    do: Do, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_STORE", "")
    here.write_text("store: postgresql://somebody.example/runs\n")
    code, said = do("runs", "list")
    assert code == 2
    assert "`store` chooses what is run, or where" in said
    assert os.environ["WIRESPEED_STORE"] == ""
    code, said = do("config", "trust")
    assert "it chooses store" in said
    assert do("runs", "list")[0] == 0
    assert os.environ["WIRESPEED_STORE"] == "postgresql://somebody.example/runs"


@pytest.mark.parametrize(
    ("value", "why"),
    [("[a, b]", "`store` holds"), ("postgresql://a:secret@db/x", "holds a password")],
)
def test_a_store_that_is_none(
    do: Do, here: Path, monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    monkeypatch.setenv("WIRESPEED_STORE", "")
    here.write_text(f"store: {value}\n")
    code, said = do("--config", str(here), "runs", "list")
    assert code == 2
    assert why in said
    assert "secret" not in said
