"""Words for kubectl that enter a pod, and what a prepared job keeps of them; all pure."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.launchers.base import Job

__all__ = ["CLUSTER", "KUBECTL", "ONCE", "by_hand", "exec_words", "kubectl_text", "kubectl_told"]

CLUSTER = "cluster"
"""Key of a job's options: the cluster file's name or path."""
KUBECTL = "kubectl"
"""Key of a prepared job's options: `kubectl_text`."""
ONCE = "once"
"""Key of a prepared job's options: name of the environment that is made for it alone."""


def exec_words(kubectl: Kubectl, pod: str, far: Sequence[str]) -> tuple[str, ...]:
    """kubectl that runs `far` in the pod; the API server takes it as a list, no shell reads it."""
    return kubectl.words("exec", "-i", pod, "-c", CONTAINER, "--", *far)


def by_hand(kubectl: Kubectl, *words: str) -> str:
    """The command that a person types."""
    program, *rest = kubectl.words(*words)
    return shlex.join([PurePath(program).name, *rest])


def kubectl_text(kubectl: Kubectl) -> str:
    return json.dumps(asdict(kubectl))


def kubectl_told(job: Job) -> Kubectl:
    """As `kubectl_text` told it."""
    return Kubectl(**json.loads(job.options[KUBECTL]))
