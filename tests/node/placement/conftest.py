"""Fakes for the tests here, and no way to a real metadata service."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CLOSED = "http://127.0.0.1:1"
"""Nothing listens there: a request that should not be made is refused at once."""
VARIABLES = {
    "aws": "WIRESPEED_AWS_METADATA",
    "azure": "WIRESPEED_AZURE_METADATA",
    "gcp": "WIRESPEED_GCP_METADATA",
}


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "placement_fakes", Path(__file__).with_name("fakes.py")
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    return _load()


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES.values(), "AWS_EC2_METADATA_SERVICE_ENDPOINT", "GCE_METADATA_HOST"):
        monkeypatch.setenv(name, CLOSED)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
def serve(fakes: ModuleType) -> Iterator[Callable[..., Any]]:
    """`serve(reply, how="silent")`: a Fake that runs until the end of the test."""
    with ExitStack() as running:

        def start(*arguments: Any, **options: Any) -> Any:
            service: AbstractContextManager[Any] = fakes.serving(*arguments, **options)
            return running.enter_context(service)

        yield start
