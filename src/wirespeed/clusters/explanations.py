"""What each finding of a cluster means, for `--explain ID`; the first sentence is its title."""

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, str] = {
    "CLUSTER-001": "Every pod finds a node with enough free GPUs. "
    "A pod takes a node for itself, and the node must "
    "have all that the pod asks free: GPUs, RDMA devices, cores, memory. Free is what the node can give "
    "(status.allocatable) less what the pods on it ask. Nodes that are short are named with who holds "
    "what is missing. Where this user may not see nodes it is not checked, and the scheduler tells. "
    "--no-preflight leaves it to the scheduler, for clusters that add nodes by themselves.",
    "CLUSTER-002": "There are enough nodes. "
    "Fewer nodes take such pods than pods are asked, whatever is free on "
    "them: nodes that are not Ready, cordoned, tainted, without the labels that the file asks, or not "
    "among nodes.gpu_nodes do not count, and each is listed with its reason.",
    "CLUSTER-003": "The image can be pulled. "
    "The node's container runtime could not get workload.image; the registry's "
    "own words are shown. The name or tag is wrong, the registry wants a login (workload."
    "image_pull_secrets), or the node cannot reach it.",
    "CLUSTER-004": "Claims are bound and volumes mounted. "
    "A PersistentVolumeClaim waits for its volume, or a volume "
    "cannot be mounted: the storage class does not exist, nothing provisions it, it does not offer the "
    "access mode (rwx needs ReadWriteMany), or the file server does not answer.",
    "CLUSTER-005": "The namespace is there. "
    "cluster.namespace does not exist or is being deleted. It is only made where "
    "cluster.create_namespace is true, and never deleted by wirespeed.",
    "CLUSTER-006": "This user has the rights that are needed. "
    "All rights that are missing are listed at once, so that an "
    "administrator can give them in one go; the role `edit` in the namespace holds them all.",
    "CLUSTER-007": "The quota of the namespace allows it. "
    "A ResourceQuota or LimitRange of the namespace stands against the "
    "pods; what was asked, used and allowed is shown in the API server's words.",
    "CLUSTER-008": "The cluster's policies allow it. "
    "An admission webhook, Pod Security, an OpenShift security context "
    "constraint or another policy refused an object, or could not be asked. Objects are tried out first "
    "(server-side dry run, a pod too), so that nothing is made where one is refused.",
    "CLUSTER-009": "Pods can be scheduled. "
    "The scheduler found no node; its own reasons are shown, one by one.",
    "CLUSTER-010": "The pods' process runs. "
    "The container could not be started, or ended: its exit code or signal, whether "
    "it ran out of memory (OOMKilled: the limit in `resources`), and its last lines are shown.",
    "CLUSTER-011": "The API server answers. "
    "It could not be reached, or did not come back within the bound. Nobody knows "
    "then how things stand: the verdict is unknown. What was begun stays, and the same command "
    "finishes it.",
    "CLUSTER-012": "Nothing of somebody else has the name. "
    "An object of that kind and name is in the namespace already, "
    "without wirespeed's labels (app.kubernetes.io/managed-by: wirespeed, app.kubernetes.io/instance: "
    "NAME). It is not touched. Take another cluster.name.",
    "CLUSTER-013": "No node or pod is lost. "
    "The pod's node does not answer any more, or the pod was evicted or preempted.",
    "CLUSTER-014": "The cluster has RDMA where it is asked. "
    "No node offers the RDMA resource of the file or its preset: the "
    "device plugin does not run, the resource has another name, or there is no such network. --fallback "
    "tcp goes on over sockets.",
    "CLUSTER-015": "All pods are ready. "
    "Every pod runs, passes its readiness probe, and is made from the present template.",
    "CLUSTER-016": "The engine's operator is installed. "
    "MPIJob, TrainJob and JobSet are made into pods by an operator; the "
    "cluster does not know the kind, or nothing acts on the object.",
    "CLUSTER-017": "Pods are ready in time. "
    "Not all were ready within --timeout, and no cause is known: it may still come. "
    "Unknown is never counted as good.",
    "CLUSTER-018": "The server is new enough. "
    "The API server lacks something that is needed: server-side apply, or indexed "
    "Jobs for JobSet and TrainJob.",
    "CLUSTER-019": "kubectl points to the cluster of the file. "
    "cluster.api names another API server than the kubeconfig's "
    "context, the context or the kubeconfig does not exist, or it cannot be read. Nothing is done then.",
    "CLUSTER-020": "This user is logged in. "
    "The login has expired, is for another cluster, or the program by which the "
    "kubeconfig logs in failed.",
    "CLUSTER-021": "The certificates are accepted. "
    "The API server's certificate, or this user's, was not accepted. It is never "
    "accepted unseen.",
    "CLUSTER-022": "The pods' network can be made. "
    "The node could not set the pod's network up: the network plugin does not run "
    "there, has no address left, or a network of network.rdma.networks (Multus) does not exist.",
    "CLUSTER-023": "What the file changes can be changed. "
    "Kubernetes does not change some fields of objects that exist, such as "
    "a StatefulSet's claims. --recreate makes the object anew: pods are restarted, claims stay. Claims "
    "themselves hold data: they are only removed by clean --claims.",
    "CLUSTER-024": "The API server takes every object. "
    "It found an object invalid; its own words are shown.",
    "CLUSTER-025": "What the file names is there. "
    "A priority class, runtime class, service account, Secret or ConfigMap that the "
    "file names does not exist.",
    "CLUSTER-026": "kubectl does what it is asked. "
    "It failed with words that wirespeed does not know; they are shown as they are.",
    "CLUSTER-027": "There are as many pods as asked. "
    "Fewer or more pods exist than the environment asks for, or some are "
    "made from an older template; deploy brings it in order.",
    "CLUSTER-028": "The environment is deployed. Nothing with its labels is in the namespace.",
    "CLUSTER-029": "Everything is gone that was removed. "
    "Pods or claims were still there when the time was over; the cluster goes "
    "on removing them. A pod on a node that does not answer only goes when that node comes back, or is "
    "taken out of the cluster.",
    "CLUSTER-030": "Every pod has the Python that receives files. "
    "workload.python of the cluster file is not in the pod's "
    "image, or cannot be run there. Any Python from 3.8 on will do; nothing has to be installed in it.",
    "CLUSTER-031": "There is room in the pods. "
    "What is new lies beside the old until it is whole, so both need room for a "
    "moment. It is counted before anything is sent; no file was changed.",
    "CLUSTER-032": "The pods' folder can be written to. "
    "It is mounted read-only, or belongs to another user than the "
    "container's.",
    "CLUSTER-033": "Files hold still while they are read. "
    "A file changed each of three times that it was read, or went. "
    "A mixture of two states is never brought: that file was left in the pod as it was, all others were "
    "brought.",
    "CLUSTER-034": "Links stay inside the folder. "
    "A link leads to somewhere outside of it. Links are brought as links and "
    "never followed, so it will lead to whatever the pod has at that path: good where that is meant "
    "(/datasets), otherwise it leads to nothing.",
    "CLUSTER-035": "Everything in the folder can be brought. "
    "There are named pipes, sockets, devices, or files that this "
    "user may not read. Nothing was sent, since nobody could rely on what is there; leave them out with "
    "--exclude or .wirespeedignore.",
    "CLUSTER-036": "Nothing stands in the way in the pods. "
    "Where a file shall come lies a folder, or the other way round, or a link "
    "lies where a folder shall come. What no sync brought is not removed, and links are not written "
    "through; all other files were brought.",
    "CLUSTER-037": "No pod is lost while it is synced. "
    "The connection to the pod broke, the pod or its node went down, or it said "
    "nothing for a minute. Each file there is whole, old or new; the next call brings the rest.",
    "CLUSTER-038": "Files are changed on one side only. "
    "Files that a sync replaced (or would delete) were not what a former sync had "
    "brought: they were changed or made in the pod. Replaced ones are gone; changed ones are never "
    "deleted. --dry-run tells before.",
    "CLUSTER-039": "Every pod can be brought up to date. "
    "A pod does not run, or another sync of the same folder was at work "
    "there for longer than a minute.",
    "CLUSTER-040": "Every pod that ranks shall start in is ready. "
    "The pod does not run, fails its readiness probe, or is being deleted, when the pods are looked at "
    "before ranks are started. `wirespeed cluster status NAME` shows all of them; kubectl describe pod "
    "shows the events. check and locate go on with the other pods.",
    "CLUSTER-041": "Every pod can be entered. "
    "`kubectl exec` could not start a command in the pod, or the command gave no answer in time: the "
    "kubelet of its node cannot be reached by the API server (port 10250), the node has too much to do, "
    "or this user may not create pods/exec. kubectl's own words are the evidence.",
    "CLUSTER-042": "What was made for one job is gone with it. "
    "An environment that was made for one command (its name is NAME-xxxx) could not be taken away. All "
    "its objects are owned by the Job NAME-xxxx-lease; deleting that deletes them, claims too. It also "
    "ends by itself when nobody has renewed it for --with lease= seconds (300), so that nothing stays "
    "when the machine that started it is gone.",
    "CLUSTER-043": "The image has what the GPUs need. "
    "workload.image is empty or the CPU image, and gpus.per_node asks for GPUs. Where it is empty, "
    "localhost/wirespeed:cuda is taken (images/build cuda), never the CPU image; nodes that do not have "
    "it cannot pull it, since it names no registry.",
    "CLUSTER-044": "Every interface that is named is attached. "
    "network.rdma.interfaces names net1, net2, …, which exist in a pod only where as many Multus "
    "attachments are asked. deploy asks for NetworkAttachmentDefinitions of the same names; where the "
    "cluster has none, NCCL_SOCKET_IFNAME is left out, so that NCCL takes the pod's own interface for "
    "its start, and RDMA goes by the device plugin's resource.",
    "CLUSTER-045": "The RDMA resource is named. "
    "Without it a pod gets RDMA devices only from its attachments, or from a runtime that shows all of "
    "them. deploy takes the resource that the nodes advertise where it is exactly one, and says which; "
    "where there are several, it names them.",
    "CLUSTER-046": "IPC_LOCK reaches the ranks. "
    "Kubernetes adds capabilities to a container's bounding set; only root's processes have them in "
    "effect, and there are no ambient capabilities. A rank of another user has the memlock limit that "
    "the container runtime gives. What works: security.run_as_user: 0 (ranks then raise the limit "
    "themselves), or a higher limit of the runtime on the nodes (LimitMEMLOCK=infinity).",
    "CLUSTER-047": "What one pod writes to the shared volume all others read. "
    "`check --on k8s` of a cluster file with storage.mode rwx lets the first pod write 8 MiB of random "
    "bytes to /workspace, and all others read them: within 15 s, byte by byte the same. A pod that does "
    "not see them has a volume of its own, or its node a stale mount; the seconds of each are the "
    "evidence. The file is removed.",
    "CLUSTER-050": "The MPIJob's launcher starts in time. "
    "It did not within --start-within. A launcher comes when sshd answers in every worker: one that "
    "is Pending waits for a node with what it asks, one that is not ready has no sshd or no image, and "
    "where there are no pods at all the MPI operator does not run, or Kueue has not admitted the job.",
    "CLUSTER-051": "nccl-tests ends with exit code 0. "
    "mpirun, or the program that it started, ended otherwise. Its last lines are the evidence, the "
    "whole output is in the run folder (logs/launcher.log), and `wirespeed diagnose` reads it.",
    "CLUSTER-052": "It is known how nccl-tests ended. "
    "It was not over within --within, or its launcher was removed by somebody else. The rows that it "
    "printed are kept; the MPIJob is removed.",
    "CLUSTER-053": "nccl-tests prints a table. "
    "The launcher ended well, and no rows of nccl-tests are in what it printed: another program ran, "
    "or its arguments make it print none.",
}
