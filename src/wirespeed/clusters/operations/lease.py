"""What takes an environment away that was made for one job, also when nobody is left to do it.

All objects of the environment are owned by a Job, the lease. Deleting it takes them all: Kubernetes
collects what has lost its owner. Its one small pod counts the seconds since the last renewal, which is a
touch of a file by `kubectl exec`; when nobody has renewed for so long, the pod ends, the Job is over,
and `ttlSecondsAfterFinished: 0` deletes it: https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Kubectl, Refused, finding_of, items_of
from wirespeed.clusters.manifests import INSTANCE, MANAGED_BY, OURS, selector_text, shell
from wirespeed.clusters.manifests.pod import pod_template
from wirespeed.clusters.manifests.render import as_yaml, render
from wirespeed.clusters.operations.apply import apply
from wirespeed.clusters.operations.deploy import deploy
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Finding, Subject

_GONE_S = 10.0
_LOOK_S = 0.5
_TOUCH_S = 10.0
_CONTAINER = "lease"
_STEP_S = 5
_TOUCH = ("sh", "-c", ": > /lease/renewed")


def lease_name(name: str) -> str:
    return f"{name}-lease"


def lease_job(deployment: Deployment, seconds: int) -> dict[str, Any]:
    """The Job. Its labels are not those of the environment's pods, which services and counts select."""
    labels = {
        INSTANCE: deployment.name,
        "app.kubernetes.io/name": f"{OURS}-lease",
        MANAGED_BY: OURS,
    }
    name = {"name": lease_name(deployment.name), "namespace": deployment.namespace}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**name, "labels": labels},
        "spec": {
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 0,
            "template": {"metadata": {"labels": labels}, "spec": _pod(deployment, seconds)},
        },
    }


_KEPT = (
    "automountServiceAccountToken", "enableServiceLinks", "imagePullSecrets", "nodeSelector",
    "tolerations",
)  # fmt: skip
"""Of the ranks' pods: a node that these may use can pull the image, and it is there already."""


def _pod(deployment: Deployment, seconds: int) -> dict[str, Any]:
    spec = pod_template(deployment)["spec"]
    container, security = spec["containers"][0], spec["securityContext"]
    nodes = spec.get("affinity", {}).get("nodeAffinity")
    small = {"cpu": "10m", "memory": "32Mi"}
    counter = {
        "name": _CONTAINER,
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "command": ["/bin/sh", "-c", shell("lease", STEP_S=_STEP_S), "lease", str(seconds)],
        "resources": {"requests": small, "limits": small},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "lease", "mountPath": "/lease"}],
    }
    return {
        **{key: spec[key] for key in _KEPT if key in spec},
        **({"affinity": {"nodeAffinity": nodes}} if nodes else {}),
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 1,
        "securityContext": {k: one for k, one in security.items() if not k.startswith("fsGroup")},
        "containers": [counter],
        "volumes": [{"name": "lease", "emptyDir": {"sizeLimit": "1Mi"}}],
    }


@dataclass
class Ephemeral:
    """An environment that is made for one job, and goes with it.

    Its lease is taken before anything else is made, and renewed by a thread until it is given back.
    """

    kubectl: Kubectl
    deployment: Deployment
    fallback: Deployment | None
    """Where the cluster has no RDMA."""
    lease_s: int
    phase: Callable[[str], None]
    """Where it is: an Ephemeral is the `Progress` of its own deploy."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def make(self, ready_s: float) -> tuple[Finding, ...]:
        """Everything, until all pods are ready; findings where they are not."""
        try:
            # Where the file says that it may be made: the lease has to be in it.
            made = [one for one in render(self.deployment) if one["kind"] == "Namespace"]
            if made:
                apply(self.kubectl, made)
            owner = self._take()
        except Refused as refused:
            return (finding_of(refused, doing=f"{self.deployment.name} cannot be made"),)
        done = deploy(
            self.kubectl,
            replace(self.deployment, owner=owner),
            self,
            within_s=ready_s,
            fallback=replace(self.fallback, owner=owner) if self.fallback else None,
        )
        return () if done.ok else done.findings

    def take_down(self) -> list[Finding]:
        """Delete the lease, and with it all of it, and see that this is under way; else a warning."""
        name = self.deployment.name
        self.phase(f"taking {name} away")
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        answer = self.kubectl.ask(
            "delete", "job", lease_name(name),
            "--ignore-not-found", "--wait=false", "--cascade=background",
        )  # fmt: skip
        if answer.code == 0 and _going(self.kubectl, name):
            return []
        by_hand = self.kubectl.by_hand("delete", "job", lease_name(name))
        job = Subject("job", name)
        return [make_finding("lease_left", name=name, gone_s=_GONE_S, next=by_hand, subject=job)]

    def _take(self) -> Mapping[str, str]:
        """Make the Job; the ownerReference for all other objects. Refused where that may not be."""
        job = json.dumps(lease_job(self.deployment, self.lease_s))
        made = self.kubectl.json("create", "-f", "-", stdin=job)
        meta = made.get("metadata", {})
        if not {"name", "uid"} <= meta.keys():
            raise CannotMeasure(
                f"{self.kubectl.program} did not tell what it created",
                expected="a Job with its uid",
            )
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}

    def _renew(self) -> None:
        """A touch that fails is followed by others; before the pod runs there is nothing to renew."""
        job = f"job/{lease_name(self.deployment.name)}"
        while not self._over.wait(max(1.0, self.lease_s / 6)):
            self.kubectl.ask("exec", job, "-c", _CONTAINER, "--", *_TOUCH, within_s=_TOUCH_S)


def _going(kubectl: Kubectl, name: str) -> bool:
    """Whether all that had the environment's labels is gone or being deleted, within a bound."""
    until = time.monotonic() + _GONE_S
    kinds = "pods,persistentvolumeclaims,services,configmaps"
    while time.monotonic() < until:
        answer = kubectl.ask("get", kinds, "-l", selector_text(name), "-o", "json")
        if answer.code == 0:
            left = items_of(answer)
            if all("deletionTimestamp" in one["metadata"] for one in left):
                return True
        time.sleep(_LOOK_S)
    return False


Commands = list[tuple[str, tuple[str, ...], dict[str, str]]]
"""(what it does, kubectl's command line, text of the files that it names, by path)."""


def commands_of(
    kubectl: Kubectl, deployment: Deployment, folder: str, ready_s: int
) -> tuple[Commands, Commands]:
    """What makes the environment, and what takes it away: without a lease. A namespace stays."""
    objects = render(deployment)
    spaces = [one for one in objects if one["kind"] == "Namespace"]
    path = f"{folder}/{deployment.name}.yaml"
    files = {
        f"{folder}/namespace.yaml": spaces,
        path: [one for one in objects if one not in spaces],
    }
    before: Commands = [
        ("make it", kubectl.words("apply", "--server-side", "-f", path), {path: as_yaml(made)})
        for path, made in files.items()
        if made
    ]
    within = f"--timeout={ready_s}s"
    if deployment.engine == "statefulset":
        wait: tuple[str, ...] = ("rollout", "status", f"statefulset/{deployment.name}", within)
    else:  # only a StatefulSet's pods may be asked for before they are made
        selected = selector_text(deployment.name)
        wait = ("wait", "--for=condition=Ready", "pods", "-l", selected, within)
    before.append(("wait for it", kubectl.words(*wait), {}))
    gone = kubectl.words("delete", "--ignore-not-found", "--wait=false", "-f", path)
    return before, [("take it away", gone, {})]
