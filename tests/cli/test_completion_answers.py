"""What a shell is offered at TAB: through click's own mechanism, in this process."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from wirespeed.checks.registry import CHECKS, EXPLAINED
from wirespeed.cli import _cli, run
from wirespeed.cli.completion import SHELLS, Answer, script
from wirespeed.cli.manual import commands
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.runs.folder import RunFolder
from wirespeed.training.models.catalogue import model_names
from wirespeed.training.strategies.registry import STRATEGIES

BREAKS = " \t\n\"'><=;|&(:"
"""What bash cuts words at unless told otherwise."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def lines(line: str, shell: str = "zsh") -> list[list[str]]:
    """kind, value, help of each offer."""
    environ = {"COMP_LINE": line, "COMP_WORDBREAKS": BREAKS}
    text = Answer(_cli, environ, shell=shell).complete()
    return [one.split("\t") for one in text.splitlines()]


def words(line: str, shell: str = "zsh") -> list[str]:
    return [value for kind, value, _ in lines(line, shell) if kind == "plain"]


def kinds(line: str) -> set[str]:
    return {kind for kind, _, _ in lines(line)}


def stored(home: Path, *ids: str) -> None:
    for id in ids:
        RunFolder.create("check", {}, run_id=id)


def test_verbs_come_with_the_line_that_help_has() -> None:
    offered = {value: says for _, value, says in lines("wirespeed ")}
    assert list(offered) == _cli.list_commands(click.Context(_cli))
    assert offered["bench"] == "How fast is each collective?"
    assert words("wirespeed che") == ["check"]
    assert words("wirespeed cluster nc") == ["nccl-tests"]
    assert words("wirespeed runs ") == ["export", "import", "list", "prune", "rm", "send", "show"]


def test_options_and_choices() -> None:
    assert {"--level", "--only", "--hosts", "--help"} <= set(words("wirespeed check --"))
    assert "--local_rank" not in words("wirespeed --")
    assert words("wirespeed check -l ")[:3] == ["quick", "medium", "long"]
    assert words("wirespeed completion z") == ["zsh"]


def test_a_value_behind_an_equals_sign_is_the_whole_word_but_in_bash() -> None:
    assert words("wirespeed check --level=qu", "zsh") == ["--level=quick"]
    assert words("wirespeed check --level=qu", "fish") == ["--level=quick"]
    assert words("wirespeed check --level=qu", "bash") == ["quick"]
    assert "rank=1" in words("wirespeed check --inject flip:", "bash")
    assert "flip:rank=1" in words("wirespeed check --inject flip:", "zsh")


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("wirespeed bench ", {*CATALOGUE, "all"}),
        ("wirespeed bench all_reduce all_g", {"all_gather"}),
        ("wirespeed bench -d ", {"bfloat16"}),
        ("wirespeed bench -o ", {"nccl-tests", "max"}),
        ("wirespeed bench --groups ", {"rails"}),
        ("wirespeed train --strategy ", set(STRATEGIES)),
        ("wirespeed train --strategy naive,fs", {"naive,fsdp2"}),
        ("wirespeed train --model ", set(model_names())),
        ("wirespeed train --inject n", {"nan:rank=1"}),
        ("wirespeed check --only ", {*CHECKS, "correctness", "COL"}),
        ("wirespeed check --only col-0", {"COL-001"}),
        ("wirespeed check --explain ", set(EXPLAINED)),
        ("wirespeed check --on slurm --with ", {"partition="}),
        ("wirespeed check --on ", {"ssh", "k8s"}),
        ("wirespeed check --interface ", {"lo"}),
        ("wirespeed check -x WIRESPEED_H", {"WIRESPEED_HOME"}),
        ("wirespeed predict --improve ", {"nic=2x", "rdma"}),
        ("wirespeed diagnose --explain SHM-", {"SHM-001"}),
        ("wirespeed cluster presets h100", {"h100-ib"}),
        ("wirespeed cluster new mine --preset h100", {"h100-ib"}),
        ("wirespeed compare a b --only ", {"all_reduce", "ddp"}),
        ("wirespeed trend all_r", {"all_reduce"}),
        ("wirespeed reference ask all_r", {"all_reduce"}),
    ],
)
def test_names(line: str, among: set[str]) -> None:
    assert among <= set(words(line))


def test_what_a_list_has_is_not_offered_again() -> None:
    assert "naive,naive" not in words("wirespeed train --strategy naive,")
    assert "naive,flat" in words("wirespeed train --strategy naive,")
    assert words("wirespeed check --with ") == []


RUNS = (
    "wirespeed runs show ",
    "wirespeed runs rm ",
    "wirespeed report ",
    "wirespeed predict ",
    "wirespeed compare ",
    "wirespeed baseline set ",
    "wirespeed diagnose ",
    "wirespeed trend --runs ",
    "wirespeed reference add ",
    "wirespeed reference ask all_reduce 1M --run ",
)


@pytest.mark.parametrize("line", RUNS)
def test_runs_by_id_and_last(line: str, home: Path) -> None:
    assert words(line) == []
    stored(home, "7f3c0001", "91ae0002")
    assert set(words(line)) == {"last", "7f3c0001", "91ae0002"}
    assert words(f"{line}7f") == ["7f3c0001"]
    assert words(f"{line}7f3c0001,9") == ["7f3c0001,91ae0002"]
    assert "file" in kinds(line)


