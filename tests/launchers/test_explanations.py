"""Every id that a launch can show is explained."""

import re
from pathlib import Path

import wirespeed.launchers
from wirespeed.checks.registry import EXPLAINED
from wirespeed.yaml_tree import data_of

ID = re.compile(r'(?:"|^  id: )((?:LAUNCH|SLURM|MPI|RAY|DS|META)-\d{3})(?:"|$)', re.MULTILINE)


def test_each_id_in_the_code_is_explained_and_no_other() -> None:
    (folder,) = wirespeed.launchers.__path__
    files = [*Path(folder).rglob("*.py"), *Path(folder).rglob("*.yaml")]
    used = {id for path in files for id in ID.findall(path.read_text())}
    assert used == {id for id, one in EXPLAINED.items() if one.family == "launch"}


def test_each_text_of_an_error_is_named_by_the_code_and_no_other() -> None:
    (folder,) = wirespeed.launchers.__path__
    entries = data_of((Path(folder) / "errors.yaml").read_bytes())
    code = "".join(path.read_text() for path in Path(folder).rglob("*.py"))
    assert sorted(entries) == sorted(set(re.findall(r'make_error\(\s*"(\w+)"', code)))
    assert all(one.keys() & {"saw", "next"} for one in entries.values())
