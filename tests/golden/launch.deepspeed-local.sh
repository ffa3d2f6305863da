#!/bin/sh
# deepspeed, local
set -eu
pids=
# deepspeed
{ printf '%s' 'hold
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  env DS_ACCELERATOR=cpu WIRESPEED_DIRECTORY=/home/me /opt/py/bin/python -P -m \
  wirespeed.launchers.deepspeed.guard 5 as-is -- /opt/py/bin/python -P -m \
  deepspeed.launcher.runner --hostfile /dev/null --log_level=warning --num_gpus 2 --master_port \
  40001 --no_python --no_local_rank /opt/py/bin/python -P -m wirespeed.launchers.rank_wrapper \
  --job WyJweXRob24iLCAidHJhaW4ucHkiXQ== &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
