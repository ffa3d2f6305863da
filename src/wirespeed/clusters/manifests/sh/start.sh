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
