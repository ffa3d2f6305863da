"""How the process ends, whatever its command line says."""

import sys

import pytest

from wirespeed.__main__ import main


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
