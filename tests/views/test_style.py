import io
import subprocess
import sys

import pytest

from wirespeed.errors import UsageError
from wirespeed.views.text import Style, style_for


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def terminal(encoding: str = "utf-8") -> Terminal:
    return Terminal(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("mode", "environment", "is_terminal", "colored"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {}, True, False),
    ],
)
def test_colour(
    mode: str,
    environment: dict[str, str],
    is_terminal: bool,
    colored: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = terminal() if is_terminal else io.StringIO()
    assert style_for(stream, color=mode).color is colored


def test_the_character_set_decides_the_marks() -> None:
    assert not style_for(terminal("utf-8")).ascii
    assert style_for(terminal("latin-1")).ascii
    assert style_for(terminal("ascii")).ascii
    assert Style(ascii=True).mark("fail").strip() == "FAIL"
    assert Style().mark("fail") == "✗"


def test_an_unknown_mode_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        style_for(io.StringIO(), color="sometimes")


def test_text_is_one_line_of_the_character_set() -> None:
    assert Style(ascii=True).text("61.2 µs ±3 % × 2 → é\n日") == "61.2 us +/-3 % x 2 -> ? ?"
    assert Style().text("a\x1b[31mb\tc\udce9") == "a [31mb c?"


def test_importing_the_views_is_light() -> None:
    code = (
        "import sys; import wirespeed.views, wirespeed.cli.runs; "
        "print(*(m for m in ('torch', 'numpy', 'rich', 'pydantic', 'jsonschema') "
        "if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
