"""The out-of-band watchdog: where every rank is, an end within a bound, and who is to blame.

The console process holds a `Monitor`, each rank a `Beacon`; they talk over TCP apart from the
collectives that are measured. Who is to blame is decided by `blame`, a pure function.
"""

from wirespeed.world.watch.beacon import ABORTED, CONSOLE_GONE, Beacon, leave
from wirespeed.world.watch.blame import EXPLANATIONS, blame
from wirespeed.world.watch.facts import Death, Facts, Raised
from wirespeed.world.watch.monitor import Monitor
from wirespeed.world.watch.outcome import Outcome, OutcomeKind
from wirespeed.world.watch.protocol import new_token
from wirespeed.world.watch.stacks import LocalProcess
from wirespeed.world.watch.status import Phase, RankStatus

__all__ = [
    "ABORTED",
    "CONSOLE_GONE",
    "EXPLANATIONS",
    "Beacon",
    "Death",
    "Facts",
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
