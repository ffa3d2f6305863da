"""Every id that a verb of `cluster`, or a launch on its pods, can show is explained."""

import re
from pathlib import Path

import wirespeed
from wirespeed.checks.registry import EXPLAINED

ID = re.compile(r'"(CLUSTER-\d{3})"|^ *(?:- )?id: (CLUSTER-\d{3})$', re.MULTILINE)


def test_each_id_in_the_code_is_explained_and_no_other() -> None:
    (folder,) = wirespeed.__path__
    files = [*Path(folder).rglob("*.py"), *Path(folder, "clusters").rglob("*.yaml")]
    files.append(Path(folder, "launchers", "findings.yaml"))
    used = {id for path in files for ids in ID.findall(path.read_text()) for id in ids if id}
    assert used == {id for id in EXPLAINED if id.startswith("CLUSTER-")}


def test_each_begins_with_a_sentence_of_what_is_well() -> None:
    for id in (id for id in EXPLAINED if id.startswith("CLUSTER-")):
        known = EXPLAINED[id]
        title, _, rest = known.explanation.partition(". ")
        assert title and not title.endswith("."), id
        assert len(rest) > 20, f"{id} says no more than its title"
