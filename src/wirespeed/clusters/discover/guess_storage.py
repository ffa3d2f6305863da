"""Storage: access modes by provisioner, and the class for workspaces."""

import re

from wirespeed.clusters.discover.entry import Entry, Guess
from wirespeed.clusters.discover.found import Found, StorageClass

__all__ = ["guess_storage", "modes"]

_SHARED = re.compile(
    r"(^|[./-])(nfs|cephfs|efs|fsx|lustre|filestore|glusterfs|beegfs|weka\w*|spectrumscale|vast\w*"
    r"|juicefs|isilon|quobyte|moosefs|panfs)([./-]|$)"
)
_FILES = ("file.csi.azure.com", "azurelustre.csi.azure.com", "kubernetes.io/azure-file")
_BOTH = ("csi.trident.netapp.io", "driver.longhorn.io", "org.democratic-csi", "pxd.portworx.com")
_ONE = re.compile(
    r"(^|[./-])(ebs|aws-ebs|rbd|disk|azure-disk|pd|gce-pd|cinder|vsphere|vsphere-volume|local"
    r"|local-path|no-provisioner|topolvm|lvm\w*|hostpath|host-path|iscsi|block\w*)([./-]|$)"
)


def modes(provisioner: str) -> tuple[str, bool]:
    """`RWX` or `RWO`, and whether the provisioner is known; every one gives RWO.

    From the drivers' own documentation, listed at https://kubernetes-csi.github.io/docs/drivers.html
    """
    if _SHARED.search(provisioner) or provisioner in _FILES:
        return "RWX", True
    if provisioner in _BOTH:
        return "RWX", True
    return "RWO", bool(_ONE.search(provisioner))


def guess_storage(found: Found) -> Guess:
    """Keys of storage: shared where a class gives it, else one claim for each pod, else none."""
    shared = _first(found.classes, "RWX")
    single = _first(found.classes, "RWO")
    entries = []
    if shared:
        why = f"{shared.name} gives volumes that all pods share (guessed from its provisioner)"
        entries.append(Entry(("storage", "mode"), "rwx", why, guessed=True))
        entries.append(_class("class_rwx", shared))
    elif single:
        why = "one claim for each pod: no class gives volumes that pods share"
        entries.append(Entry(("storage", "mode"), "volumeClaimTemplates", why, guessed=True))
    else:
        why = "no storage class is there, or may be read: folders that go with the pods"
        entries.append(Entry(("storage", "mode"), "none", why))
    if single:
        entries.append(_class("class_rwo", single))
    return Guess(tuple(entries), tuple(_remark(one) for one in found.classes[:16]))


def _first(classes: tuple[StorageClass, ...], mode: str) -> StorageClass | None:
    """The default class before others, a known provisioner before an unknown one."""
    fitting = [one for one in classes if one.name and modes(one.provisioner)[0] == mode]
    rank = {one.name: (not one.default, not modes(one.provisioner)[1], one.name) for one in fitting}
    return min(fitting, key=lambda one: rank[one.name], default=None)


def _class(key: str, one: StorageClass) -> Entry:
    default = ", the cluster's default" if one.default else ""
    return Entry(
        ("storage", key), one.name, f"provisioner {one.provisioner}{default}", guessed=True
    )


def _remark(one: StorageClass) -> str:
    mode, known = modes(one.provisioner)
    default = ", default" if one.default else ""
    doubt = "" if known else " (unknown provisioner: only what every one gives)"
    return f"storage class {one.name}: {one.provisioner}, {mode}{default}{doubt}"
