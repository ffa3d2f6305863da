"""Deployments for the tests of manifests: from the files beside this, or with a few keys."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from wirespeed.clusters.deployment import Deployment, settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.manifests.render import render

FILES = Path(__file__).parent / "files"

Objects = list[dict[str, Any]]


def laid_over(base: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """`base` with the sections of `parts` laid over it, key by key."""
    over = {
        name: {**base.get(name, {}), **part} if isinstance(part, dict) else part
        for name, part in parts.items()
    }
    return {**base, **over}


def identity(made: dict[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace (empty for what has none) and name."""
    told = made["metadata"]
    return made["kind"], told.get("namespace", ""), told["name"]


@pytest.fixture
def deployment() -> Callable[..., Deployment]:
    """A deployment named `mine`: sections of the file, and `pods` and `engine` as options would say."""

    def make(*, pods: int | None = None, engine: str | None = None, **parts: Any) -> Deployment:
        told = laid_over({"cluster": {"name": "mine", "namespace": "here"}}, parts)
        return settle(ClusterFile.model_validate(told), nodes=pods, engine=engine)

    return make


@pytest.fixture
def rendered(deployment: Callable[..., Deployment]) -> Callable[..., dict[str, dict[str, Any]]]:
    """Objects of such a deployment by kind, of which it has one each (claims: KIND/NAME)."""

    def make(**parts: Any) -> dict[str, dict[str, Any]]:
        objects = render(deployment(**parts))
        return {_key(made): made for made in objects}

    return make


@pytest.fixture
def pod(rendered: Callable[..., dict[str, dict[str, Any]]]) -> Callable[..., dict[str, Any]]:
    """The StatefulSet's pod template."""

    def make(**parts: Any) -> dict[str, Any]:
        template: dict[str, Any] = rendered(**parts)["StatefulSet"]["spec"]["template"]
        return template

    return make


@pytest.fixture
def of_file() -> Callable[..., Objects]:
    """Objects of one of the files."""

    def make(name: str, **options: Any) -> Objects:
        told = yaml.safe_load((FILES / f"{name}.yaml").read_text())
        return render(settle(ClusterFile.model_validate(told), **options))

    return make


def _key(made: dict[str, Any]) -> str:
    kind: str = made["kind"]
    return f"{kind}/{made['metadata']['name']}" if kind == "PersistentVolumeClaim" else kind
