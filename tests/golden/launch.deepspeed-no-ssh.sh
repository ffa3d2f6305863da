#!/bin/sh
# deepspeed, no-ssh
set -eu
umask 077
mkdir -p wirespeed-launch
printf '%s' 'node-0 slots=2
node-1 slots=2
' > wirespeed-launch/hostfile
pids=
# node-0
{ printf '%s' 'hold
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  env DS_ACCELERATOR=cpu WIRESPEED_DIRECTORY=/home/me /opt/py/bin/python -P -m \
  wirespeed.launchers.deepspeed.guard 5 as-is -- /opt/py/bin/python -P -m \
  deepspeed.launcher.runner --hostfile wirespeed-launch/hostfile --no_ssh --node_rank 0 \
  --master_addr 127.0.0.1 --master_port 40001 --log_level=warning --no_python --no_local_rank \
  /opt/py/bin/python -P -m wirespeed.launchers.rank_wrapper --job \
  WyJweXRob24iLCAidHJhaW4ucHkiXQ== &
pids="$pids $!"
# node-1
{ printf '%s' 'hold
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  env DS_ACCELERATOR=cpu WIRESPEED_DIRECTORY=/home/me /opt/py/bin/python -P -m \
  wirespeed.launchers.deepspeed.guard 5 as-is -- /opt/py/bin/python -P -m \
  deepspeed.launcher.runner --hostfile wirespeed-launch/hostfile --no_ssh --node_rank 1 \
  --master_addr 127.0.0.1 --master_port 40001 --log_level=warning --no_python --no_local_rank \
  /opt/py/bin/python -P -m wirespeed.launchers.rank_wrapper --job \
  WyJweXRob24iLCAidHJhaW4ucHkiXQ== &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
