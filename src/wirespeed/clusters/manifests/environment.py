"""Environment of the ranks' container, in a fixed order.

What Kubernetes knows of the pod comes first, then where ranks meet, then everything else by name.
Precedence: workload.env, then what the file says of its network, then the preset, then our defaults.
"""

from collections.abc import Mapping
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.addresses import master
from wirespeed.clusters.manifests.fabric import preset_of

__all__ = ["environment", "escaped", "variables"]

_FIELDS = {"NODE_NAME": "spec.nodeName", "POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "NNODES")
_RDMA = {
    "NCCL_IB_HCA": "devices",
    "NCCL_IB_GID_INDEX": "gid_index",
    "NCCL_NET_GDR_LEVEL": "gdr_level",
    "NCCL_SOCKET_IFNAME": "interfaces",
    "NCCL_CROSS_NIC": "cross_nic",
    "NCCL_IB_TIMEOUT": "ib_timeout",
    "NCCL_MIN_NCHANNELS": "min_nchannels",
}
_TCP = {"NCCL_SOCKET_IFNAME": "interface_exclude", "NCCL_P2P_LEVEL": "p2p_level"}
"""Key of the file by variable: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"""


def environment(deployment: Deployment) -> list[dict[str, Any]]:
    """Entries of `env`; the model has refused a workload.env that sets what is ours."""
    meeting = (master(deployment), str(deployment.file.network.port), str(deployment.nodes))
    return [
        *({"name": name, "valueFrom": _field(path)} for name, path in _FIELDS.items()),
        *({"name": name, "value": text} for name, text in zip(_MEETING, meeting, strict=True)),
        *({"name": name, "value": escaped(text)} for name, text in variables(deployment).items()),
    ]


def variables(deployment: Deployment) -> dict[str, str]:
    """Those of the fabric and of the file, by name, as the ranks see them."""
    found = {
        **_network(deployment, said=False),
        **{one.name: one.value for one in preset_of(deployment).environment},
        **_network(deployment, said=True),
        **deployment.file.workload.env,
    }
    return dict(sorted(found.items()))


def escaped(text: str) -> str:
    """Text that Kubernetes hands on as it is: in `env`, `command` and `args` it replaces $(NAME)."""
    return text.replace("$", "$$")


def _network(deployment: Deployment, *, said: bool) -> dict[str, str]:
    """What the file says of its network, or else what holds where it says nothing."""
    file = deployment.file
    rdma = deployment.mode == "rdma"
    part = file.network.rdma if rdma else file.network.tcp
    found = {
        name: getattr(part, key)
        for name, key in (_RDMA if rdma else _TCP).items()
        if (key in part.model_fields_set) is said
    }
    if said:
        return _filled({**found, "NCCL_DEBUG": file.nccl.debug})
    return _filled({**found, "NCCL_IB_DISABLE": "0" if rdma else "1"})


def _filled(found: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in found.items() if text}


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}
