#!/bin/sh
#SBATCH --job-name=wirespeed-95aa8019
#SBATCH --nodes=2
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=2
#SBATCH --partition=train
#SBATCH --gres=gpu:8
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --chdir=/
#SBATCH --output=/home/me/run/slurm-%j.out
export NCCL_DEBUG=INFO
export WIRESPEED_DIRECTORY=/home/me/run
echo "wirespeed: job $SLURM_JOB_ID began on $SLURMD_NODENAME"
srun \
  --job-name=wirespeed-95aa8019 \
  --nodes=2 \
  --ntasks=4 \
  --ntasks-per-node=2 \
  --distribution=block \
  --gres=gpu:8 \
  --export=ALL \
  --input=none \
  --kill-on-bad-exit=0 \
  --wait=0 \
  --chdir=/ \
  /opt/venv/bin/python -P -m wirespeed.launchers.rank_wrapper -- python train.py --name 'a b; $(id) '"'"'c'"'"''
code=$?
echo "wirespeed: job $SLURM_JOB_ID ended with $code"
exit "$code"
