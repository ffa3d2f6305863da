"""What takes an environment away that was made for one job, also when nobody is left to do it.

All objects of the environment are owned by a Job, the lease. Deleting it takes them all: Kubernetes
collects what has lost its owner. Its one small pod counts the seconds since the last renewal, which is a
touch of a file by `kubectl exec`; when nobody has renewed for so long, the pod ends, the Job is over,
and `ttlSecondsAfterFinished: 0` deletes it: https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.manifests.labels import INSTANCE, MANAGED_BY, OURS
from wirespeed.errors import CannotMeasure

__all__ = ["Lease", "lease_job", "lease_name"]

_CALL_S = 30.0
_TOUCH_S = 10.0
_CONTAINER = "lease"
_STEP_S = 5
_TOUCH = ("sh", "-c", ": > /lease/renewed")
_COUNT = f"""\
# Ends when nobody has touched /lease/renewed for so many seconds.
trap 'exit 0' TERM INT
quiet=0
while [ "$quiet" -lt "$1" ]; do
  sleep {_STEP_S} &
  wait "$!"
  quiet=$((quiet + {_STEP_S}))
  if [ -e /lease/renewed ]; then
    rm -f /lease/renewed
    quiet=0
  fi
done
echo "not renewed for $1 s: this environment is taken away"
"""


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


def _pod(deployment: Deployment, seconds: int) -> dict[str, Any]:
    file = deployment.file
    small = {"cpu": "10m", "memory": "32Mi"}
    secrets = [{"name": name} for name in file.workload.image_pull_secrets]
    user = file.security.run_as_user
    return {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            **({"runAsUser": user, "runAsNonRoot": user > 0} if user is not None else {}),
        },
        **({"imagePullSecrets": secrets} if secrets else {}),
        **_where(deployment),
        "containers": [
            {
                "name": _CONTAINER,
                "image": file.workload.image,
                "imagePullPolicy": file.workload.image_pull_policy,
                "command": ["/bin/sh", "-c", _COUNT, "lease", str(seconds)],
                "resources": {"requests": small, "limits": small},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "lease", "mountPath": "/lease"}],
            }
        ],
        "volumes": [{"name": "lease", "emptyDir": {"sizeLimit": "1Mi"}}],
    }


def _where(deployment: Deployment) -> dict[str, Any]:
    """The nodes that the ranks' pods may use: these can pull the image, and it is there already."""
    from wirespeed.clusters.manifests.placement import placement

    placed = placement(deployment)
    kept: dict[str, Any] = {
        key: placed[key] for key in ("nodeSelector", "tolerations") if key in placed
    }
    nodes = placed.get("affinity", {}).get("nodeAffinity")
    return {**kept, **({"affinity": {"nodeAffinity": nodes}} if nodes else {})}


class Lease:
    """Taken before anything else is made; renewed by a thread until it is given back."""

    def __init__(self, kubectl: Kubectl, deployment: Deployment, seconds: int) -> None:
        self._kubectl = kubectl
        self._deployment = deployment
        self._seconds = seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> Mapping[str, str]:
        """Make the Job; the ownerReference for all other objects. Refused where that may not be."""
        job = json.dumps(lease_job(self._deployment, self._seconds))
        made = self._kubectl.json("create", "-f", "-", stdin=job, within_s=_CALL_S)
        meta = made.get("metadata", {})
        if not {"name", "uid"} <= meta.keys():
            raise CannotMeasure(
                f"{self._kubectl.program} did not tell what it created",
                expected="a Job with its uid",
            )
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": meta["name"],
            "uid": meta["uid"],
        }

    def give_back(self) -> bool:
        """Delete it, and with it what it owns; whether that was taken."""
        self.stop()
        answer = self._kubectl.ask(
            "delete", "job", lease_name(self._deployment.name),
            "--ignore-not-found", "--wait=false", "--cascade=background",
        )  # fmt: skip
        return answer.code == 0

    def stop(self) -> None:
        """Renew no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self) -> None:
        """A touch that fails is followed by others; before the pod runs there is nothing to renew."""
        job = f"job/{lease_name(self._deployment.name)}"
        every_s = max(1.0, self._seconds / 6)
        while not self._over.wait(every_s):
            self._kubectl.ask("exec", job, "-c", _CONTAINER, "--", *_TOUCH, within_s=_TOUCH_S)
