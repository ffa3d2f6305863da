# torchrun's own options, from variables: pytorch/torch/distributed/argparse_util.py
export PET_NODE_RANK="$NODE_RANK" PET_NNODES="$NNODES" PET_NPROC_PER_NODE="$NPROC_PER_NODE"
export PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
