"""Every id that a launch can show is explained."""

import re
from pathlib import Path

import wirespeed.launchers
from wirespeed.checks.registry import EXPLAINED

ID = re.compile(r'(?:"|^  id: )((?:LAUNCH|SLURM|MPI|RAY|DS|META)-\d{3})(?:"|$)', re.MULTILINE)


def test_each_id_in_the_code_is_explained_and_no_other() -> None:
    (folder,) = wirespeed.launchers.__path__
    files = [*Path(folder).rglob("*.py"), *Path(folder).rglob("*.yaml")]
    used = {id for path in files for id in ID.findall(path.read_text())}
    assert used == {id for id, one in EXPLAINED.items() if one.family == "launch"}
