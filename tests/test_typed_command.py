"""`{typed}` in a template is the command line, with what the template changes."""

import pytest

from wirespeed.cli import _command_line
from wirespeed.node.redact import TAKEN_OUT
from wirespeed.typed_command import TypedCommand


def typed(*words: str) -> TypedCommand:
    command = TypedCommand()
    command.note(lambda: _command_line(words))
    return command


@pytest.mark.parametrize(
    ("words", "template", "shown"),
    [
        ("check --ranks 4", "{typed}", "wirespeed check --ranks 4"),
        ("check --ranks 4 -q", "{typed:--ranks {most}}", "wirespeed check -q --ranks 2"),
        ("check --ranks=4", "{typed:--ranks {most}}", "wirespeed check --ranks 2"),
        # A short option is the same as the long one, and a flag takes no value.
        ("check -l long", "{typed:--level quick}", "wirespeed check --level quick"),
        ("check --dry-run --nodes 2", "{typed:without --dry-run}", "wirespeed check --nodes 2"),
        (
            "launch --interface ib0 --ranks 2 -- train --interface x",
            "{typed:without --interface}",
            "wirespeed launch --ranks 2 -- train --interface x",
        ),
        (
            "launch --on ssh --hosts a -- prog x",
            "{typed:--python /opt/python}",
            "wirespeed launch --on ssh --hosts a --python /opt/python -- prog x",
        ),
        (
            "launch --with batch --with wait=1h -- prog",
            "{typed:--with partition=x without --with=batch}",
            "wirespeed launch --with wait=1h --with partition=x -- prog",
        ),
        (
            "launch --on ssh --hosts a -- prog",
            "{typed:-- hostname}",
            "wirespeed launch --on ssh --hosts a -- hostname",
        ),
    ],
)
def test_what_was_typed_with_changes(words: str, template: str, shown: str) -> None:
    assert template.format(typed=typed(*words.split()), most=2) == shown


def test_words_are_quoted_and_secrets_are_hidden() -> None:
    assert f"{typed('launch', '--', 'echo', 'a b')}" == "wirespeed launch -- echo 'a b'"
    shown = f"{typed('launch', '--', 'train', '--token', 'abc')}"
    assert "abc" not in shown
    assert shown.endswith(TAKEN_OUT)


def test_nobody_has_noted_a_command_line() -> None:
    assert f"{TypedCommand()}" == "wirespeed"
