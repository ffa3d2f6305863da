"""What each finding of a launch means, for `--explain ID`; the first sentence is its title."""

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, str] = {
    "LAUNCH-001": "Every node can be reached. "
    "ssh could not reach the node, or it gave no answer within "
    "the bound: its name does not resolve, nothing listens on its ssh port, a firewall drops packets, "
    "it is down, or the login itself hangs (a start-up file that waits, a home folder on a dead file "
    "server). ssh's own words are the evidence. The other nodes were asked at the same time and are "
    "not affected.",
    "LAUNCH-002": "Every node lets this user in. "
    "The node's ssh server answered and accepted none of the "
    "keys that ssh offered: those of ~/.ssh, of the agent and of ssh's configuration. Ranks are started "
    "in batch mode, where nobody can type a password. `ssh-copy-id HOST` brings a key there.",
    "LAUNCH-003": "Every node shows the host key that is known. "
    "The node showed a key that this machine "
    "does not know, or another one than it knows. No key is ever accepted unseen: whoever stands in "
    "between could read and change everything. A changed key is usual after a new installation, or "
    "where names and addresses are given out anew.",
    "LAUNCH-004": "Every node has the Python that shall run the ranks. "
    "It is not there, does not work "
    "there, or is older than 3.11. Without --python it is the path of the Python that runs wirespeed "
    "here, and where that path is not there the node's python3, if it has the same wirespeed.",
    "LAUNCH-005": "Every node has wirespeed, and torch. "
    "The node's Python has no wirespeed, which starts "
    "and watches the ranks, or no torch while other nodes have it. `--with torchrun=no` starts ranks of "
    "any command without torch.",
    "LAUNCH-006": "Every node has the same versions. "
    "The node has another version of wirespeed than this "
    "machine (a failure, since both speak to each other), or another Python or torch than most nodes "
    "(a warning).",
    "LAUNCH-007": "No connection is lost. "
    "The process through which a node's ranks were started (ssh, "
    "mpirun, srun, …) ended before these ranks had told their end. The connection was lost, the node "
    "went down, or somebody ended that process. This is never counted as a success: nobody knows what "
    "the ranks did last. What it said is the evidence.",
    "LAUNCH-008": "Every node has the chosen interface. "
    "--interface names a network interface that the "
    "node does not have, or that has no IPv4 address there. Interface names often differ between kinds "
    "of machines; without --interface each node's own is chosen by the network of the first node.",
    "LAUNCH-009": "No output of ranks is lost. "
    "Every piece of output carries a number, and some numbers are missing: the engine between the ranks "
    "and this machine dropped or cut lines. Logs have gaps; of a check, results may be missing, and are "
    "then not counted as passed.",
    "SLURM-101": "Slurm knows every node. "
    "The name is in no partition of the cluster that sinfo shows. "
    "Slurm's names are those of NodeName in slurm.conf, which may differ from DNS names.",
    "SLURM-102": "Slurm gives every node to jobs. "
    "The node is down (slurmd does not answer), drained (an "
    "administrator or a health check took it out) or failing. sinfo -R shows the reason; scontrol "
    "update nodename=NODE state=resume brings it back once it is well.",
}
