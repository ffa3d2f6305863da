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
