#!/bin/sh
# deepspeed, pdsh
set -eu
umask 077
mkdir -p wirespeed-launch
printf '%s' 'node-0 slots=2
me@node-1 slots=1
' > wirespeed-launch/hostfile
printf '%s' '{"names": ["NCCL_ALGO", "NCCL_DEBUG", "WIRESPEED_DIRECTORY"], "folder": "/tmp/wirespeed-e3b98a4da31a127d", "nodes": [{"words": ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "--", "node-0"], "number": 0, "ranks": [0, 1]}, {"words": ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "--", "me@node-1"], "number": 1, "ranks": [2]}]}
' > wirespeed-launch/orders
pids=
# deepspeed
{ printf '%s' 'hold
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  env 'NCCL_ALGO=a b' NCCL_DEBUG=INFO \
  'PDSH_SSH_ARGS_APPEND=-oBatchMode=yes -oServerAliveInterval=5 -oServerAliveCountMax=3 -oControlPath=none' \
  WIRESPEED_DIRECTORY=/home/me /opt/py/bin/python -P -m wirespeed.launchers.deepspeed.guard 5 \
  wirespeed-launch/orders -- /opt/py/bin/python -P -m deepspeed.launcher.runner --hostfile \
  wirespeed-launch/hostfile --launcher pdsh --force_multi --no_ssh_check --master_addr 10.0.0.1 \
  --master_port 40123 --no_python --no_local_rank /opt/py/bin/python -P -m \
  wirespeed.launchers.deepspeed.far --carried /tmp/wirespeed-e3b98a4da31a127d --job \
  WyJweXRob24iLCAidHJhaW4ucHkiXQ== &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
