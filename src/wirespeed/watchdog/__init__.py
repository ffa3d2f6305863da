"""The out-of-band watchdog: where every rank is, an end within a bound, and who is to blame.

The session process holds a `Monitor`, each rank a `Heartbeat`; they talk over TCP apart from the
collectives that are measured. Who is to blame is decided by `blame`, a pure function.
"""

from wirespeed.watchdog.attribution import blame
from wirespeed.watchdog.facts import Death, Facts, Phase, Raised, RankStatus
from wirespeed.watchdog.heartbeat import ABORTED, SESSION_LOST, Heartbeat, leave
from wirespeed.watchdog.monitor import Monitor, Outcome, OutcomeKind
from wirespeed.watchdog.protocol import new_token
from wirespeed.watchdog.stacks import LocalProcess

__all__ = [
    "ABORTED",
    "SESSION_LOST",
    "Death",
    "Facts",
    "Heartbeat",
    "LocalProcess",
    "Monitor",
    "Outcome",
    "OutcomeKind",
    "Phase",
    "Raised",
    "RankStatus",
    "blame",
    "leave",
    "new_token",
]
