#!/bin/sh
# mpich: 4 ranks
set -eu
umask 077
mkdir -p wirespeed-launch
printf '%s' 'node-0
node-1
' > wirespeed-launch/hostfile
exec env A=1 'HYDRA_LAUNCHER_EXTRA_ARGS=-F /etc/my_ssh -oBatchMode=yes -oConnectTimeout=30' \
  WIRESPEED_MASTER=10.0.0.1:40123 /opt/py/bin/python -P -m wirespeed.launchers.mpi.guard -- \
  /opt/mpich/bin/mpirun -n 4 -f wirespeed-launch/hostfile -ppn 1 -iface eth0 -genvlist \
  A,WIRESPEED_MASTER /opt/py/bin/python -P -m wirespeed.launchers.rank_wrapper -- python \
  train.py --lr 0.1
