"""Python reads this when it starts, in every process of a job that is watched (PYTHONPATH).

It waits until the process imports torch, and leaves all else as it would be: another
`sitecustomize` on the path is read as well. It must never stop a program from starting.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib costs 5 ms)


def _go_on() -> None:
    """Read the `sitecustomize` that this one stands before, if there is one."""
    here = [path for path in sys.path if path and os.path.realpath(path) == os.path.realpath(_HERE)]
    for path in here:
        sys.path.remove(path)
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if this is not None:
            sys.modules["sitecustomize"] = this
    finally:
        sys.path.append(_HERE)


def _watch() -> None:
    if os.environ.get("WIRESPEED_WATCH"):
        sys.path.append(_HERE)
        import _wirespeed_inside

        _wirespeed_inside.wait_for_torch()


try:
    _watch()
except Exception as error:
    sys.stderr.write(f"wirespeed: this process is not watched: {error!r}\n")
_go_on()
