"""The calls of a job by rank: of a watched run, else of traces and dumps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import DecodeError, ValidationError
from msgspec.json import Decoder

from wirespeed.errors import InputError, UsageError
from wirespeed.model.bench_records import MedianTime
from wirespeed.node.reading import read_whole
from wirespeed.runs.store import find, load
from wirespeed.watch.calls import Call

CALLS = "calls.jsonl"
"""In the folder of a watched run: one `Call` a line, of the steps that were sampled."""
_LARGEST = 512 << 20
_HOW = "wirespeed launch --watch -- python train.py"


def recorded_calls(sources: Sequence[str]) -> Mapping[int, Sequence[Call]]:
    """By rank. sources: one watched run (`last`, an id, its folder), or files and folders of traces.

    Raises UsageError where there is nothing of the kind, InputError where it cannot be read.
    """
    folder = _run_folder(sources)
    if folder is not None:
        return _of_run(folder / CALLS)
    from wirespeed.watch.traces.reading import calls_of

    return calls_of(sources)


def recorded_step(sources: Sequence[str]) -> MedianTime | None:
    """A watched run's time of a step; None of traces, whose calls tell it."""
    folder = _run_folder(sources)
    known = folder is not None and (folder / "run.json").is_file()
    watched = load(folder).watched if folder is not None and known else None
    if watched is None or watched.step <= 0:
        return None
    return MedianTime(
        median=watched.step,
        low=watched.step_low,
        high=watched.step_high,
        samples=max(1, watched.steps),
    )


def _run_folder(sources: Sequence[str]) -> Path | None:
    """The run that is named; None where the words name traces."""
    if len(sources) != 1:
        return None
    path = Path(sources[0])
    if path.exists():
        return path if (path / CALLS).is_file() else None
    folder = find(sources[0])
    return folder if folder.is_dir() else folder.parent


def _of_run(path: Path) -> dict[int, list[Call]]:
    found: dict[int, list[Call]] = {}
    try:
        lines = read_whole(path, _LARGEST, links=False).split(b"\n")
    except FileNotFoundError as error:
        raise UsageError(
            f"{path.parent} has no {CALLS}", expected="a run of a watched job", next=_HOW
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    decode = Decoder(Call).decode
    for number, line in enumerate(lines[:-1], 1):  # the last line was being written, or is empty
        try:
            call = decode(line)
        except (DecodeError, ValidationError) as error:
            raise InputError(
                f"{path}:{number} is no call: {error}", expected="one call a line", next=_HOW
            ) from error
        found.setdefault(call.rank, []).append(call)
    return found
