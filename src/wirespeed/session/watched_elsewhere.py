"""The session of a job whose ranks somebody else has started: shows, judges and stores."""

import os
import sys
from contextlib import suppress

from wirespeed.model.records import World
from wirespeed.runs import unsent
from wirespeed.session.folders import patient_folder
from wirespeed.session.launched import nodes_of
from wirespeed.session.status_line import StatusLine, tell_run
from wirespeed.session.watching import JobWatch
from wirespeed.watch.verdict import watch_grade


class WatchedElsewhere:
    """One job, on its rank 0's node."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._folder = patient_folder("watch", {"ranks": size})
        self._line = StatusLine(sys.stderr, quiet=False)
        self._watch = JobWatch(size, self._folder, self._line.show, self._line.say)

    @property
    def over(self) -> bool:
        """Whether every rank has said that it ends."""
        return self._watch.all_ended(self._size)

    def take(self, text: str) -> None:
        self._watch.take(-1, text, whole=True)

    def close(self) -> int:
        """Judge, store, and tell; the exit code of the verdict."""
        findings, watched = self._watch.close()
        self._line.close()
        grade = watch_grade(findings)
        hosts = watched.hosts if watched else ()
        nodes = nodes_of({rank: host for rank, host in enumerate(hosts) if host})
        world = World(size=self._size, nodes=nodes, backend="", launcher="joined")
        run = self._folder.ended(
            grade.verdict,
            grade.exit_code,
            findings,
            world=world,
            watched=watched,
            verdict_subject=grade.subject,
        )
        with suppress(OSError):  # whoever read our words may be gone
            tell_run(run)
            sys.stderr.write(f"wirespeed: {run.verdict_text}; run {run.id}\n")
        self._folder.finish(run)
        if os.environ.get(unsent.VARIABLE):
            from wirespeed.fleet.common_store.sending import send_at_end

            send_at_end()
        return grade.exit_code
