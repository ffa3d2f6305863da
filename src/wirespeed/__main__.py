"""The command `wirespeed`, and `python -m wirespeed`: errors become a message and an exit code."""

import sys

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
