"""What can be asked for a node's place: its environment, the clouds, Kubernetes and Slurm.

Off a cloud 169.254.169.254 mostly does not answer at all, so that metadata services are asked only
where the firmware's DMI table says which cloud this is, or where the environment names an address.
Kubernetes' labels are those of the node, or of the pod where they were copied to it: read from a file
that the downward API fills (`/etc/podinfo/labels`, or WIRESPEED_LABELS_FILE), and else from the API
server with the pod's service account. That needs the right to `get` nodes, which no pod has unless it
was given. Labels: kubernetes.io's "Well-Known Labels", and those of EKS, GKE and NVIDIA's topograph for
what is nearer than a zone.
"""

import json
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wirespeed.node.placement import LABEL, NAME, ZONE, Asked, NoAnswer, Placement, valued
from wirespeed.node.placement.http import Service, is_address
from wirespeed.node.reading import read_text

_VARIABLES = {
    "zone": "WIRESPEED_ZONE",
    "zone_id": "WIRESPEED_ZONE_ID",
    "region": "WIRESPEED_REGION",
    "placement_group": "WIRESPEED_PLACEMENT_GROUP",
    "rack": "WIRESPEED_RACK",
    "physical_host": "WIRESPEED_PHYSICAL_HOST",
}


def ask_environment(asked: Asked) -> Placement | None:
    """The variables that are set; None: none is. Raises NoAnswer."""
    found = {
        field: valued(asked.environ[name], NAME, name)
        for field, name in _VARIABLES.items()
        if asked.environ.get(name)
    }
    if not found:
        return None
    known = "zone" in found or "zone_id" in found
    return Placement(
        source="environment", reason="" if known else "WIRESPEED_ZONE is not set", **found
    )


LINK_LOCAL = "http://169.254.169.254"
_DMI = "sys/class/dmi/id"
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Chassis asset tag of every Azure VM; the vendor alone would be any Hyper-V machine."""


def cloud_of(root: Path) -> str:
    """`aws`, `azure`, `gcp`, or nothing where the firmware names none of them."""
    vendor, product, version, tag = (
        read_text(root / _DMI / name) or ""
        for name in ("sys_vendor", "product_name", "product_version", "chassis_asset_tag")
    )
    if vendor == "Amazon EC2" or version.endswith(".amazon"):  # the latter: instances on Xen
        return "aws"
    if tag == _AZURE_TAG:
        return "azure"
    return "gcp" if vendor == "Google" or product == "Google Compute Engine" else ""


def address_of(asked: Asked, cloud: str, variables: Sequence[str]) -> str | None:
    """The service's URL: from the first variable that is set, else where the firmware is of `cloud`.

    None: there is no reason to ask. A variable may also be `HOST[:PORT]`, as Google's own is.
    """
    for name in variables:
        if value := asked.environ.get(name, "").strip():
            url = (value if "://" in value else f"http://{value}").rstrip("/")
            if not is_address(url):
                raise NoAnswer(f"{name} is not an address such as http://127.0.0.1:8080")
            return url
    return LINK_LOCAL if cloud_of(asked.root) == cloud else None


_AWS_VARIABLES = ("WIRESPEED_AWS_METADATA", "AWS_EC2_METADATA_SERVICE_ENDPOINT")
_TOKEN = re.compile(r"[\w+/=.-]{1,1024}", re.ASCII)
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_PATHS = {
    "zone": ("placement/availability-zone", ZONE),
    "zone_id": ("placement/availability-zone-id", ZONE),
    "region": ("placement/region", ZONE),
    "placement_group": ("placement/group-name", NAME),
    "rack": ("placement/partition-number", _NUMBER),
    "physical_host": ("placement/host-id", NAME),
    "instance_type": ("instance-type", NAME),
}


def ask_aws(asked: Asked) -> Placement | None:
    """What the instance's service says; None: this is not AWS. Raises NoAnswer."""
    disabled = asked.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    if disabled and not asked.environ.get(_AWS_VARIABLES[0]):
        return None
    url = address_of(asked, "aws", _AWS_VARIABLES)
    if url is None:
        return None
    service = Service(url, asked.deadline)
    headers = {"X-aws-ec2-metadata-token": _token(service)}
    found, missing = {}, {}
    for name, (path, pattern) in _PATHS.items():
        try:
            found[name] = _value(service, path, headers, pattern)
        except NoAnswer as why:
            missing[name] = str(why)
    if "rack" in found:
        found["rack"] = f"partition {found['rack']}"
    reason = "" if "zone" in found or "zone_id" in found else missing["zone"]
    return Placement(source="aws", reason=reason, **found)


