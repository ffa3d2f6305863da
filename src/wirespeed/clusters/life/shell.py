"""`cluster shell`: kubectl's words for a shell, or a command, in one pod."""

from collections.abc import Sequence

from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.life.pods import Pod
from wirespeed.errors import CannotMeasure, UsageError

__all__ = ["pick_pod", "shell_words"]

_THERE = 'cd "$1" 2>/dev/null; shift; '
_COMMAND = _THERE + 'exec "$@"'
_SHELL = _THERE + "command -v bash >/dev/null 2>&1 && exec bash; exec sh"
_MOST_NAMED = 20


def pick_pod(pods: Sequence[Pod], wanted: str, name: str) -> Pod:
    """The pod of that number or name; "": the first one. UsageError for none, CannotMeasure where
    it does not run; name: of the environment."""
    if not pods:
        raise CannotMeasure(
            f"there are no pods of {name}",
            expected="pods that run",
            next=f"wirespeed cluster deploy {name}",
        )
    fits = [pod for pod in pods if wanted in ("", pod.name) or _is_number(pod, wanted)]
    if not fits:
        named = ", ".join(pod.name for pod in pods[:_MOST_NAMED])
        more = f" and {len(pods) - _MOST_NAMED} more" if len(pods) > _MOST_NAMED else ""
        raise UsageError(f"--pod {wanted!r} is none of {name}", expected=named + more)
    return fits[0]


def shell_words(
    kubectl: Kubectl, pod: Pod, command: Sequence[str], *, terminal: bool, folder: str
) -> tuple[str, ...]:
    """terminal: pass it through. folder: where it begins, if the pod has it.

    Without a command it is the pod's bash, or its sh, which takes commands from stdin where there is
    no terminal. CannotMeasure where the pod does not run.
    """
    if pod.phase != "Running":
        raise CannotMeasure(
            f"{pod.name} does not run: {pod.status or pod.phase}",
            expected="a pod that runs",
            next=f"{' '.join(kubectl.words('describe', 'pod', pod.name))}",
        )
    flags = ("-i", "-t") if terminal else ("-i",)
    script = (_COMMAND, "sh", folder, *command) if command else (_SHELL, "sh", folder)
    return kubectl.words("exec", *flags, pod.name, "-c", pod.container, "--", "sh", "-c", *script)


def _is_number(pod: Pod, wanted: str) -> bool:
    return wanted.isascii() and wanted.isdigit() and pod.ordinal == int(wanted)
