"""What is wrong with pods that ranks were to be started in, and with those that were lost."""

from collections.abc import Sequence
from dataclasses import replace

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.kube.kubectl import Answer as KubectlAnswer
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.kube.refusals import finding_of
from wirespeed.clusters.life.pods import Pod
from wirespeed.launchers.k8s.words import by_hand
from wirespeed.launchers.node.probe import Answer
from wirespeed.launchers.node.software import (
    last_words,
    no_python,
    node_finding,
    software_trouble,
)
from wirespeed.records import Finding, Subject

__all__ = ["Asking", "missing_pods", "not_ready", "trouble_of"]

_ENDED = "command terminated with exit code"
"""What kubectl says where the command itself failed."""
_STARTED_BADLY = (
    "OCI runtime exec failed",
    "executable file not found",
    "no such file or directory",
)


class Asking:
    """How pods were asked (`node.software.Asking`)."""

    other_python = (
        "name a Python of the image, 3.11 or later, as workload.python in the cluster file"
        ", or by --python"
    )

    def __init__(self, kubectl: Kubectl, python: str, within_s: float) -> None:
        self.kubectl = kubectl
        self.pythons = [python]
        self.within_s = within_s

    def by_hand(self, host: str, *words: str) -> str:
        far = ("sh", "-c", *words) if len(words) == 1 and " " in words[0] else words
        return by_hand(self.kubectl, "exec", "-it", host, "-c", CONTAINER, "--", *far)

    def install(self, host: str, python: str, package: str) -> str:
        return f"an image with {package} for {python} (workload.image), and deploy again"


def trouble_of(host: str, answer: Answer, asking: Asking) -> Finding | None:
    """Why ranks cannot be started in that pod; None: they can."""
    if answer.facts is not None:
        return software_trouble(host, answer.facts, asking)
    if answer.code is None:
        return _silent(host, answer, asking)
    text = "\n".join(answer.said)
    if _ENDED in text or any(words in text for words in _STARTED_BADLY):
        own = tuple(line for line in answer.said if _ENDED not in line)
        return no_python(host, replace(answer, said=own), asking)
    return _not_entered(host, answer, asking)


def not_ready(kubectl: Kubectl, pod: Pod, reason: str) -> Finding:
    """`reason`: the cluster's own, where one is known."""
    return node_finding(
        "CLUSTER-040",
        pod.name,
        f"pod {pod.name} is not ready: {pod.status}",
        saw=f"{pod.status}, {f'on {pod.node}' if pod.node else 'on no node'}, "
        f"{pod.restarts} restarts",
        expected="a pod that runs and passes its readiness probe",
        because=reason,
        fix="wait until it is ready, or bring the environment in order",
        next=by_hand(kubectl, "describe", "pod", pod.name),
    )


def missing_pods(name: str, found: int, wanted: int) -> Finding:
    """The environment has fewer pods than are asked."""
    return Finding(
        id="CLUSTER-027",
        status="fail",
        title=f"{name} has {found} pods of {wanted}",
        subject=Subject("job", name),
        saw=f"{found} pods with the labels of {name}",
        expected=f"{wanted}, one a node",
        costs="no rank runs on the nodes that are missing",
        fix=f"deploy it with --nodes {wanted}, or ask for fewer nodes",
        next=f"wirespeed cluster deploy {name} --nodes {wanted}",
    )


def _silent(host: str, answer: Answer, asking: Asking) -> Finding:
    return node_finding(
        "CLUSTER-041",
        host,
        f"pod {host} does not answer",
        saw=f"no answer within {asking.within_s:g} s",
        expected="a Python that answers",
        because="its node does not answer the API server, or has too much to do",
        fix="look whether its node is Ready",
        next=by_hand(asking.kubectl, "get", "nodes"),
        said=answer.said,
    )


def _not_entered(host: str, answer: Answer, asking: Asking) -> Finding:
    """kubectl itself failed: by what its words mean, as far as they are known."""
    words: Sequence[str] = ("exec", host)
    err = "\n".join(answer.said)
    told = finding_of(KubectlAnswer(tuple(words), answer.code, "", err))
    known = told.id not in ("CLUSTER-026", "CLUSTER-008", "CLUSTER-024")
    return node_finding(
        told.id if known else "CLUSTER-041",
        host,
        f"pod {host} cannot be entered" + (f": {told.title}" if known else ""),
        saw=last_words(answer) or "kubectl exec failed without a word",
        expected="kubectl exec to start a command in it (the right to create pods/exec)",
        because=told.because,
        fix=told.fix or "see what kubectl says",
        next=asking.by_hand(host, "true"),
        said=answer.said,
    )
