#!/bin/sh
# 2 nodes
set -eu
pids=
# metaflow
{ printf '%s' '
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  env GLOO_SOCKET_IFNAME=lo MASTER_PORT=23456 METAFLOW_CLIENT_CACHE_PATH=wirespeed-launch \
  METAFLOW_DATASTORE_SYSROOT_LOCAL=wirespeed-launch METAFLOW_DEFAULT_DECOSPECS= \
  METAFLOW_HOME=wirespeed-launch METAFLOW_PROFILE= METAFLOW_RUNTIME_ENVIRONMENT=local \
  METAFLOW_SERVICE_URL= METAFLOW_TEMPDIR=wirespeed-launch METAFLOW_USER=wirespeed \
  NCCL_DEBUG=INFO 'WIRESPEED_METAFLOW_COMMAND=["python", "train.py", "a b"]' \
  WIRESPEED_METAFLOW_FOLDER=wirespeed-launch /opt/py/bin/python \
  /opt/py/ranks/wirespeed_ranks.py --no-pylint --datastore local --environment local --metadata \
  local run --nodes 2 --ranks-per-node 4 &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
