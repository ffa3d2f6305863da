"""The command `wirespeed`, and `python -m wirespeed`: errors become a message and an exit code."""

import gc
import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, which `-m` has put before all modules

from wirespeed import __version__


def main() -> None:
    """Run the command line and end the process with its exit code (see errors.py)."""
    if sys.stdout is None or sys.stderr is None:
        _open_closed()
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"wirespeed {__version__}\n")
        return
    try:
        from wirespeed.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were loaded, or while `run` told of another one
        sys.stderr.write("\nwirespeed: interrupted\n")
        code = 130
    gc.freeze()  # else all classes are looked through once more before the process ends
    sys.exit(code)


def _open_closed() -> None:
    """Started with `>&-`: what is opened next must not get the place of what was closed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main()
