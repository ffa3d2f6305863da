"""A user's own model: `module:function`, a function without arguments that returns either

1. a `ModelSpec` (training/contract.py), which may say how many FLOPs a sample takes, or
2. three things: `(module, batch, loss)`
   - module: a new `nn.Module` in float32 on the CPU at each call, made with torch's random numbers;
   - batch: an example `(inputs, targets)` of tensors whose first dimension counts samples (batches
     are then drawn from its rows, with repetition), or a function `(seed, samples) -> (inputs,
     targets)` that gives the same batch for the same arguments;
   - loss: a function `(outputs, targets) -> scalar`, the mean over the samples, such as
     `torch.nn.functional.cross_entropy`.

The name comes from this rank's own command line. The module may lie in the working directory, which
is searched last: no file there takes the place of Python's own modules or of installed ones.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from wirespeed.errors import UsageError
from wirespeed.training.contract import Batch, ModelSpec
from wirespeed.training.models.sizes import FLOAT32_BYTES

_FORM = "module:function, such as my_package.models:make"
_RETURNS = "a ModelSpec, or (module, (inputs, targets), loss)"
_Maker = Callable[[], Any]


def user_model(path: str) -> ModelSpec:
    """Imports, calls and checks; UsageError says what is wrong, with the user's file and line."""
    make = _function(path)
    made = _call(path, make)
    if isinstance(made, ModelSpec):
        return _trained(path, made)
    if not isinstance(made, tuple) or len(made) != 3:
        raise UsageError(f"{path} returned {_kind(made)}", expected=_RETURNS)
    module, batch, loss = made
    if not isinstance(module, nn.Module):
        raise UsageError(f"{path}: the first of three is {_kind(module)}", expected="an nn.Module")
    if not callable(loss):
        raise UsageError(
            f"{path}: the loss is {_kind(loss)}", expected="a function (outputs, targets) -> scalar"
        )
    trained = sum(one.numel() for one in module.parameters() if one.requires_grad)
    spec = ModelSpec(
        name=path,
        build=_Builder(path, make, module),
        batch=_batches(path, batch),
        loss=_checked(path, loss),
        parameters=trained,
        gradient_bytes=trained * FLOAT32_BYTES,
    )
    return _trained(path, spec)


class _Builder:
    """A new module at each call; refuses a function that hands out the same one again."""

    def __init__(self, path: str, make: _Maker, first: nn.Module) -> None:
        self._path, self._make, self._last = path, make, ref(first)

    def __call__(self) -> nn.Module:
        module: nn.Module = _call(self._path, self._make)[0]
        if module is self._last():
            raise UsageError(
                f"{self._path} returned the same module twice", expected="a new one at each call"
            )
        self._last = ref(module)
        return module


def _checked(path: str, loss: Callable[[Any, Tensor], Tensor]) -> Callable[..., Tensor]:
    """The user's loss of the model's outputs; UsageError where it is not one number."""

    def checked(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        value = loss(model(inputs), targets)
        if not isinstance(value, Tensor) or value.dim() != 0:
            raise UsageError(
                f"{path}: the loss returned {_kind(value)}", expected="a tensor of one number"
            )
        return value

    return checked


def _batches(path: str, batch: Any) -> Callable[[int, int], Batch]:
    made = _call(path, lambda: batch(0, 2)) if callable(batch) else batch
    if not _is_pair(made):
        raise UsageError(
            f"{path}: the batch is {_kind(made)}", expected="tensors (inputs, targets)"
        )
    inputs, targets = made
    if inputs.dim() == 0 or targets.dim() == 0 or len(inputs) != len(targets) or not len(inputs):
        raise UsageError(
            f"{path}: inputs {tuple(inputs.shape)}, targets {tuple(targets.shape)}",
            expected="the same number of samples in the first dimension of both, at least 1",
        )
    if callable(batch):
        given: Callable[[int, int], Batch] = batch
        return given

    def drawn(seed: int, samples: int) -> Batch:
        """Rows of the example."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(len(inputs), (samples,), generator=generator)
        return inputs[rows], targets[rows]

    return drawn


def _is_pair(made: Any) -> bool:
    pair = isinstance(made, tuple | list) and len(made) == 2
    return pair and all(isinstance(one, Tensor) for one in made)


def _trained(path: str, spec: ModelSpec) -> ModelSpec:
    if spec.parameters < 1:
        raise UsageError(
            f"{path} has no parameters that are trained",
            expected="a module with at least one parameter that requires a gradient",
        )
    return spec


def _function(path: str) -> _Maker:
    module_name, _, name = path.partition(":")
    if not all(map(str.isidentifier, [*module_name.split("."), name])):
        hint = f"{module_name[:-3].replace(os.sep, '.')}:{name}" if ".py" in module_name else ""
        raise UsageError(f"{path!r} names no function", expected=_FORM, next=hint)
    function = getattr(_import(module_name), name, None)
    if not callable(function):
        state = "is not callable" if function is not None else "does not exist"
        raise UsageError(f"{name} {state} in {module_name}", expected=f"a function: {_FORM}")
    made: _Maker = function
    return made


def _import(name: str) -> Any:
    folder = str(os.getcwd())  # noqa: PTH109 - a string for sys.path
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(
                f"no module is called {error.name}", expected=f"one in {folder} or installed"
            ) from error
        raise _users_fault(f"{name} cannot be imported", error) from error
    except (Exception, SystemExit) as error:
        raise _users_fault(f"{name} cannot be imported", error) from error


def _call(path: str, make: _Maker) -> Any:
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise _users_fault(f"{path} failed", error) from error


def _users_fault(what: str, error: BaseException) -> UsageError:
    """The error's own words with the deepest place in a file that is neither ours nor Python's."""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"({error.filename}, line {error.lineno})"
        return UsageError(f"{what}: {type(error).__name__}: {error.msg} {place}")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in _NOT_THEIRS
    ]
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    says = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return UsageError(f"{what}: {says}{where}")


def _kind(value: Any) -> str:
    """What a value is, for a message."""
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


_NOT_THEIRS = (__file__, importlib.__file__)
