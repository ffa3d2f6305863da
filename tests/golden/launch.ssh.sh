#!/bin/sh
# two nodes
set -eu
: "${HF_TOKEN:?to be set by you: its value is not written here}"
pids=
# node-0
{ printf '%s' '{"version": "VERSION", "grace_s": 5.0, "silence_s": 0.0, "environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "WIRESPEED_DIRECTORY": "/home/me"}, "start": [{"words": ["/opt/py/bin/python", "-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=29400", "--log-dir=/dev/null", "--no-python", "/opt/py/bin/python", "-P", "-m", "wirespeed.launchers.rank_wrapper", "--", "python", "train.py", "--name", "it'"'"'s"], "environment": {}}]}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  ssh -F '/home/me/ssh config' -T -o BatchMode=yes -o ConnectTimeout=7 -o ServerAliveInterval=5 \
  -o ServerAliveCountMax=3 -o ClearAllForwardings=yes -o RemoteCommand=none -- node-0 \
  'exec /opt/py/bin/python -P -m wirespeed.launchers.node.agent' &
pids="$pids $!"
# me@node-1
{ printf '%s' '{"version": "VERSION", "grace_s": 5.0, "silence_s": 0.0, "environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "WIRESPEED_DIRECTORY": "/home/me"}, "start": [{"words": ["/opt/py/bin/python", "-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=29400", "--log-dir=/dev/null", "--no-python", "/opt/py/bin/python", "-P", "-m", "wirespeed.launchers.rank_wrapper", "--", "python", "train.py", "--name", "it'"'"'s"], "environment": {}}]}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  ssh -F '/home/me/ssh config' -T -o BatchMode=yes -o ConnectTimeout=7 -o ServerAliveInterval=5 \
  -o ServerAliveCountMax=3 -o ClearAllForwardings=yes -o RemoteCommand=none -- me@node-1 \
  'exec /opt/py/bin/python -P -m wirespeed.launchers.node.agent' &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
