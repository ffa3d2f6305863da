"""Every id that a verb of `cluster`, or a launch on its pods, can show is explained."""

import re
from pathlib import Path

import wirespeed
from wirespeed.checks.registry import EXPLAINED
from wirespeed.clusters.explanations import EXPLANATIONS

ID = re.compile(r'"(CLUSTER-\d{3})"')


def test_each_id_in_the_code_is_explained_and_no_other() -> None:
    (folder,) = wirespeed.__path__
    files = [path for path in Path(folder).rglob("*.py") if path.name != "explanations.py"]
    used = {id for path in files for id in ID.findall(path.read_text())}
    assert used == set(EXPLANATIONS)
    assert used <= set(EXPLAINED)


def test_each_begins_with_a_sentence_of_what_is_well() -> None:
    for id, text in EXPLANATIONS.items():
        title, _, rest = text.partition(". ")
        assert title and not title.endswith("."), id
        assert len(rest) > 20, f"{id} says no more than its title"