def _token(service: Service) -> str:
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        answer = service.ask("/latest/api/token", lifetime, method="PUT")
    except NoAnswer as why:
        raise NoAnswer(f"IMDSv2 token: {why} (in a container: is the hop limit 1?)") from None
    if answer.status != 200:
        off = "; the service is switched off" if answer.status == 403 else ""
        raise NoAnswer(f"IMDSv2 token: refused with status {answer.status}{off}")
    return valued(answer.text, _TOKEN, "IMDSv2 token")


def _value(service: Service, path: str, headers: dict[str, str], pattern: re.Pattern[str]) -> str:
    what = path.rpartition("/")[2]
    answer = service.ask(f"/latest/meta-data/{path}", headers)
    if answer.status == 401:
        raise NoAnswer(f"{what}: the IMDSv2 token was refused (status 401)")
    if answer.status != 200:
        raise NoAnswer(f"{what}: status {answer.status}")
    return valued(answer.text, pattern, what)


_PATH = "/metadata/instance/compute?api-version=2023-07-01&format=json"
_REGION = re.compile(r"[a-z][a-z0-9]{1,62}", re.ASCII)
_ZONE = re.compile(r"\d{1,2}", re.ASCII)


def ask_azure(asked: Asked) -> Placement | None:
    """What the VM's service says; None: this is not Azure. Raises NoAnswer."""
    url = address_of(asked, "azure", ("WIRESPEED_AZURE_METADATA",))
    if url is None:
        return None
    answer = Service(url, asked.deadline).ask(_PATH, {"Metadata": "true"})
    if answer.status != 200:
        raise NoAnswer(f"compute: status {answer.status}")
    if not answer.text.strip() or answer.text.lstrip().startswith("<"):
        valued(answer.text, NAME, "compute")  # says which of the two
    compute = _json_object(answer.text)
    if compute is None:
        raise NoAnswer("compute: the answer is no JSON object")
    region = valued(_text(compute, "location"), _REGION, "location")
    zone, reason = "", ""
    try:
        zone = f"{region}-{valued(_text(compute, 'zone'), _ZONE, 'zone')}"
    except NoAnswer as why:
        reason = f"{why}; the VM may be in no availability zone (region {region})"
    return Placement(
        source="azure",
        zone=zone,
        region=region,
        placement_group=_name(compute, "placementGroupId"),
        instance_type=_name(compute, "vmSize"),
        reason=reason,
    )


def _json_object(text: str, part: str = "") -> dict[str, Any] | None:
    """The object that an answer is, or has under a key; None where it is or has none."""
    try:
        found = json.loads(text)
        found = found[part] if part else found
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return found if isinstance(found, dict) else None


def _text(compute: dict[str, Any], key: str) -> str:
    value = compute.get(key)
    return value if isinstance(value, str) else ""


def _name(compute: dict[str, Any], key: str) -> str:
    value = _text(compute, key).strip()
    return value if NAME.fullmatch(value) else ""


_FLAVOR = {"Metadata-Flavor": "Google"}
_PREFIX = re.compile(r"projects/[\w.:-]+/(?:zones|machineTypes)/", re.ASCII)
_HOST = re.compile(r"/?[\w.-]+(?:/[\w.-]+){0,5}", re.ASCII)


def ask_gcp(asked: Asked) -> Placement | None:
    """What the VM's server says; None: this is not Google Cloud. Raises NoAnswer."""
    url = address_of(asked, "gcp", ("WIRESPEED_GCP_METADATA", "GCE_METADATA_HOST"))
    if url is None:
        return None
    service = Service(url, asked.deadline)
    zone = _gcp_value(service, "zone", ZONE)
    host = _optional(service, "attributes/physical_host", _HOST)
    return Placement(
        source="gcp",
        zone=zone,
        region=zone.rpartition("-")[0],  # a zone is the region and a letter
        rack=_rack(host),
        physical_host=host,
        instance_type=_optional(service, "machine-type", NAME),
    )


