"""Before a wheel is packed, or linked to where it lies: data that are YAML are read once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILE = (
    "wirespeed.checks.registry",
    "wirespeed.checks.settings",
    "wirespeed.clusters.findings",
    "wirespeed.diagnose.findings",
    "wirespeed.diagnose.rules",
    "wirespeed.launchers.texts",
    "wirespeed.runs.findings",
    "wirespeed.views.prometheus",
    "wirespeed.rank.training.findings",
    "wirespeed.session.findings",
    "wirespeed.watchdog.findings",
)


class Compile(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Of this folder's sources, whatever else is installed, with what this build may import."""
        places = [str(Path(self.root) / "src"), *filter(None, sys.path)]
        for module in _COMPILE:
            program = (
                f"import runpy, sys; sys.path[:] = {places!r}; "
                f"runpy.run_module({module!r}, run_name='__main__')"
            )
            subprocess.run([sys.executable, "-I", "-c", program], check=True, cwd=self.root)
