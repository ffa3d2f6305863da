"""Parameters and FLOPs by formula against the built modules, as torch counts them."""

import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from wirespeed.errors import UsageError
from wirespeed.training.models.catalogue import model_lines, model_named, model_names
from wirespeed.training.models.sizes import CONVNETS, MLPS, TRANSFORMERS, TransformerSize

SMALL = ("tiny", "mlp", "convnet")
LARGE = tuple(name for name in TRANSFORMERS if name != "tiny")
SAMPLES = 2


def counted(spec, device, samples=SAMPLES):
    """(elements that are trained, FLOPs of forward and backward) as torch counts them.

    Attention by plain products: the counter has no formula for the CPU's fused kernel.
    """
    with torch.device(device):
        model = spec.build()
    batch = tuple(one.to(device) for one in spec.batch(1, samples))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        spec.loss(model, batch).backward()
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    gradients = sum(one.grad.nbytes for one in model.parameters())
    return trained, gradients, counter.get_total_flops()


def agrees(spec, device):
    figures = (spec.parameters, spec.gradient_bytes, SAMPLES * spec.flops_per_sample)
    assert counted(spec, device) == figures


@pytest.mark.parametrize("name", SMALL)
def test_small_models_on_the_cpu(name):
    agrees(model_named(name), "cpu")


@pytest.mark.parametrize("name", LARGE)
def test_large_models_without_memory(name):
    """With two of their layers: the others are like them."""
    agrees(model_named(name, layers=2), "meta")


@pytest.mark.parametrize(
    "changes",
    [
        {"tied": True},
        {"heads": 8, "kv_heads": 2},
        {"heads": 2},
        {"layers": 1, "context": 7, "vocab": 300, "d_model": 64, "d_ff": 100},
    ],
)
def test_changed_sizes(changes):
    agrees(model_named("tiny", **changes), "cpu")


def test_what_the_fused_kernel_hides_from_the_counter_is_the_attention_alone():
    spec, size = model_named("tiny"), TRANSFORMERS["tiny"]
    model = spec.build()
    with FlopCounterMode(display=False) as counter:
        spec.loss(model, spec.batch(1, SAMPLES)).backward()
    without = SAMPLES * (size.flops_per_sample - size.attention_flops_per_sample)
    assert counter.get_total_flops() in (without, SAMPLES * size.flops_per_sample)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
        ("small", 128_625_408),
        ("xl", 1_998_235_200),
        ("2.7B", 3_406_809_600),
    ],
)
def test_published_numbers_of_parameters(name, parameters):
    """Llama's as their model cards say (1.24 B, 8.03 B); the others from the course's own sizes."""
    assert TRANSFORMERS[name].parameters == parameters


def kept_by_autograd(spec, samples):
    """Bytes of the storages that autograd holds after the forward pass, the parameters' aside."""
    model, held = spec.build(), {}
    own = {one.untyped_storage().data_ptr() for one in model.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage  # keeps it alive, so that no address comes again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = spec.loss(model, spec.batch(1, samples))
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in held.values())


@pytest.mark.parametrize(("name", "more"), [("tiny", 0.2), ("mlp", 0.01), ("convnet", 0.01)])
def test_estimated_activations_are_near_what_autograd_keeps(name, more):
    """The CPU's norm is not fused and keeps a copy more: d a norm and token, about a tenth."""
    spec = model_named(name)
    estimate = {**TRANSFORMERS, **MLPS, **CONVNETS}[name].activation_bytes_per_sample
    assert estimate <= kept_by_autograd(spec, 4) / 4 <= (1 + more) * estimate


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"heads": 3}, "3 heads"),
        ({"d_model": 100, "heads": 100}, "100 heads"),
        ({"kv_heads": 3}, "3 key-value heads"),
        ({"layers": 0}, "layers is 0"),
        ({"context": -1}, "context is -1"),
    ],
)
def test_sizes_that_do_not_fit_together(changes, says):
    with pytest.raises(UsageError, match=says):
        model_named("tiny", **changes)


def test_a_token_s_flops_are_near_the_rule_of_thumb():
    size = TRANSFORMERS["small"]
    # The rule of thumb, 6 a parameter and token, without embedding and attention.
    rule = 6 * (size.parameters - size.vocab * size.d_model)
    assert rule < size.flops_per_sample / size.context < 1.1 * rule


def test_the_list_has_a_line_a_model_with_its_figures():
    lines = dict(zip(model_names(), model_lines(), strict=True))
    assert all(line.split()[0] == name for name, line in lines.items())
    assert "1.24 G parameters" in lines["llama-1b"]
    assert "919 k parameters" in lines["tiny"]


def test_sizes_and_names_need_no_torch():
    program = (
        "import sys; import wirespeed.training.models.catalogue as c; "
        "c.model_named('llama-8b').parameters; c.model_lines(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_size_of_one_s_own():
    size = TransformerSize(
        name="one",
        vocab=11,
        context=3,
        d_model=8,
        d_ff=5,
        layers=1,
        heads=2,
        kv_heads=1,
        tied=True,
    )
    # embedding 11·8; queries, output 2·8·8; keys, values 2·8·4; SwiGLU 3·8·5; three norms of 8.
    assert size.parameters == 88 + 128 + 64 + 120 + 24
