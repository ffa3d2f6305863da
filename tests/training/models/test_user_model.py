"""A user's own model: what is accepted, and what each wrong form says."""

import importlib
import sys

import pytest
import torch

from wirespeed.errors import UsageError
from wirespeed.training.models.catalogue import model_named

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
"""
GOOD = """
def make():
    rows = torch.arange(12.0).view(6, 2)
    return nn.Linear(2, 3), (rows, torch.arange(6) % 3), F.cross_entropy
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the user's module into the working directory; gives back its name."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)

    def file(code, name="their_model"):
        (tmp_path / f"{name}.py").write_text(HEAD + code)
        return name

    yield file
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("their_"):
            del sys.modules[name]


def test_three_things_make_a_model(write):
    spec = model_named(write(GOOD) + ":make")
    assert (spec.parameters, spec.gradient_bytes, spec.flops_per_sample) == (9, 36, None)
    inputs, targets = spec.batch(3, 8)
    assert inputs.shape == (8, 2)
    assert all(int(row[0] / 2) % 3 == target for row, target in zip(inputs, targets, strict=True))
    assert inputs.equal(spec.batch(3, 8)[0])
    assert not inputs.equal(spec.batch(4, 8)[0])
    spec.loss(spec.build(), (inputs, targets)).backward()


def test_each_build_is_a_new_module_with_torch_s_random_numbers(write):
    spec = model_named(write(GOOD) + ":make")
    modules = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        modules.append(spec.build())
    assert modules[0] is not modules[1]
    assert modules[0].weight.equal(modules[1].weight)
    assert not modules[0].weight.equal(modules[2].weight)


def test_a_function_of_batches(write):
    code = """
def batch(seed, samples):
    return torch.full((samples, 2), float(seed)), torch.zeros(samples, dtype=torch.int64)

def make():
    return nn.Linear(2, 3), batch, F.cross_entropy
"""
    inputs, targets = model_named(write(code) + ":make").batch(5, 4)
    assert inputs.tolist() == [[5.0, 5.0]] * 4
    assert len(targets) == 4


def test_a_whole_spec(write):
    code = """
from wirespeed.training.contract import ModelSpec

def make():
    return ModelSpec(name="mine", build=lambda: nn.Linear(1, 1), batch=None, loss=None,
                     parameters=2, gradient_bytes=8, flops_per_sample=12.0)
"""
    spec = model_named(write(code) + ":make")
    assert (spec.name, spec.flops_per_sample) == ("mine", 12.0)


def test_frozen_and_tied_parameters_are_counted_as_they_train(write):
    code = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)

def make():
    return Model(), (torch.ones(1, 4), torch.ones(1, 4)), F.mse_loss
"""
    assert model_named(write(code) + ":make").parameters == 16


WRONG = {
    "return 1": "returned a int",
    "return nn.Linear(1, 1), 2": "returned tuple of 2",
    "return 1, 2, 3": "the first of three is a int",
    "return nn.Linear(1, 1), (torch.ones(1, 1), torch.ones(1, 1)), 3": "the loss is a int",
    "return nn.Linear(1, 1), torch.ones(1), F.mse_loss": "the batch is a tensor of shape",
    "return nn.Linear(1, 1), (torch.ones(2, 1), torch.ones(1)), F.mse_loss": r"inputs \(2, 1\)",
    "return nn.Linear(1, 1), (torch.ones(0, 1), torch.ones(0)), F.mse_loss": r"inputs \(0, 1\)",
    "return nn.ReLU(), (torch.ones(1, 1), torch.ones(1, 1)), F.mse_loss": "no parameters",
    "return nn.Linear(1, 1).requires_grad_(False), (torch.ones(1, 1),) * 2, F.mse_loss": (
        "no parameters that are trained"
    ),
    "return 1 / 0": r"ZeroDivisionError: division by zero \(.*their_model.py, line 7\)",
    "return nn.Linear(-1, 1)": r"failed: .* \(.*their_model.py, line 7\)",
    "raise SystemExit(3)": "SystemExit: 3",
    "return nn.Linear(1, 1), lambda seed: None, F.mse_loss": "failed: TypeError",
}


@pytest.mark.parametrize("body", WRONG)
def test_wrong_returns(write, body):
    name = write(f"\ndef make():\n    {body}\n")
    with pytest.raises(UsageError, match=WRONG[body]):
        model_named(f"{name}:make")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("\n1 / 0\n", r"cannot be imported: ZeroDivisionError.*\(.*their_broken.py, line 6\)"),
        ("\ndef make(:\n", r"cannot be imported: SyntaxError: .*\(.*their_broken.py, line 6\)"),
        ("\nimport no_such_package\n", r"no_such_package.*\(.*their_broken.py, line 6\)"),
        ("\nmake = 3\n", "make is not callable in their_broken"),
        ("\n", "make does not exist in their_broken"),
    ],
)
def test_modules_that_do_not_give_a_function(write, code, says):
    with pytest.raises(UsageError, match=says):
        model_named(write(code, "their_broken") + ":make")


@pytest.mark.parametrize(
    "path", [":make", "their_model:", "a b:make", "-c:make", "a..b:make", "os:a.b"]
)
def test_paths_that_name_no_function(write, path):
    with pytest.raises(UsageError, match="names no function"):
        model_named(path)


def test_a_file_s_name_is_turned_into_the_module_s(write):
    with pytest.raises(UsageError, match="names no function") as caught:
        model_named("pack/their_model.py:make")
    assert caught.value.next == "pack.their_model:make"


def test_a_module_that_is_nowhere(write):
    with pytest.raises(UsageError, match="no module is called their_absent"):
        model_named("their_absent:make")


def test_one_module_for_all_is_refused(write):
    code = "\nONE = nn.Linear(2, 3)\n" + GOOD.replace("nn.Linear(2, 3)", "ONE")
    spec = model_named(write(code) + ":make")
    with pytest.raises(UsageError, match="same module twice"):
        spec.build()


def test_a_loss_that_is_no_single_number(write):
    spec = model_named(write(GOOD.replace("F.cross_entropy", "lambda a, b: a")) + ":make")
    with pytest.raises(UsageError, match=r"a tensor of shape \(4, 3\)"):
        spec.loss(spec.build(), spec.batch(1, 4))


def test_sizes_of_a_user_s_model_are_not_ours_to_change(write):
    with pytest.raises(UsageError, match="has no layers to set"):
        model_named(write(GOOD) + ":make", layers=2)


def test_nothing_in_the_working_directory_stands_before_what_is_installed(write, monkeypatch):
    """A `bisect.py` beside the model was Python's own for all that came after."""
    spec = model_named(write("import colorsys\n" + GOOD) + ":make")
    write("raise SystemExit('ran')", "colorsys")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert "rgb_to_hsv" in vars(importlib.import_module("colorsys"))
    assert spec.parameters == 9


def test_an_installed_module_comes_before_the_working_directory(write):
    """A json.py, or a torch.py, that lies there takes no module's place."""
    write("raise SystemExit('ran')", name="wave")
    with pytest.raises(UsageError, match="does not exist in wave"):
        model_named("wave:make")
