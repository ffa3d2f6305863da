"""kubectl that asks again: API servers restart, and their store changes its leader."""

import time
from dataclasses import dataclass, field, replace

from wirespeed.clusters.kube.kubectl import CALL_S, Answer, Kubectl
from wirespeed.clusters.kube.refusals import may_pass
from wirespeed.clusters.telling import Progress, Silent

__all__ = ["PatientKubectl", "patient"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 2.0


@dataclass(frozen=True, kw_only=True)
class PatientKubectl(Kubectl):
    """Repeats a call whose refusal may pass, within `patience_s` of its first try.

    Only for calls that may be repeated: reading, server-side apply, deleting.
    """

    patience_s: float = 30.0
    progress: Progress = field(default_factory=Silent)

    def ask(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> Answer:
        end = time.monotonic() + self.patience_s
        pause = _FIRST_PAUSE_S
        while True:
            answer = super().ask(*words, stdin=stdin, within_s=within_s)
            if not may_pass(answer) or time.monotonic() + pause > end:
                return answer
            left = end - time.monotonic()
            self.progress.phase(f"the API server gives no answer; asking again for {left:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def lasting(self, patience_s: float) -> "PatientKubectl":
        """The same with another bound."""
        return replace(self, patience_s=patience_s)


def patient(kubectl: Kubectl, progress: Progress, patience_s: float) -> PatientKubectl:
    return PatientKubectl(
        program=kubectl.program,
        namespace=kubectl.namespace,
        context=kubectl.context,
        kubeconfig=kubectl.kubeconfig,
        patience_s=patience_s,
        progress=progress,
    )
