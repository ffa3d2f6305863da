"""Stored runs, of this version and of earlier ones: read and written again they are the same bytes.

`golden/NAME.run.json` is a run as it was stored, cut to a few entries of each list; where an earlier
version wrote it, NAME.read.json is what reading and writing makes of it. NAME.records.jsonl are the
first records of a run, NAME.rebuilt.json the run that they alone make. None of them is ever renewed:
they are what people have stored.
"""

import shutil
from pathlib import Path

import pytest

from wirespeed.model.codec import to_json
from wirespeed.runs import jsontext
from wirespeed.runs.store import load

STORED = Path(__file__).parent / "golden"
RUNS = sorted(path.name.removesuffix(".run.json") for path in STORED.glob("*.run.json"))
RECORDS = sorted(path.name.removesuffix(".records.jsonl") for path in STORED.glob("*.jsonl"))


def written(path: Path) -> str:
    return jsontext.dump(to_json(load(path))) + "\n"


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_is_read_and_written_as_it_was(name: str) -> None:
    path = STORED / f"{name}.run.json"
    read = STORED / f"{name}.read.json"
    assert written(path) == (read if read.exists() else path).read_text()


@pytest.mark.parametrize("name", RECORDS)
def test_records_alone_make_the_same_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("20261103-101112-91ae33fe")
    folder.mkdir()
    shutil.copy(STORED / f"{name}.records.jsonl", folder / "records.jsonl")
    assert written(folder) == (STORED / f"{name}.rebuilt.json").read_text()


def test_there_is_one_of_each_kind() -> None:
    text = "".join(path.read_text() for path in STORED.iterdir())
    for key in ("references", "told", "counters", "located", "simulation", "training", "goodput"):
        assert f'"{key}": ' in text
    for key in ("settings", "soak", "grid", "under_load", "verifications", "measurements"):
        assert f'"{key}": [{{' in text or f'"{key}": {{' in text
