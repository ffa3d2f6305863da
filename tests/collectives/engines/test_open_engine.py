"""An engine whose extra is missing is refused with the command that installs it."""

import sys

import pytest
import torch

from wirespeed.collectives.engines import open_engine
from wirespeed.errors import CannotMeasure

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("engine", "package", "extra"),
    [("deepspeed", "deepspeed", "deepspeed"), ("mpi4py", "mpi4py", "mpi")],
)
def test_missing_extra(
    monkeypatch: pytest.MonkeyPatch, engine: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "wirespeed.collectives.engines.mpi_engine", raising=False)
    with pytest.raises(CannotMeasure) as caught:
        open_engine(engine, "gloo", CPU)
    assert engine in caught.value.saw
    assert caught.value.next == f"pip install 'wirespeed[{extra}]'"
    assert caught.value.exit_code == 3
