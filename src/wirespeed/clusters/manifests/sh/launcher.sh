# Runs its arguments where mpirun reaches the workers: sh @MOUNT@/launcher mpirun -n 16 …
set -eu
umask 077
run="$(mktemp -d)"
# ssh refuses a key that is ours and that others may read, and the mounted one's mode is not ours.
cat "$WIRESPEED_SSH/id_rsa" > "$run/key"
printf '* %s\n' "$(cat "$WIRESPEED_SSH/id_rsa.pub")" > "$run/known"
export SSHD_KEYS="$WIRESPEED_SSH"
ssh="-p @SSH_PORT@ -i $run/key -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectionAttempts=10"
ssh="$ssh -o StrictHostKeyChecking=yes -o UserKnownHostsFile=$run/known -o LogLevel=ERROR"
# Open MPI 4, and 5 (PRRTE). Only this pod has the key: no tree of daemons that start daemons.
export OMPI_MCA_plm_rsh_args="$ssh" PRTE_MCA_plm_ssh_args="$ssh"
export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
export OMPI_MCA_orte_keep_fqdn_hostnames=1 PRTE_MCA_prte_keep_fqdn_hostnames=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
# mpirun's -x complains of what is not set.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
# ssh asks for the name of its user id, which may have none.
if command -v with-account >/dev/null; then exec with-account "$@"; fi
exec "$@"
