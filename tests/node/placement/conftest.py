"""Fakes for the tests here, and no way to a real metadata service."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from types import ModuleType
from typing import Any

import pytest

import placement_fakes

CLOSED = "http://127.0.0.1:1"
"""Nothing listens there: a request that should not be made is refused at once."""
VARIABLES = {
    "aws": "WIRESPEED_AWS_METADATA",
    "azure": "WIRESPEED_AZURE_METADATA",
    "gcp": "WIRESPEED_GCP_METADATA",
}


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    return placement_fakes


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
