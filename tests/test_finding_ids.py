"""An id means one thing: what `check`, `diagnose` and the other verbs define, each id once."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import wirespeed
from wirespeed.checks.registry import CHECKS
from wirespeed.checks.settings_rules import RULES as SETTINGS
from wirespeed.diagnose.rules import all_rules

PACKAGE = Path(wirespeed.__file__).parent
TEXTS = "EXPLANATIONS"
PER_OPERATION = ("COL", "LAT", "BW")


def written_ids(file: Path) -> Iterator[str]:
    """Keys of the file's table of explanations, and ids of its single checks.

    Read as text: where a table has a key twice, or two tables are joined, the code sees the last one.
    """
    text = file.read_text()
    if TEXTS not in text and "Check(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id == TEXTS for one in targets):
                yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            first = node.args[0] if node.args else None
            if node.func.id == "Check" and isinstance(first, ast.Constant):
                yield first.value


def test_no_id_is_defined_twice() -> None:
    places = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        for id in written_ids(file):
            places[id].append(file.relative_to(PACKAGE).as_posix())
    for rule in all_rules():
        places[rule.id].append("diagnose/rules")
    for setting in SETTINGS:
        places[setting.id].append("checks/settings_rules.py")
    for id in CHECKS:
        if id.partition("-")[0] in PER_OPERATION:
            places[id].append("checks/registry.py, by operation")
    assert {id: where for id, where in places.items() if len(where) > 1} == {}
    assert set(CHECKS) <= set(places), "every table was read"


def test_a_family_of_logs_is_no_family_of_checks() -> None:
    """Who reads NODE-003 must not have to ask which verb gave it."""
    of_logs = {rule.id.partition("-")[0] for rule in all_rules()}
    assert of_logs & {id.partition("-")[0] for id in CHECKS} == set()
