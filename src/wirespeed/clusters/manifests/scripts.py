"""The ConfigMap NAME-scripts, mounted at /etc/wirespeed in every pod.

    start        what a pod's first process runs: it only waits, so that ranks can be started in it
    worker       the same for an MPI worker: sshd, with the job's key
    launcher     `sh /etc/wirespeed/launcher mpirun …` in an MPIJob's launcher
    environment  `. /etc/wirespeed/environment` in a shell: where this pod stands among the others
    hostfile     `HOST slots=N`, a line a pod

POSIX sh, for any image and user id; `start` and `environment` need no other program than `sleep`.
"""

import shlex
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.addresses import hosts, master, slots
from wirespeed.clusters.manifests.labels import metadata

__all__ = [
    "LAUNCHER",
    "MOUNT",
    "NOTES",
    "SSH_PORT",
    "START",
    "WORKER",
    "config_map",
    "scripts_name",
]

MOUNT = "/etc/wirespeed"
START = ("/bin/sh", f"{MOUNT}/start")
"""Command of the container `ranks`."""
WORKER = ("/bin/sh", f"{MOUNT}/worker")
"""Command of an MPI worker, which has WIRESPEED_SSH: where the operator's keys are."""
LAUNCHER = ("/bin/sh", f"{MOUNT}/launcher")
"""First words of an MPI launcher's command; the same variable."""
SSH_PORT = 2222
"""Of an MPI worker's sshd: any user id may open it."""
NOTES = "wirespeed/notes"

_START = """\
# The pod's first process: it waits, takes care of what others leave behind, and ends at once.
trap 'exit 143' TERM
trap 'exit 130' INT
trap '' HUP
read -r host < /proc/sys/kernel/hostname
echo "$host waits for ranks"
while :; do
  sleep 3600 &
  # `wait` is ended by a signal, and reaps orphans that this process has inherited.
  wait "$!"
  if [ "$?" = 127 ]; then
    echo "the image has no program sleep" >&2
    exit 127
  fi
done
"""

_WORKER = f"""\
# An MPI worker: sshd on port {SSH_PORT}, as any user.
set -eu
# Images of ours know more: names for user ids that have none, and what a session must know.
if command -v start-sshd >/dev/null; then exec start-sshd -p {SSH_PORT} -k "$WIRESPEED_SSH"; fi
sshd="$(command -v sshd || echo /usr/sbin/sshd)"
if [ ! -x "$sshd" ]; then
  echo "the image has no sshd: workers of an MPIJob need one" >&2
  exit 127
fi
umask 077
run="$(mktemp -d)"
# The job's key is the host's key too: so the launcher knows every worker of its job, and no other.
# sshd wants it to be ours alone, and the mounted one's mode is not ours to choose.
cat "$WIRESPEED_SSH/id_rsa" > "$run/host_key"
# Its programs and libraries, which a session of sshd would not know.
printf 'SetEnv "PATH=%s" "LD_LIBRARY_PATH=%s"\\n' "$PATH" "${{LD_LIBRARY_PATH:-}}" > "$run/config"
if [ "$(id -u)" = 0 ]; then mkdir -p -m 755 /run/sshd; fi
# The operator's keys belong to root whatever this user is: hence no StrictModes.
exec "$sshd" -D -e -f "$run/config" -p {SSH_PORT} -h "$run/host_key" -o PidFile=none \\
  -o StrictModes=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \\
  -o AuthorizedKeysFile="$WIRESPEED_SSH/authorized_keys"
"""

_LAUNCHER = f"""\
# Runs its arguments where mpirun reaches the workers: sh {MOUNT}/launcher mpirun -n 16 …
set -eu
umask 077
run="$(mktemp -d)"
# ssh refuses a key that is ours and that others may read, and the mounted one's mode is not ours.
cat "$WIRESPEED_SSH/id_rsa" > "$run/key"
printf '* %s\\n' "$(cat "$WIRESPEED_SSH/id_rsa.pub")" > "$run/known"
export SSHD_KEYS="$WIRESPEED_SSH"
ssh="-p {SSH_PORT} -i $run/key -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectionAttempts=10"
ssh="$ssh -o StrictHostKeyChecking=yes -o UserKnownHostsFile=$run/known -o LogLevel=ERROR"
# Open MPI 4, and 5 (PRRTE). Only this pod has the key: no tree of daemons that start daemons.
export OMPI_MCA_plm_rsh_args="$ssh" PRTE_MCA_plm_ssh_args="$ssh"
export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
export OMPI_MCA_orte_keep_fqdn_hostnames=1 PRTE_MCA_prte_keep_fqdn_hostnames=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
# mpirun's -x complains of what is not set.
export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:-}}"
# ssh asks for the name of its user id, which may have none.
if command -v with-account >/dev/null; then exec with-account "$@"; fi
exec "$@"
"""

_ENVIRONMENT = """\
# Where this pod stands; for torchrun and others that are started by hand on each pod:
#   . /etc/wirespeed/environment && torchrun train.py
wirespeed_index=${JOB_COMPLETION_INDEX:-}
if [ -z "$wirespeed_index" ]; then
  read -r wirespeed_index < /proc/sys/kernel/hostname
  wirespeed_index=${wirespeed_index%%.*}
  wirespeed_index=${wirespeed_index##*-}
fi
case $wirespeed_index in
  '' | *[!0-9]*)
    echo "this pod's name ends in no ordinal: it is none of the ranks' pods" >&2
    unset wirespeed_index
    return 1
    ;;
esac
export NODE_RANK="$wirespeed_index"
unset wirespeed_index
"""
_TORCHRUN = """\
# torchrun's own options, from variables: pytorch/torch/distributed/argparse_util.py
export PET_NODE_RANK="$NODE_RANK" PET_NNODES="$NNODES" PET_NPROC_PER_NODE="$NPROC_PER_NODE"
export PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
"""


def scripts_name(deployment: Deployment) -> str:
    """Of the ConfigMap."""
    return f"{deployment.name}-scripts"


def config_map(deployment: Deployment) -> dict[str, Any]:
    """The ConfigMap with what the pods' processes run and read."""
    told = metadata(deployment, scripts_name(deployment))
    if notes := deployment.file.notes:
        told["annotations"] = {**told.get("annotations", {}), NOTES: notes}
    data = {
        "environment": _environment(deployment),
        "hostfile": _hostfile(deployment),
        "start": _START,
    }
    if deployment.engine == "mpijob":
        data |= {"launcher": _LAUNCHER, "worker": _WORKER}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": told, "data": data}


def _environment(deployment: Deployment) -> str:
    """Sets NODE_RANK, NNODES, NPROC_PER_NODE, MASTER_ADDR, MASTER_PORT; returns 1 in another pod."""
    values = {
        "NNODES": str(deployment.nodes),
        "NPROC_PER_NODE": str(slots(deployment)),
        "MASTER_ADDR": master(deployment),
        "MASTER_PORT": str(deployment.file.network.port),
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    return _ENVIRONMENT + "".join(lines) + _TORCHRUN


def _hostfile(deployment: Deployment) -> str:
    """As Open MPI and DeepSpeed read it."""
    count = slots(deployment)
    return "".join(f"{host} slots={count}\n" for host in hosts(deployment))
