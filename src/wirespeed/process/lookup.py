"""Whether a command can be started, decided as shells decide it and with their exit codes.

Standard library only: the wrapper of a rank on a far node asks it, too.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of shells for a command that is not there, and for one that cannot be run."""


@dataclass(frozen=True, slots=True)
class LookupProblem:
    """Why a command cannot be started."""

    name: str
    """The command's first word."""
    exit_code: int
    reason: str = ""
    """Of a file that is there and cannot be run."""

    def text(self, place: str = "") -> str:
        """Return the line for people; `place`: the nodes where it was looked for."""
        where = f" on {place}" if place else ""
        if self.exit_code == NOT_FOUND:
            return f"command not found{where}: {self.name or repr(self.name)}"
        return f"cannot run{where}: {self.name}: {self.reason}"


def find_problem(name: str, directory: str = "", path: str | None = None) -> LookupProblem | None:
    """Return why `name` cannot be started from `directory`; None where it can.

    path: the value of PATH, which counts where the name holds no slash.
    """
    reasons = []
    for file in _candidates(name, Path(directory or Path.cwd()), path):
        if not file.is_file():
            if "/" in name and file.is_dir():
                reasons.append("it is a directory")
            continue
        if os.access(file, os.X_OK):
            return None
        shown = "it" if "/" in name else str(file)
        reasons.append(f"{shown} is not executable (chmod +x)")
    if reasons:
        return LookupProblem(name, NOT_EXECUTABLE, reasons[0])
    return LookupProblem(name, NOT_FOUND)


def _candidates(name: str, directory: Path, path: str | None) -> Iterator[Path]:
    if "/" in name:
        yield directory / name
    elif name:
        for folder in (os.defpath if path is None else path).split(os.pathsep):
            yield directory / folder / name


def explain(error: OSError, name: str, path: str | None) -> LookupProblem:
    """Return why the system refused to start `name` from the working directory."""
    problem = find_problem(name, path=path)
    if problem is not None:
        return problem
    if isinstance(
        error, FileNotFoundError
    ):  # the file is there, and what its first line names is not
        return LookupProblem(name, NOT_EXECUTABLE, "the interpreter in its first line is not there")
    return LookupProblem(name, NOT_EXECUTABLE, error.strerror or str(error))
