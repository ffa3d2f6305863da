"""`python -m wirespeed.launchers.ray.driver`: runs a job on Ray; orders come on stdin (`Orders`).

This process is a guard only. Ray's driver is its child (`session`): killed with SIGKILL it takes
gcs_server and raylet with it, but Ray's agents live on for minutes (seen with Ray 2.60). The guard is
the subreaper of all of them, so that they become its children, and it ends them. The folder of a
local cluster is the guard's too.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirespeed.process import guard

_ORDERLY_S = 1.5
_LONGEST = 32
"""Of the folder's path: Ray puts Unix sockets below it, whose paths have 107 characters at most."""


def main() -> int:
    """Run the session, and leave nothing behind; its exit code (128 + n for signal n)."""
    stop = guard.StopRequest()
    guard.adopt_orphans()
    with _folder() as folder:
        words = [sys.executable, "-P", "-m", "wirespeed.launchers.ray.session", str(folder)]
        session = subprocess.Popen(words, preexec_fn=guard.death_signal(signal.SIGTERM))
        code = guard.see_to_end(session.poll, session.send_signal, stop)
        guard.end_descendants(_ORDERLY_S)
    return code


@contextmanager
def _folder() -> Iterator[Path]:
    base = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="ws-ray-", dir=base if len(base) < _LONGEST else "/tmp")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
