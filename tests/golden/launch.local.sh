#!/bin/sh
# wirespeed launch --on local: 4 ranks
set -eu
pids=
# rank-0
env GROUP_RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 NCCL_DEBUG=INFO NODE_RANK=0 RANK=0 \
  WIRESPEED_DIRECTORY=/home/me/run WORLD_SIZE=4 /opt/venv/bin/python -P -m \
  wirespeed.launchers.rank_wrapper -- python train.py --name 'a b; $(id) '"'"'c'"'"'' < /dev/null &
pids="$pids $!"
# rank-1
env GROUP_RANK=0 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 NCCL_DEBUG=INFO NODE_RANK=0 RANK=1 \
  WIRESPEED_DIRECTORY=/home/me/run WORLD_SIZE=4 /opt/venv/bin/python -P -m \
  wirespeed.launchers.rank_wrapper -- python train.py --name 'a b; $(id) '"'"'c'"'"'' < /dev/null &
pids="$pids $!"
# rank-2
env GROUP_RANK=0 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 NCCL_DEBUG=INFO NODE_RANK=0 RANK=2 \
  WIRESPEED_DIRECTORY=/home/me/run WORLD_SIZE=4 /opt/venv/bin/python -P -m \
  wirespeed.launchers.rank_wrapper -- python train.py --name 'a b; $(id) '"'"'c'"'"'' < /dev/null &
pids="$pids $!"
# rank-3
env GROUP_RANK=0 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 NCCL_DEBUG=INFO NODE_RANK=0 RANK=3 \
  WIRESPEED_DIRECTORY=/home/me/run WORLD_SIZE=4 /opt/venv/bin/python -P -m \
  wirespeed.launchers.rank_wrapper -- python train.py --name 'a b; $(id) '"'"'c'"'"'' < /dev/null &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
