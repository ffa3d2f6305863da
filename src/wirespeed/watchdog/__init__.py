"""The out-of-band watchdog: where every rank is, an end within a bound, and who is to blame.

The session process holds a `Monitor`, each rank a `Heartbeat`; they talk over TCP apart from the
collectives that are measured. Who is to blame is decided by `attribution.blame`, a pure function, which
is imported where a world ended badly, as `heartbeat` is where a rank runs.
"""

from wirespeed.watchdog.facts import Death, Facts, Phase, Raised, RankStatus
from wirespeed.watchdog.monitor import Monitor, Outcome, OutcomeKind
from wirespeed.watchdog.protocol import new_token
from wirespeed.watchdog.stacks import LocalProcess

__all__ = [
    "Death",
    "Facts",
    "LocalProcess",
    "Monitor",
    "Outcome",
    "OutcomeKind",
    "Phase",
    "Raised",
    "RankStatus",
    "new_token",
]
