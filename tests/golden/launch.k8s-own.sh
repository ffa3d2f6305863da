#!/bin/sh
# wirespeed launch --on k8s: 4 ranks
set -eu
umask 077
mkdir -p wirespeed-launch
printf '%s' 'the manifests
' > wirespeed-launch/demo-ad1f.yaml
over() {
# take it away
kubectl --namespace=team delete --ignore-not-found --wait=false -f \
  wirespeed-launch/demo-ad1f.yaml < /dev/null
}
trap over EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# make it
kubectl --namespace=team apply --server-side -f wirespeed-launch/demo-ad1f.yaml < /dev/null
# wait for it
kubectl --namespace=team rollout status statefulset/demo-ad1f --timeout=900s < /dev/null
pids=
# demo-ad1f-0
{ printf '%s' '{"version": "0.1.0", "grace_s": 5.0, "silence_s": 0.0, "environment": {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1", "WIRESPEED_DIRECTORY": "/workspace"}, "start": [{"words": ["/opt/py/bin/python", "-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--node-rank=0", "--master-addr=demo-ad1f-0.demo-ad1f.team.svc", "--master-port=29500", "--log-dir=/dev/null", "--no-python", "/opt/py/bin/python", "-P", "-m", "wirespeed.launchers.rank_wrapper", "--job", "WyJweXRob24iLCAidHJhaW4ucHkiLCAiLS1uYW1lIiwgImEgYjsgJChpZCkgJ2MnIl0="], "environment": {}}]}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  kubectl --namespace=team exec -i demo-ad1f-0 -c ranks -- /opt/py/bin/python -P -m \
  wirespeed.launchers.node.agent &
pids="$pids $!"
# demo-ad1f-1
{ printf '%s' '{"version": "0.1.0", "grace_s": 5.0, "silence_s": 0.0, "environment": {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1", "WIRESPEED_DIRECTORY": "/workspace"}, "start": [{"words": ["/opt/py/bin/python", "-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=demo-ad1f-0.demo-ad1f.team.svc", "--master-port=29500", "--log-dir=/dev/null", "--no-python", "/opt/py/bin/python", "-P", "-m", "wirespeed.launchers.rank_wrapper", "--job", "WyJweXRob24iLCAidHJhaW4ucHkiLCAiLS1uYW1lIiwgImEgYjsgJChpZCkgJ2MnIl0="], "environment": {}}]}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  kubectl --namespace=team exec -i demo-ad1f-1 -c ranks -- /opt/py/bin/python -P -m \
  wirespeed.launchers.node.agent &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
