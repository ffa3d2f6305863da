"""Reading one stored run, whole; one that is cut or never ended is put together from its records."""

from contextlib import suppress
from pathlib import Path

from wirespeed.errors import InputError, refused_as
from wirespeed.model.codec import validated
from wirespeed.model.records import Run
from wirespeed.node.reading import read_whole
from wirespeed.runs import jsontext
from wirespeed.runs.folder_stamps import GOES_ON, is_held, run_stamp
from wirespeed.runs.jsontext import damage
from wirespeed.runs.place import LARGEST
from wirespeed.runs.rows import Rows, damaged_row, header_rows, rows_of


def load(path: Path) -> Run:
    """The run in a folder or in a JSON file that `-o json` wrote.

    A folder whose run.json is cut or only the header is rebuilt from its records, with a finding
    RUN-001. InputError for anything else than a run.
    """
    with damage(str(path)):
        return _load(path)


def _load(path: Path) -> Run:
    folder = path if path.is_dir() else path.parent
    document = path / "run.json" if path.is_dir() else path
    try:
        with damage(str(document)):
            run = read_document(document)
    except InputError as error:
        if document.name != "run.json" or not (folder / "records.jsonl").is_file():
            raise
        return _rebuilt(folder, None, error.saw)
    return _rebuilt(folder, run, "run.json holds only the header") if run.unfinished else run


def _rebuilt(folder: Path, header: Run | None, why: str) -> Run:
    from wirespeed.runs.recovery import rebuild  # most runs are whole

    return rebuild(folder, header, why)


def read_document(path: Path) -> Run:
    """The run in a JSON file; InputError when it is none."""
    try:
        with refused_as(InputError, f"cannot read {path}"):
            text = read_whole(path, LARGEST, links=path.name != "run.json").decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text", expected="a run as JSON") from error
    return validated(Run, jsontext.parse(text, source=str(path)), source=str(path))


def rows_there(folder: Path) -> tuple[str, Rows | None]:
    """(its stamp, rows of the run of that folder): while it goes on its header is enough; None where the
    folder has gone."""
    seen = run_stamp(folder, held=is_held(folder))
    if seen.startswith(GOES_ON):
        with suppress(InputError):
            run = read_document(folder / "run.json")
            if run.unfinished:
                return seen, header_rows(run, folder.name)
        seen = run_stamp(folder)
    try:
        with damage(str(folder)):
            return seen, rows_of(load(folder), folder.name)
    except InputError as error:
        return seen, damaged_row(folder.name, error.saw) if folder.is_dir() else None
