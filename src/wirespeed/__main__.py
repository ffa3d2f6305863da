"""The command `wirespeed`, and `python -m wirespeed`: errors become a message and an exit code."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, which `-m` has put before all modules

from wirespeed import __version__

__all__ = ["main"]


def main() -> None:
    """Run the command line and end the process with its exit code (see errors.py)."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"wirespeed {__version__}\n")
        return
    from wirespeed.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
