#!/bin/sh
# wirespeed launch --on slurm: 4 ranks
set -eu
exec env NCCL_DEBUG=INFO WIRESPEED_DIRECTORY=/home/me/run PYTHON -P -m \
  wirespeed.launchers.slurm.step --name=wirespeed-95aa8019 --size=4 --startup=120 --wait=86400 \
  --grace=5 -- srun --job-name=wirespeed-95aa8019 --nodes=2 --ntasks=4 --ntasks-per-node=2 \
  --distribution=block --nodelist=node-0,node-1 --export=ALL --input=none --kill-on-bad-exit=0 \
  --wait=0 --chdir=/ /opt/venv/bin/python -P -m wirespeed.launchers.rank_wrapper -- python \
  train.py --name 'a b; $(id) '"'"'c'"'"''
