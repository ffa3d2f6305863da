"""Kubernetes: labels of the node, or of the pod where they were copied to it.

Read from a file that the downward API fills (`/etc/podinfo/labels`, or WIRESPEED_LABELS_FILE), and
else from the API server with the pod's service account. That needs the right to `get` nodes, which
no pod has unless it was given. Labels: kubernetes.io's "Well-Known Labels", and those of EKS, GKE
and NVIDIA's topograph for what is nearer than a zone.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wirespeed.node.placement.http import Service, is_address
from wirespeed.node.placement.located import LABEL, Asked, NoAnswer, Placement
from wirespeed.node.reading import read_text

_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
_LINE = re.compile(r'([^\s="]+)="?([^"]*)"?')
_NODE_VARIABLES = ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME")
_TOKEN = re.compile(r"[\w.~+/=-]+", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_LABELS = {
    "zone": ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    "zone_id": ("topology.k8s.aws/zone-id",),
    "region": ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    "rack": (
        "topology.kubernetes.io/rack",
        "topology.k8s.aws/network-node-layer-4",
        "topology.k8s.aws/network-node-layer-3",
        "cloud.google.com/gce-topology-subblock",
        "network.topology.nvidia.com/leaf",
    ),
    "physical_host": ("cloud.google.com/gce-topology-host",),
    "instance_type": ("node.kubernetes.io/instance-type",),
}
"""By field, the nearest to the node first."""


def ask_kubernetes(asked: Asked) -> Placement | None:
    """What labels say; None: this is no pod. Raises NoAnswer."""
    node = next((asked.environ[name] for name in _NODE_VARIABLES if asked.environ.get(name)), "")
    labels = _from_file(asked)
    if labels and (found := _placed(labels, node)) and not found.reason:
        return found
    if "KUBERNETES_SERVICE_HOST" in asked.environ:
        node, labels = _from_server(asked, node)
        return _placed(labels, node)
    return None if labels is None else _placed(labels, node)


def _placed(labels: Mapping[str, str], node: str) -> Placement:
    found = {}
    for field, names in _LABELS.items():
        values = [labels[name] for name in names if LABEL.fullmatch(labels.get(name, ""))]
        found[field] = values[0] if values else ""
    found["physical_host"] = found["physical_host"] or node
    known = found["zone"] or found["zone_id"]
    reason = "" if known else "there is no label topology.kubernetes.io/zone"
    return Placement(source="kubernetes", reason=reason, **found)


def _from_file(asked: Asked) -> dict[str, str] | None:
    """Labels as the downward API writes them, `name="value"` a line; None: there is no file."""
    named = asked.environ.get("WIRESPEED_LABELS_FILE", "")
    text = read_text(Path(named) if named else asked.root / "etc/podinfo/labels")
    if text is None:
        if named:
            raise NoAnswer("WIRESPEED_LABELS_FILE names a file that cannot be read")
        return None
    lines = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {line[1]: line[2] for line in lines if line}


def _from_server(asked: Asked, node: str) -> tuple[str, dict[str, str]]:
    """The node's name and labels from the API server."""
    account = asked.root / _ACCOUNT
    token, space = read_text(account / "token"), read_text(account / "namespace")
    if not token or not _TOKEN.fullmatch(token):
        raise NoAnswer("the pod has no service account, and no labels in /etc/podinfo/labels")
    host = asked.environ["KUBERNETES_SERVICE_HOST"]
    port = asked.environ.get("KUBERNETES_SERVICE_PORT", "443")
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    if not is_address(url):
        raise NoAnswer("KUBERNETES_SERVICE_HOST and _PORT are no address")
    service = Service(url, asked.deadline, account / "ca.crt")
    if not node:
        pod = asked.environ.get("HOSTNAME", "")
        path = f"/api/v1/namespaces/{_segment(space or 'default')}/pods/{_segment(pod)}"
        node = str(_object(service, path, token, "this pod", "spec").get("nodeName") or "")
    path = f"/api/v1/nodes/{_segment(node)}"
    labels = _object(service, path, token, "nodes", "metadata").get("labels")
    if not isinstance(labels, dict):
        return node, {}
    return node, {str(name): str(value) for name, value in labels.items()}


def _segment(name: str) -> str:
    """A name within a path. An empty one would ask for the list of all."""
    if not _SUBDOMAIN.fullmatch(name):
        raise NoAnswer(
            "the name of this pod or its node is not known: set NODE_NAME to spec.nodeName"
        )
    return name


def _object(service: Service, path: str, token: str, what: str, part: str) -> dict[str, Any]:
    answer = service.ask(path, {"Authorization": f"Bearer {token}"})
    if answer.status in (401, 403):
        raise NoAnswer(
            f"the service account may not read {what} (status {answer.status}): grant `get`, or "
            "set WIRESPEED_ZONE in the pod's manifest"
        )
    if answer.status != 200:
        raise NoAnswer(f"the API server answers for {what} with status {answer.status}")
    try:
        found = json.loads(answer.text)[part]
    except (ValueError, RecursionError, TypeError, KeyError):
        found = None
    if not isinstance(found, dict):
        raise NoAnswer(f"the API server's answer for {what} cannot be read")
    return found
