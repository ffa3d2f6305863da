"""Every id that a launch can show is explained."""

import re
from pathlib import Path

import wirespeed.launchers
from wirespeed.checks.registry import EXPLAINED
from wirespeed.launchers.explanations import EXPLANATIONS

ID = re.compile(r'"((?:LAUNCH|SLURM|MPI|RAY|DS|META)-\d{3})"')


def test_each_id_in_the_code_is_explained_and_no_other() -> None:
    (folder,) = wirespeed.launchers.__path__
    files = [path for path in Path(folder).rglob("*.py") if path.name != "explanations.py"]
    used = {id for path in files for id in ID.findall(path.read_text())}
    assert used == set(EXPLANATIONS)
    assert used <= set(EXPLAINED)
