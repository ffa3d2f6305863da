"""Why a pod is not ready, and how long that may still pass."""

from dataclasses import dataclass

from wirespeed.records import Finding

__all__ = ["FOREVER", "LONG_S", "SOON_S", "WHILE_S", "Cause"]

FOREVER = float("inf")
SOON_S, WHILE_S, LONG_S = 3.0, 15.0, 30.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one pod is not ready."""

    finding: Finding
    patience_s: float
    """How long it may last before it is taken for final."""
    pods: tuple[str, ...] = ()
    crashed: str = ""
    """The pod whose last lines tell more."""

    @property
    def key(self) -> str:
        """Equal for pods that the same holds up."""
        text = self.finding.title + self.finding.because
        for pod in self.pods:
            text = text.replace(pod, "POD")
        return f"{self.finding.id} {text}"
