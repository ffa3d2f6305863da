"""Does kubectl talk to the cluster that the file means?"""

from wirespeed.clusters.file.address import same_server
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.kube.refusals import finding_of
from wirespeed.records import Finding

__all__ = ["wrong_server"]


def wrong_server(kubectl: Kubectl, api: str) -> Finding | None:
    """CLUSTER-019 where `api` (of the file; empty: any will do) is another address than kubectl's."""
    if not api:
        return None
    answer = kubectl.ask(
        "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"
    )
    if answer.code != 0:
        return finding_of(answer)
    there = answer.out.strip()
    if same_server(api, there):
        return None
    return Finding(
        id="CLUSTER-019",
        status="fail",
        title=f"kubectl points to {there or 'no server'}, the cluster file to {api}",
        saw=f"{there or 'no server'} in context {kubectl.context or '(the current one)'}",
        expected=f"{api} (cluster.api)",
        because="the kubeconfig's current context is another cluster's; nothing was done",
        fix="switch to the right context, or set cluster.context",
        next="kubectl config get-contexts",
    )
