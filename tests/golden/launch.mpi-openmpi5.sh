#!/bin/sh
# openmpi5: 4 ranks
set -eu
umask 077
mkdir -p wirespeed-launch
printf '%s' 'node-0 slots=2
node-1 slots=2
' > wirespeed-launch/hostfile
exec env A=1 WIRESPEED_MASTER=10.0.0.1:40123 /opt/py/bin/python -P -m \
  wirespeed.launchers.mpi.guard -- /opt/openmpi5/bin/mpirun -n 4 --hostfile \
  wirespeed-launch/hostfile --map-by node:OVERSUBSCRIBE --bind-to none --mca btl_tcp_if_include \
  eth0 --prtemca prte_if_include eth0 --prtemca plm_ssh_args \
  '-F /etc/my_ssh -oBatchMode=yes -oConnectTimeout=30' -x A -x WIRESPEED_MASTER \
  /opt/py/bin/python -P -m wirespeed.launchers.rank_wrapper -- python train.py --lr 0.1
