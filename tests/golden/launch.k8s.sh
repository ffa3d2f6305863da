#!/bin/sh
# wirespeed launch --on k8s: 4 ranks
set -eu
pids=
# demo-0
{ printf '%s' '{"version": "0.1.0", "grace_s": 5.0, "silence_s": 0.0, "environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}, "start": [{"words": ["/opt/py/bin/python", "-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--node-rank=0", "--master-addr=10.89.0.10", "--master-port=29500", "--log-dir=/dev/null", "--no-python", "/opt/py/bin/python", "-P", "-m", "wirespeed.launchers.rank_wrapper", "--job", "WyJweXRob24iLCAidHJhaW4ucHkiLCAiLS1uYW1lIiwgImEgYjsgJChpZCkgJ2MnIl0="], "environment": {}}]}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  kubectl --namespace=team exec -i demo-0 -c ranks -- /opt/py/bin/python -P -m \
  wirespeed.launchers.node.agent &
pids="$pids $!"
# demo-1
{ printf '%s' '{"version": "0.1.0", "grace_s": 5.0, "silence_s": 0.0, "environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}, "start": [{"words": ["/opt/py/bin/python", "-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=10.89.0.10", "--master-port=29500", "--log-dir=/dev/null", "--no-python", "/opt/py/bin/python", "-P", "-m", "wirespeed.launchers.rank_wrapper", "--job", "WyJweXRob24iLCAidHJhaW4ucHkiLCAiLS1uYW1lIiwgImEgYjsgJChpZCkgJ2MnIl0="], "environment": {}}]}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  kubectl --namespace=team exec -i demo-1 -c ranks -- /opt/py/bin/python -P -m \
  wirespeed.launchers.node.agent &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
