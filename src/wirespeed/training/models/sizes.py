"""What a model weighs and costs, exactly and by formula; nothing here needs torch.

Multiply-accumulates of matrix products and convolutions are counted, each as two operations, as
torch's FlopCounterMode counts them. Left out: norms, RoPE, softmax, activation functions, the
embedding's look-up, the loss, the optimizer. The causal mask is not discounted and nothing that a
fused kernel computes twice is counted twice, so that the figure is that of the model and not of a
kernel: the "model FLOPs" of A. Chowdhery et al., PaLM, 2022, appendix B.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import chain

from wirespeed.errors import UsageError

FLOAT32_BYTES = 4
_INT64_BYTES = 8


class _Weights(ABC):
    """What all sizes count alike."""

    __slots__ = ()

    @property
    @abstractmethod
    def tensor_elements(self) -> tuple[int, ...]:
        """Of each parameter, in the order in which the model registers them; tied ones once."""

    @property
    def parameters(self) -> int:
        return sum(self.tensor_elements)

    @property
    def gradient_bytes(self) -> int:
        """Of the gradients of all parameters in float32."""
        return self.parameters * FLOAT32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSize(_Weights):
    """A decoder-only transformer: RMSNorm, RoPE, SwiGLU, causal attention, no biases.

    In the formulas d is d_model, T the context, k = kv_heads * d_head.
    """

    name: str
    vocab: int
    context: int
    """Tokens of one sample."""
    d_model: int
    d_ff: int
    """Width within the feed-forward part, which has three matrices."""
    layers: int
    heads: int
    kv_heads: int
    """Below `heads`: groups of heads share their keys and values (J. Ainslie et al., GQA, 2023)."""
    tied: bool
    """The output matrix is the embedding."""
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("vocab", "context", "d_model", "d_ff", "layers", "heads", "kv_heads"):
            _need_positive(f"{self.name}: {name}", getattr(self, name))
        if self.d_model % (2 * self.heads):
            raise UsageError(
                f"{self.name}: d_model {self.d_model} does not give {self.heads} heads an even width",
                expected=f"a multiple of {2 * self.heads} (RoPE turns pairs of numbers)",
            )
        if self.heads % self.kv_heads:
            raise UsageError(
                f"{self.name}: {self.heads} heads cannot share {self.kv_heads} key-value heads",
                expected="a number of key-value heads that divides the number of heads",
            )

    @property
    def d_head(self) -> int:
        return self.d_model // self.heads

    @property
    def d_kv(self) -> int:
        """Width of all keys of a token, and of all values."""
        return self.kv_heads * self.d_head

    @property
    def layer_matrix_elements(self) -> int:
        """Queries and output 2 d d, keys and values 2 d k, SwiGLU 3 d d_ff."""
        return self.d_model * (2 * self.d_model + 2 * self.d_kv + 3 * self.d_ff)

    @property
    def tensor_elements(self) -> tuple[int, ...]:
        """The embedding, matrices and two norms a layer, the last norm, the output if not tied."""
        d = self.d_model
        attention = (d, d * d, d * self.d_kv, d * self.d_kv, d * d)
        layer = (*attention, d, *(d * self.d_ff,) * 3)
        head = () if self.tied else (self.vocab * d,)
        return (self.vocab * d, *layer * self.layers, d, *head)

    @property
    def attention_flops_per_sample(self) -> int:
        """Scores (T T d) and their product with the values (T T d), a layer, forward and backward.

        Every head has its own scores, so that shared keys and values change nothing. Backward has
        two products for each of the forward's.
        """
        return 3 * self.layers * 2 * (2 * self.context**2 * self.d_model)

    @property
    def flops_per_sample(self) -> int:
        """Forward and backward of one sample: 6 a matrix element and token, and the attention.

        Each matrix takes part in one product forward and in two backward (for its input and for
        itself); the output matrix counts, tied or not, the embedding's look-up does not.
        """
        elements = self.layers * self.layer_matrix_elements + self.vocab * self.d_model
        return 6 * elements * self.context + self.attention_flops_per_sample

    @property
    def activation_bytes_per_sample(self) -> int:
        """What autograd keeps of one sample between forward and backward, in float32: an estimate.

        A layer and token: the inputs of the two norms (2 d) and their outputs (2 d), queries and
        the attention's output (2 d), keys and values (2 k), the two inputs of SwiGLU's product,
        their product and its first factor before the sigmoid (4 d_ff). Then the last norm's input
        and output (2 d) and the log-probabilities (vocab), with token ids in int64. Kernels keep
        the attention's scores only by their row sums; that, the norms' scales, and what a kernel
        keeps beside (copies on the CPU, padding) are left out.
        """
        layer = 6 * self.d_model + 2 * self.d_kv + 4 * self.d_ff
        token = self.layers * layer + 2 * self.d_model + self.vocab
        return self.context * (token * FLOAT32_BYTES + 2 * _INT64_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSize(_Weights):
    """Fully connected layers with biases and ReLU between them."""

    name: str
    widths: tuple[int, ...]
    """Inputs, each hidden layer, classes."""

    def __post_init__(self) -> None:
        for width in self.widths:
            _need_positive(f"{self.name}: width", width)

    @property
    def matrix_elements(self) -> tuple[int, ...]:
        return tuple(a * b for a, b in zip(self.widths, self.widths[1:], strict=False))

    @property
    def tensor_elements(self) -> tuple[int, ...]:
        pairs = zip(self.matrix_elements, self.widths[1:], strict=True)
        return tuple(chain.from_iterable(pairs))

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.widths[:1]

    @property
    def classes(self) -> int:
        return self.widths[-1]

    @property
    def flops_per_sample(self) -> int:
        """6 a matrix element, 4 for the first: nobody asks for the gradient of the data."""
        return 6 * sum(self.matrix_elements) - 2 * self.matrix_elements[0]

    @property
    def activation_bytes_per_sample(self) -> int:
        """The data, each hidden layer after ReLU (which needs no more), the log-probabilities."""
        return sum(self.widths) * FLOAT32_BYTES + _INT64_BYTES


@dataclass(frozen=True, slots=True)
class Convolution:
    """A square kernel with as much padding as keeps the size where the stride is 1."""

    outputs: int
    kernel: int
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvnetSize(_Weights):
    """Convolutions without bias, each with group norm and ReLU; the mean over the image; classes.

    Group norm and not batch norm: the mean over shards is then the whole's, and there is no buffer.
    """

    name: str
    channels: int
    """Of the image."""
    side: int
    """Pixels of the image, in both directions."""
    convolutions: tuple[Convolution, ...]
    groups: int
    """Of each norm."""
    classes: int

    @property
    def sides(self) -> tuple[int, ...]:
        """Pixels after each convolution: ceil(side / stride)."""
        sides = [self.side]
        for one in self.convolutions:
            sides.append(-(-sides[-1] // one.stride))
        return tuple(sides[1:])

    @property
    def inputs(self) -> tuple[int, ...]:
        """Channels that enter each convolution, and at last the classifier."""
        return (self.channels, *(one.outputs for one in self.convolutions))

    @property
    def kernel_elements(self) -> tuple[int, ...]:
        pairs = zip(self.inputs, self.convolutions, strict=False)
        return tuple(inputs * one.outputs * one.kernel**2 for inputs, one in pairs)

    @property
    def tensor_elements(self) -> tuple[int, ...]:
        """Kernels, each with a scale and a shift for its channels, the classifier with its bias."""
        outputs = self.inputs[1:]
        stages = chain.from_iterable(zip(self.kernel_elements, outputs, outputs, strict=True))
        return (*stages, self.inputs[-1] * self.classes, self.classes)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.channels, self.side, self.side

    @property
    def flops_per_sample(self) -> int:
        """6 a kernel element and output pixel, 4 for the first convolution; 6 a classifier weight."""
        products = [
            elements * side**2
            for elements, side in zip(self.kernel_elements, self.sides, strict=True)
        ]
        return 6 * (sum(products) + self.inputs[-1] * self.classes) - 2 * products[0]

    @property
    def activation_bytes_per_sample(self) -> int:
        """The image; after each convolution what norm, ReLU and the next one keep (2 copies)."""
        pairs = zip(self.convolutions, self.sides, strict=True)
        maps = sum(2 * one.outputs * side**2 for one, side in pairs)
        image = self.channels * self.side**2
        numbers = image + maps + self.inputs[-1] + self.classes
        return numbers * FLOAT32_BYTES + _INT64_BYTES


def _need_positive(what: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{what} is {value}", expected="a whole number of at least 1")


Size = TransformerSize | MlpSize | ConvnetSize


def _handout(name: str, d_model: int, d_ff: int, layers: int, heads: int) -> TransformerSize:
    """A size of the table in Stanford CS336 (spring 2025), assignment 2: systems, section 1.1.2.

    Vocabulary 10,000 and context 256 as there; the course's model does not tie its output matrix.
    """
    return replace(
        _TINY,
        name=name,
        vocab=10_000,
        context=256,
        d_model=d_model,
        d_ff=d_ff,
        layers=layers,
        heads=heads,
        kv_heads=heads,
    )


# Ours: bytes as tokens; a step of 4 samples takes some tens of milliseconds on one core.
_TINY = TransformerSize(
    name="tiny",
    vocab=256,
    context=64,
    d_model=128,
    d_ff=384,
    layers=4,
    heads=4,
    kv_heads=4,
    tied=False,
)
# Shapes of Meta's Llama 3.2 1B and Llama 3.1 8B and 70B (config.json of meta-llama/Llama-3.2-1B,
# meta-llama/Llama-3.1-8B and -70B); the contexts are ours, what a first test trains with, and of 70B
# what it was trained with at first.
_LLAMA_8B = TransformerSize(
    name="llama-8b",
    vocab=128_256,
    context=2048,
    d_model=4096,
    d_ff=14_336,
    layers=32,
    heads=32,
    kv_heads=8,
    tied=False,
    rope_theta=500_000.0,
)
_LLAMA_70B = replace(
    _LLAMA_8B, name="llama-70b", context=8192, d_model=8192, d_ff=28_672, layers=80, heads=64
)
_LLAMA_1B = replace(_LLAMA_8B, name="llama-1b", d_model=2048, d_ff=8192, layers=16, tied=True)

TRANSFORMERS: dict[str, TransformerSize] = {
    size.name: size
    for size in (
        _TINY,
        _handout("small", 768, 3072, 12, 12),
        _handout("medium", 1024, 4096, 24, 16),
        _handout("large", 1280, 5120, 36, 20),
        _handout("xl", 1600, 6400, 48, 25),
        _handout("2.7B", 2560, 10240, 32, 32),
        _LLAMA_1B,
        _LLAMA_8B,
        _LLAMA_70B,
    )
}

MLPS: dict[str, MlpSize] = {"mlp": MlpSize(name="mlp", widths=(784, 1024, 1024, 1024, 10))}
"""Little computation for its gradients: communication shows."""

CONVNETS: dict[str, ConvnetSize] = {
    "convnet": ConvnetSize(
        name="convnet",
        channels=3,
        side=32,
        convolutions=(Convolution(32, 3, 1), Convolution(64, 3, 2), Convolution(128, 3, 2)),
        groups=8,
        classes=10,
    )
}
"""Much computation for its gradients: communication hides."""

SIZES: dict[str, Size] = {**TRANSFORMERS, **MLPS, **CONVNETS}
"""Small ones first within each kind."""


def size_named(name: str) -> Size:
    """UsageError names those that there are."""
    if name not in SIZES:
        raise UsageError(
            f"no model is called {name!r}",
            expected="one of " + ", ".join(SIZES),
            next="wirespeed train --list",
        )
    return SIZES[name]
