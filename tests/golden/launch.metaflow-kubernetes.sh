#!/bin/sh
# 2 nodes
set -eu
pids=
# metaflow
{ printf '%s' '
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  env MASTER_PORT=23456 METAFLOW_CLIENT_CACHE_PATH=wirespeed-launch \
  METAFLOW_DATASTORE_SYSROOT_LOCAL=wirespeed-launch METAFLOW_DATASTORE_SYSROOT_S3=s3://flows/mf \
  METAFLOW_TEMPDIR=wirespeed-launch NCCL_DEBUG=INFO \
  WIRESPEED_METAFLOW_CARRY=MASTER_PORT,NCCL_DEBUG,WIRESPEED_METAFLOW_CARRY,WIRESPEED_METAFLOW_COMMAND,WIRESPEED_METAFLOW_COMPUTE \
  'WIRESPEED_METAFLOW_COMMAND=["python", "train.py", "a b"]' \
  'WIRESPEED_METAFLOW_COMPUTE={"kubernetes": {"image": "registry/wirespeed:1", "gpu": "8", "secrets": ["keys", "tokens"]}}' \
  WIRESPEED_METAFLOW_FOLDER=wirespeed-launch /opt/py/bin/python \
  /opt/py/ranks/wirespeed_ranks.py --no-pylint --datastore s3 --environment local run --nodes 2 \
  --ranks-per-node 4 &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