def _gcp_value(service: Service, path: str, pattern: re.Pattern[str]) -> str:
    answer = service.ask(f"/computeMetadata/v1/instance/{path}", _FLAVOR)
    if answer.headers.get("metadata-flavor") != "Google":
        valued(answer.text, re.compile(".*", re.DOTALL), path)  # says where it is empty or HTML
        raise NoAnswer(f"{path}: the answer does not come from Google's metadata server")
    if answer.status != 200:
        raise NoAnswer(f"{path}: status {answer.status}")
    return valued(_PREFIX.sub("", answer.text.strip(), count=1), pattern, path)


def _optional(service: Service, path: str, pattern: re.Pattern[str]) -> str:
    try:
        return _gcp_value(service, path, pattern)
    except NoAnswer:
        return ""


def _rack(host: str) -> str:
    """Of `/block/sub-block/host` all but the host."""
    return host.rpartition("/")[0] if host.count("/") >= 2 else ""


_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
_LINE = re.compile(r'([^\s="]+)="?([^"]*)"?')
_NODE_VARIABLES = ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME")
_ACCOUNT_TOKEN = re.compile(r"[\w.~+/=-]+", re.ASCII)
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
    known = {name: value for name, value in labels.items() if LABEL.fullmatch(value)}
    found = {
        field: next((known[name] for name in names if name in known), "")
        for field, names in _LABELS.items()
    }
    found["physical_host"] = found["physical_host"] or node
    zoned = found["zone"] or found["zone_id"]
    reason = "" if zoned else "there is no label topology.kubernetes.io/zone"
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
    if not token or not _ACCOUNT_TOKEN.fullmatch(token):
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
        node = str(_kube_object(service, path, token, "this pod", "spec").get("nodeName") or "")
    path = f"/api/v1/nodes/{_segment(node)}"
    labels = _kube_object(service, path, token, "nodes", "metadata").get("labels")
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


def _kube_object(service: Service, path: str, token: str, what: str, part: str) -> dict[str, Any]:
    answer = service.ask(path, {"Authorization": f"Bearer {token}"})
    if answer.status in (401, 403):
        raise NoAnswer(
            f"the service account may not read {what} (status {answer.status}): grant `get`, or "
            "set WIRESPEED_ZONE in the pod's manifest"
        )
    if answer.status != 200:
        raise NoAnswer(f"the API server answers for {what} with status {answer.status}")
    found = _json_object(answer.text, part)
    if found is None:
        raise NoAnswer(f"the API server's answer for {what} cannot be read")
    return found


_PART = re.compile(r"[\w\[\],:-]{1,255}", re.ASCII)


def ask_slurm(asked: Asked) -> Placement | None:
    """The leaf switch or block as the rack; None: not in a Slurm step. Raises NoAnswer.

    srun sets the variables on each node. A launcher that copies the environment of the first node
    to the others makes them all alike, so an address that names another node is not believed.
    """
    address = asked.environ.get("SLURM_TOPOLOGY_ADDR", "")
    if not address:
        return None
    kinds = asked.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    levels = len(kinds) - 1 if kinds[-1] == "node" else address.count(".")
    *above, node = address.split(".", levels)
    here = socket.gethostname()
    if node.partition(".")[0] != here.partition(".")[0]:
        raise NoAnswer(f"SLURM_TOPOLOGY_ADDR was not set on this node ({here}): start it with srun")
    if not above:
        raise NoAnswer("SLURM_TOPOLOGY_ADDR has no switch: no topology plugin is configured")
    if len(above) != levels or not all(_PART.fullmatch(part) for part in above):
        raise NoAnswer("SLURM_TOPOLOGY_ADDR does not fit SLURM_TOPOLOGY_ADDR_PATTERN")
    return Placement(source="slurm", rack=above[-1], reason="Slurm's topology tells no zone")


SOURCES: dict[str, Callable[[Asked], Placement | None]] = {
    "environment": ask_environment,
    "aws": ask_aws,
    "azure": ask_azure,
    "gcp": ask_gcp,
    "kubernetes": ask_kubernetes,
    "slurm": ask_slurm,
}
"""In the order of their word: what a person set, the cloud itself, then what is told of it."""
