"""An id means one thing: what `check`, `diagnose` and the other verbs define, each id once."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

import wirespeed
from wirespeed.checks import registry
from wirespeed.checks.registry import CHECKS, EXPLAINED, OF_LOGS
from wirespeed.checks.settings import settings_told
from wirespeed.diagnose.rules import all_rules
from wirespeed.model.finding_texts import FindingTexts


def test_no_id_is_defined_twice() -> None:
    """In groups as they are written: where two are joined, the code sees the last."""
    text = Path(registry.__file__).with_name("findings.yaml").read_text()
    groups = yaml.safe_load(text)
    counted = Counter(id for group in groups for id in group.get("findings", ()))
    counted.update(id for id in CHECKS if id.partition("-")[0] in ("LAT", "BW"))
    counted.update(rule.id for rule in all_rules())
    counted.update(setting.id for setting in settings_told().rules)
    assert {id: count for id, count in counted.items() if count > 1} == {}
    assert set(EXPLAINED) - set(counted) == {id for id in CHECKS if id.startswith("COL-")} - {
        *counted
    }
    assert {setting.id for setting in settings_told().rules} <= set(CHECKS)


def test_what_was_read_when_the_package_was_built_is_what_the_file_says() -> None:
    kept = registry.TEXTS
    assert kept.load() == kept.read({"findings.yaml": (kept.folder / "findings.yaml").read_bytes()})


def test_a_family_of_logs_is_no_family_of_checks() -> None:
    """Who reads NODE-003 must not have to ask which verb gave it."""
    of_logs = {rule.id.partition("-")[0] for rule in all_rules()}
    assert of_logs & {id.partition("-")[0] for id in CHECKS} == set()


ROOMS = "clusters diagnose launchers rank/training runs session watchdog"


@pytest.mark.parametrize("room", ROOMS.split())
def test_each_text_of_a_room_is_named_by_its_code_and_explained(room: str) -> None:
    folder = Path(wirespeed.__path__[0], room)
    texts = FindingTexts(folder).texts
    entries = texts.read({"findings.yaml": (folder / "findings.yaml").read_bytes()})
    assert texts.load() == entries
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert [name for name in entries if f'"{name}"' not in code] == []
    named = re.findall(r'(?:make|node)_finding\(\s*"(\w+)"', code)
    assert set(named) <= set(entries)
    assert {entry.id for entry in entries.values()} <= {*EXPLAINED, *OF_LOGS}


def test_what_was_seen_is_no_template(tmp_path: Path) -> None:
    text = "odd: {id: X-001, title: 'saw {what}', next: 'see {where.name}'}\n"
    (tmp_path / "findings.yaml").write_text(text)
    found = FindingTexts(tmp_path)("odd", what="{where}", where=tmp_path, saw="{what}")
    assert (found.title, found.saw) == ("saw {where}", "{what}")
    assert (found.next, found.status) == (f"see {tmp_path.name}", "fail")


CLUSTER = r'"(CLUSTER-\d{3})"|^ *(?:- )?id: (CLUSTER-\d{3})$'
LAUNCH = r'(?:"|^  id: )((?:LAUNCH|SLURM|MPI|RAY|DS|META)-\d{3})(?:"|$)'


@pytest.mark.parametrize(
    ("family", "form", "yaml_of"),
    [("cluster", CLUSTER, ("clusters", "launchers")), ("launch", LAUNCH, ("launchers",))],
)
def test_each_id_in_the_code_is_explained_and_no_other(
    family: str, form: str, yaml_of: tuple[str, ...]
) -> None:
    """What a verb of `cluster`, or a launch, can show."""
    root = Path(wirespeed.__path__[0])
    files = [
        *root.rglob("*.py"),
        *(one for room in yaml_of for one in (root / room).rglob("*.yaml")),
    ]
    found = (ids for path in files for ids in re.finditer(form, path.read_text(), re.MULTILINE))
    used = {id for ids in found for id in ids.groups() if id}
    assert used == {id for id, one in EXPLAINED.items() if one.family == family}


def test_each_text_of_an_error_of_launchers_is_named_by_the_code_and_no_other() -> None:
    folder = Path(wirespeed.__path__[0], "launchers")
    entries = yaml.safe_load((folder / "errors.yaml").read_bytes())
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert sorted(entries) == sorted(set(re.findall(r'make_error\(\s*"(\w+)"', code)))
    assert all(one.keys() & {"saw", "next"} for one in entries.values())


def test_each_begins_with_a_sentence_of_what_is_well() -> None:
    for id in (id for id in EXPLAINED if id.startswith("CLUSTER-")):
        known = EXPLAINED[id]
        title, _, rest = known.explanation.partition(". ")
        assert title and not title.endswith("."), id
        assert len(rest) > 20, f"{id} says no more than its title"
