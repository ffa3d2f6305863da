"""Train a small language model with DeepSpeed ZeRO: on CPU ranks, and unchanged on GPUs.

Started by torchrun or by deepspeed, one process a rank; see README.md beside this file. What the
program says goes to stdout from rank 0, one line a step.
"""

import argparse
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn
from torch.nn import functional

from wirespeed.errors import InputError, WirespeedError
from wirespeed.training.deepspeed_config import zero_config

VOCABULARY, CONTEXT = 256, 64
RULE_SEED = 1


class Block(nn.Module):
    """Causal attention and a feed-forward layer, both on the normalised residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width, bias=False)
        self.joined = nn.Linear(width, width, bias=False)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        samples, length, width = stream.shape
        parts = self.mixed(self.before_attention(stream)).view(samples, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.joined(seen.transpose(1, 2).reshape(samples, length, width))
        return stream + self.feed(self.before_feed(stream))


class Model(nn.Module):
    """Tokens of shape (samples, length) to the mean loss of predicting each next one."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        places = torch.arange(inputs.shape[1], device=tokens.device)
        scores = self.head(self.norm(self.blocks(self.tokens(inputs) + self.places(places))))
        return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small language model with DeepSpeed ZeRO."
    )
    parser.add_argument("--steps", type=int, default=20, help="steps in all, resumed ones included")
    parser.add_argument("--stage", type=int, default=2, help="ZeRO stage: 0, 1, 2 or 3")
    parser.add_argument("--offload", default="none", help="none, optimizer or parameter")
    parser.add_argument("--precision", default="float32", help="float32, bfloat16 or float16 (GPU)")
    parser.add_argument("--micro", type=int, help="samples of a rank in one forward pass")
    parser.add_argument("--accumulation", type=int, help="backward passes before each step")
    parser.add_argument("--train-batch", type=int, help="samples of a step over all ranks")
    parser.add_argument("--bucket-mb", type=float, help="megabytes of gradients sent at a time")
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm; 0: any")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path, help="folder; resumes from the newest in it")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--config", type=Path, help="a DeepSpeed JSON file instead of ours")
    parser.add_argument("--local_rank", type=int, help="passed by the deepspeed launcher")
    return parser.parse_args()


def configuration(asked: argparse.Namespace, model: nn.Module) -> dict[str, Any]:
    """The file that was given, or one made for this model and this many ranks."""
    if asked.config:
        try:
            loaded: dict[str, Any] = json.loads(asked.config.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{asked.config}: {error}", expected="a DeepSpeed JSON file")
        return loaded
    nothing_said = asked.micro is None and asked.train_batch is None
    return zero_config(
        asked.stage,
        world=dist.get_world_size(),
        micro=4 if nothing_said else asked.micro,
        accumulation=asked.accumulation,
        train_batch=asked.train_batch,
        precision=asked.precision,
        offload=asked.offload,
        bucket_mb=asked.bucket_mb,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        optimizer={"lr": asked.lr, "betas": (0.9, 0.95), "weight_decay": 0.01},
        clip=asked.clip,
    )


def batch(step: int, micro: int, samples: int, seed: int) -> torch.Tensor:
    """Tokens that follow a rule which can be learnt: each is its forerunner's successor, mostly.

    The data depend on the step, the micro batch and the rank alone, so that a resumed run goes on
    with what the first would have seen next.
    """
    rule = torch.Generator().manual_seed(RULE_SEED)
    successor = torch.randperm(VOCABULARY, generator=rule)
    drawn = torch.Generator().manual_seed(hash((seed, step, micro, dist.get_rank())) % 2**63)
    tokens = torch.randint(VOCABULARY, (samples, CONTEXT + 1), generator=drawn)
    noise = torch.rand(samples, CONTEXT + 1, generator=drawn) < 0.1
    for place in range(1, CONTEXT + 1):
        tokens[:, place] = torch.where(
            noise[:, place], tokens[:, place], successor[tokens[:, place - 1]]
        )
    return tokens


def one_step(engine: Any, step: int, seed: int) -> float:
    """All micro batches of one step; the mean loss over them and over the ranks."""
    total = torch.zeros((), device=engine.device)
    for micro in range(engine.gradient_accumulation_steps()):
        tokens = batch(step, micro, engine.train_micro_batch_size_per_gpu(), seed)
        loss = engine(tokens.to(engine.device))
        engine.backward(loss)
        engine.step()
        total += loss.detach().float()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size() / engine.gradient_accumulation_steps()


def train(asked: argparse.Namespace) -> None:
    torch.manual_seed(asked.seed)
    model = Model(asked.width, asked.layers, asked.heads)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration(asked, model)
    )
    step = resumed_at(engine, asked.checkpoints) if asked.checkpoints else 0
    while step < asked.steps:
        loss = one_step(engine, step, asked.seed)
        step += 1
        say({"step": step, "loss": loss})
        if asked.checkpoints and (step % asked.save_every == 0 or step == asked.steps):
            engine.save_checkpoint(
                str(asked.checkpoints), tag=f"step{step}", client_state={"step": step}
            )


def resumed_at(engine: Any, folder: Path) -> int:
    """Steps done in the newest checkpoint of that folder; 0 where there is none."""
    if not (folder / "latest").exists():
        return 0
    path, state = engine.load_checkpoint(str(folder))
    if path is None:
        raise InputError(f"{folder}: no checkpoint can be loaded", next="remove the folder")
    say({"resumed": path, "step": state["step"]})
    return int(state["step"])


def say(what: dict[str, Any]) -> None:
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def join() -> None:
    """Join the other ranks: NCCL on GPUs, gloo on CPUs."""
    # DeepSpeed calls names that torch 2.13 deprecates, a line for each call.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    if get_accelerator().device_name() == "cpu":
        torch.set_num_threads(1)
        # A kernel for inference that is compiled for half a minute at the first start.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def main() -> int:
    asked = options()
    if "RANK" not in os.environ:
        sys.stderr.write("start it with torchrun or deepspeed, see README.md\n")
        return 2
    join()
    try:
        train(asked)
    except WirespeedError as error:
        if dist.get_rank() == 0:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    finally:
        sys.stdout.flush()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
