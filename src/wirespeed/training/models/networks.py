"""The models in torch: a transformer, fully connected layers, a convolutional net; and their loss.

The transformer is decoder-only: RMSNorm before each part, RoPE, SwiGLU, causal attention, as
H. Touvron et al., LLaMA, 2023 put it together; with grouped keys and values (J. Ainslie et al., GQA,
2023) where a size asks for them. It has no buffers: RoPE's table is made in each forward pass, so that
a wrapper that broadcasts buffers has nothing to send that another does not.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wirespeed.training.models.sizes import (
    ConvnetSize,
    Convolution,
    MlpSize,
    Size,
    TransformerSize,
)

_INIT_STD = 0.02
"""Of embedding and matrices (A. Radford et al., GPT-2, 2019)."""


class Transformer(nn.Module):
    """Token ids (samples, length) -> logits (samples, length, vocab)."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocab, size.d_model)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.d_model, eps=1e-5)
        self.head = nn.Linear(size.d_model, size.vocab, bias=False)
        if size.tied:
            self.head.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random numbers from torch's default generator; each tensor once, tied ones too."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_INIT_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        turns = rope_table(tokens.shape[1], self.size.d_head, self.size.rope_theta, tokens.device)
        x: Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, turns)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention and feed-forward, each added to the stream (samples, length, d_model)."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.d_model, eps=1e-5)
        self.attention = Attention(size)
        self.feed_forward_norm = nn.RMSNorm(size.d_model, eps=1e-5)
        self.feed_forward = FeedForward(size)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns)
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


class Attention(nn.Module):
    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.d_head = size.heads, size.kv_heads, size.d_head
        self.query = nn.Linear(size.d_model, size.d_model, bias=False)
        self.key = nn.Linear(size.d_model, size.d_kv, bias=False)
        self.value = nn.Linear(size.d_model, size.d_kv, bias=False)
        self.output = nn.Linear(size.d_model, size.d_model, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        query = turned(self._split(self.query(x), self.heads), turns)
        key = turned(self._split(self.key(x), self.kv_heads), turns)
        value = self._split(self.value(x), self.kv_heads)
        out: Tensor = self.output(_mixed(query, key, value).transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """(samples, length, heads * d_head) -> (samples, heads, length, d_head)."""
        parts: Tensor = x.unflatten(2, (heads, self.d_head))
        return parts.transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU (N. Shazeer, GLU variants improve transformer, 2020)."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.gate = nn.Linear(size.d_model, size.d_ff, bias=False)
        self.up = nn.Linear(size.d_model, size.d_ff, bias=False)
        self.down = nn.Linear(size.d_ff, size.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


def _mixed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention; key and value may have fewer heads, each for a group of neighbours."""
    shared = key.shape[1] < query.shape[1]
    if shared and not _kernel_shares_heads(query):
        groups = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(groups, 1) for one in (key, value))
        shared = False
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shared)


def _kernel_shares_heads(query: Tensor) -> bool:
    """On CUDA only half-precision kernels do; float32 would fall back to whole score matrices."""
    return not query.is_cuda or query.dtype != torch.float32


def rope_table(length: int, d_head: int, theta: float, device: torch.device) -> Tensor:
    """e^(i position theta^(-2 pair / d_head)), complex64 (length, d_head / 2).

    J. Su et al., RoFormer, 2021. Complex, because wrappers that cast the inputs of a block to
    bfloat16 leave complex tensors alone: positions would not survive eight bits.
    """
    pairs = torch.arange(0, d_head, 2, dtype=torch.float32, device=device)
    positions = torch.arange(length, dtype=torch.float32, device=device)
    angles = torch.outer(positions, torch.pow(theta, -pairs / d_head))
    return torch.polar(torch.ones_like(angles), angles)


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Each pair of neighbours of (samples, heads, length, d_head) turned by its position's angle."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class Mlp(nn.Module):
    """(samples, widths[0]) -> logits (samples, widths[-1])."""

    def __init__(self, size: MlpSize) -> None:
        super().__init__()
        pairs = zip(size.widths, size.widths[1:], strict=False)
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairs)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


class Convnet(nn.Module):
    """(samples, channels, side, side) -> logits (samples, classes)."""

    def __init__(self, size: ConvnetSize) -> None:
        super().__init__()
        pairs = zip(size.inputs, size.convolutions, strict=False)
        self.stages = nn.ModuleList(Stage(inputs, one, size.groups) for inputs, one in pairs)
        self.head = nn.Linear(size.inputs[-1], size.classes)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


class Stage(nn.Module):
    def __init__(self, inputs: int, one: Convolution, groups: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            inputs, one.outputs, one.kernel, one.stride, padding=one.kernel // 2, bias=False
        )
        self.norm = nn.GroupNorm(groups, one.outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.convolution(x)))


def network(size: Size) -> nn.Module:
    """A new one of that size; random numbers from torch's default generator."""
    if isinstance(size, TransformerSize):
        return Transformer(size)
    return Mlp(size) if isinstance(size, MlpSize) else Convnet(size)


def random_classes(size: MlpSize | ConvnetSize, seed: int, samples: int) -> tuple[Tensor, Tensor]:
    """Normal numbers with random classes; the same arguments give the same."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn((samples, *size.sample_shape), generator=generator)
    return inputs, torch.randint(size.classes, (samples,), generator=generator)


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross entropy of the classes, or of the next tokens, in float32."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).float().flatten(0, -2), targets.flatten())