def test_a_run_says_when_it_was_and_which(home: Path) -> None:
    stored(home, "7f3c0001")
    (says,) = [says for _, value, says in lines("wirespeed runs show 7") if value == "7f3c0001"]
    assert says.startswith(time.strftime("%Y-%m-", time.gmtime()))
    assert says.split()[2] == "check"


def test_the_newest_runs_first_and_not_thousands(home: Path) -> None:
    for n in range(130):
        (home / "runs" / f"20261103-10{n // 60:02}{n % 60:02}-{n:08x}").mkdir(parents=True)
    offered = words("wirespeed runs show ")
    assert offered[:3] == ["last", f"{129:08x}", f"{128:08x}"]
    assert len(offered) == 101
    assert words(f"wirespeed runs show {0:08x}") == [f"{0:08x}"]


def test_clusters_and_baselines(tmp_path: Path, home: Path) -> None:
    for name in ("mine", "with space", "o\nther"):
        file = tmp_path / "clusters" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    verbs = ("deploy", "status", "sync", "shell", "run", "logs", "gpus", "clean", "render")
    for line in (*(f"wirespeed cluster {verb} m" for verb in verbs), "wirespeed check --cluster m"):
        assert words(line) == ["mine"], line
    assert words("wirespeed cluster validate ") == ["mine"]  # the others are no plain words
    (home / "baselines").mkdir(parents=True)
    (home / "baselines" / "nightly.json").write_text("{")
    for line in ("show ", "rm n", "set last --name n"):
        assert words(f"wirespeed baseline {line}") == ["nightly"]
    (home / "reference").mkdir()
    (home / "reference" / "monday.csv").write_text("")
    assert words("wirespeed reference rm ") == ["monday"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("wirespeed locate --html ", "file"),
        ("wirespeed check --hostfile ", "file"),
        ("wirespeed runs import ", "file"),
        ("wirespeed diagnose ", "file"),
        ("wirespeed launch -- ./", "file"),
        ("wirespeed cluster render mine --to ", "dir"),
        ("wirespeed cluster sync mine ", "dir"),
        ("wirespeed report last --to=out/", "file"),
    ],
)
def test_paths_are_left_to_the_shell(line: str, kind: str) -> None:
    assert kind in kinds(line)


def damage_nothing(home: Path) -> None:
    pass


def damage_a_file(home: Path) -> None:
    home.write_text("no folder")


def damage_the_runs(home: Path) -> None:
    stored(home, "7f3c0001")
    (home / "runs" / "20261103-101112-0badc0de").mkdir()
    (home / "runs" / "20261103-101112-0badc0de" / "run.json").write_bytes(b"\xff\x00\x1b[31m{")
    os.mkfifo(home / "runs" / "20261103-101113-0badc0de")
    (home / "runs" / "20261103-101114-0badc0de").mkdir()
    os.mkfifo(home / "runs" / "20261103-101114-0badc0de" / "run.json")


def damage_a_loop(home: Path) -> None:
    home.symlink_to(home)


@pytest.mark.parametrize("damage", [damage_nothing, damage_a_file, damage_the_runs, damage_a_loop])
@pytest.mark.parametrize("line", [*RUNS[:3], "wirespeed baseline show ", "wirespeed reference rm "])
def test_a_damaged_home_is_no_trouble_in_the_shell(
    damage: Callable[[Path], None], line: str, home: Path
) -> None:
    damage(home)
    for kind, value, says in lines(line):
        assert kind in ("plain", "file")
        assert (value + says).isprintable()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "wirespeed",
        "wirespeed nosuchverb ",
        "wirespeed check --no-such-option x ",
        "wirespeed check --seed no-number --only ",
        "wirespeed runs show 'un",
        'wirespeed check --only "C',
        "wirespeed cluster deploy ../../",
        "wirespeed check --on nosuch --with ",
        "wirespeed launch -- python train.py --",
    ],
)
def test_a_line_that_is_wrong_or_unfinished_is_answered(line: str) -> None:
    for shell in SHELLS:
        lines(line, shell)


def test_a_damaged_configuration_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "wirespeed.yaml").write_text("{")
    assert words("wirespeed che") == ["check"]


def test_the_process_answers(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("COMP_LINE", "wirespeed bench all_r")
    for asked, code, out in (
        ("zsh_complete", 0, b"plain\tall_reduce\t\n"),
        ("bash_source", 0, script("bash").encode()),
        ("powershell_complete", 2, b""),
        ("", 2, b""),
    ):
        monkeypatch.setenv("_WIRESPEED_COMPLETE", asked)
        assert run([]) == code
        assert capfdbinary.readouterr() == (out, b"")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_verb_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert printed == script(shell)
    assert f"_WIRESPEED_COMPLETE={shell}_complete" in printed


def test_another_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_each_command_can_be_completed() -> None:
    """Also those of verbs that are new."""
    for node in commands():
        assert "--help" in words(f"{' '.join(node.path)} --"), node.path
