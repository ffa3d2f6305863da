"""A training job for `launch --watch` on GPUs: DDP over NCCL; from a step on the last rank is slower.

It knows nothing of wirespeed.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SLOW_FROM, SLOW_S = 400, 250, 0.02
WIDE, BATCH = 1024, 256


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDE, WIDE), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        model(torch.randn(BATCH, WIDE, device=device)).square().mean().backward()
        if step >= SLOW_FROM and dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(SLOW_S)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
