"""How the process ends, whatever its command line says."""

import sys

import click
import pytest

from wirespeed.__main__ import main
from wirespeed.cli import _cli, run
from wirespeed.cli.completion import in_our_form


class _Interrupts:
    """As Ctrl-C does it, at a moment when modules are loaded."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "wirespeed.cli":
            raise KeyboardInterrupt


def test_ctrl_c_before_the_command_line_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["wirespeed", "check"])
    monkeypatch.delitem(sys.modules, "wirespeed.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Interrupts(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "\nwirespeed: interrupted\n")


@pytest.mark.parametrize(
    ("words", "saw", "following"),
    [
        ("chekc", "No such command 'chekc'. Did you mean 'check'?", "wirespeed check"),
        ("Check", "No such command 'Check'. Did you mean 'check'?", "wirespeed check"),
        ("runs lst", "No such command 'lst'. Did you mean 'list'?", "wirespeed runs list"),
        ("cluster deplyo", "Did you mean 'deploy'?", "wirespeed cluster deploy"),
        ("check --levl quick", "No such option '--levl'. Did you mean '--level'", "check --help"),
        ("check -l quik", "'quik' is no value of '-l' / '--level'. Did you mean 'quick'?", "quick"),
        ("completion bsh", "'bsh' is no value of", "wirespeed completion bash"),
    ],
)
def test_what_was_meant_is_named(
    words: str, saw: str, following: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    told = capsys.readouterr()
    first, expected, last = told.err.splitlines()
    assert first.startswith("wirespeed: ") and saw in first
    assert expected.startswith("  expected  ") and last.startswith("  next      ")
    assert last.endswith(following) and told.out == ""


@pytest.mark.parametrize("words", ["xyzzy", "runs xyzzy", "check --xyzzy", "check -l xyzzy"])
def test_nothing_is_suggested_for_what_is_like_nothing(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    told = capsys.readouterr().err
    assert "Did you mean" not in told and told.splitlines()[-1].endswith(" --help")


def test_what_else_is_refused_keeps_clicks_words_and_shows_the_usage() -> None:
    context = click.Context(_cli, info_name="wirespeed")
    told = in_our_form(click.UsageError("--a and --b exclude each other", ctx=context))
    assert told is not None
    assert told.saw == "--a and --b exclude each other"
    assert told.expected.startswith("wirespeed [OPTIONS]")
    lost = in_our_form(click.UsageError("nobody knows where"))
    assert lost is not None and lost.saw == "nobody knows where"


def test_a_hidden_option_is_not_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--local-rnk"]) == 2
    assert "--local" not in capsys.readouterr().err.partition("Did you mean")[2]
