# An MPI worker: sshd on port @SSH_PORT@, as any user.
set -eu
# Images of ours know more: names for user ids that have none, and what a session must know.
if command -v start-sshd >/dev/null; then exec start-sshd -p @SSH_PORT@ -k "$WIRESPEED_SSH"; fi
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
printf 'SetEnv "PATH=%s" "LD_LIBRARY_PATH=%s"\n' "$PATH" "${LD_LIBRARY_PATH:-}" > "$run/config"
if [ "$(id -u)" = 0 ]; then mkdir -p -m 755 /run/sshd; fi
# The operator's keys belong to root whatever this user is: hence no StrictModes.
exec "$sshd" -D -e -f "$run/config" -p @SSH_PORT@ -h "$run/host_key" -o PidFile=none \
  -o StrictModes=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \
  -o AuthorizedKeysFile="$WIRESPEED_SSH/authorized_keys"
