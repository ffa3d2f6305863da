"""Small models whose gradients are awkward, for the tests of strategies."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wirespeed.training.contract import Batch, ModelSpec

WIDTH = 6


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 12)
        self.outer = nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(x)))


class Frozen(Plain):
    """A frozen matrix in the middle and a frozen number at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.inner.weight.requires_grad_(False)
        self.shift = nn.Parameter(torch.randn(WIDTH), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shift


class Tied(nn.Module):
    """One matrix used three times, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.between = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        return self.last(torch.tanh(self.first(self.between(x))))


class Mixed(Plain):
    """float32 and float64 in turn; a layer kept transposed; no elements at all in one."""

    def __init__(self) -> None:
        super().__init__()
        self.exact = nn.Linear(WIDTH, WIDTH).double()
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.turned = nn.Parameter(torch.randn(WIDTH, 4).t() * 0.3)
        self.back = nn.Linear(4, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.exact(super().forward(x).double()).float()
        return self.back(torch.tanh(x @ self.turned.t())) + self.empty.sum()


class Buffered(Plain):
    """What it computes depends on a buffer, which ranks would make differently."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("noise", torch.randn(WIDTH))
        self.register_buffer("narrow", torch.randint(1, 9, (WIDTH,), dtype=torch.int16))
        self.register_buffer("count", torch.tensor(torch.randint(1, 9, ()).item()))
        self.register_buffer("wide", torch.randn(1).expand(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.noise * self.wide) * self.narrow / self.count


class Sometimes(Plain):
    """`never` is not used; `rarely` is by batches whose first sample begins above zero."""

    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(WIDTH, WIDTH)
        self.rarely = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        use = x[:, :1] > 0
        return torch.where(use, self.rarely(out), out) if bool(use.any()) else out


class Backwards(nn.Module):
    """Used in the order in which it was not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in reversed(self.layers):
            x = torch.tanh(layer(x))
        return x


class Shuffled(nn.Module):
    """Samples that begin below zero take the layers in turn, the others the other way round.

    So two ranks reach equally large gradients in different orders.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        below = x[:, 0] < 0
        parts = (x[below], list(self.layers)), (x[~below], list(self.layers)[::-1])
        return torch.cat([self._through(part, layers) for part, layers in parts if len(part)])

    def _through(self, x: Tensor, layers: list[nn.Module]) -> Tensor:
        for layer in layers:
            x = torch.tanh(layer(x))
        return x


class Images(nn.Module):
    """channels_last weights: gradients have the same strides."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)
        self.head = nn.Linear(8, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.convolution(x.view(-1, 2, 3, 1).repeat(1, 1, 1, 2)).flatten(1))


class Half(Plain):
    """bfloat16 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16()).float()


TOYS: dict[str, Callable[[], nn.Module]] = {
    "plain": Plain,
    "frozen": Frozen,
    "tied": Tied,
    "mixed": Mixed,
    "buffered": Buffered,
    "sometimes": Sometimes,
    "backwards": Backwards,
    "shuffled": Shuffled,
    "images": Images,
    "half": Half,
}


def batch(seed: int, samples: int) -> Batch:
    """Of two ranks the first has only numbers below zero, the second above, in column 0."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, WIDTH, generator=generator)
    sign = torch.ones(samples)
    sign[: samples // 2] = -1
    inputs[:, 0] = inputs[:, 0].abs() * sign
    return inputs, torch.randn(samples, WIDTH, generator=generator)


def loss(model: nn.Module, data: Batch) -> Tensor:
    inputs, targets = data
    return nn.functional.mse_loss(model(inputs), targets)


def toy(name: str) -> ModelSpec:
    model = TOYS[name]()
    sizes = [(one.numel(), one.element_size()) for one in model.parameters() if one.requires_grad]
    return ModelSpec(
        name=name,
        build=TOYS[name],
        batch=batch,
        loss=loss,
        parameters=sum(count for count, _ in sizes),
        gradient_bytes=sum(count * size for count, size in sizes),
    )
