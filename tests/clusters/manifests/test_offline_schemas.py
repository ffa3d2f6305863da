"""Every manifest is of Kubernetes' own schemas, old and new ones (PyPI: kubernetes-validate)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import ValidationError, validate

FILES = Path(__file__).parent / "files"
CASES = sorted(path.stem for path in FILES.glob("*.yaml"))


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
@pytest.mark.parametrize("case", CASES)
def test_objects(case: str, version: str, of_file: Callable[..., list[dict[str, Any]]]) -> None:
    for made in of_file(case):
        validate(made, version, strict=True)


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
def test_an_unknown_key_of_a_pod_would_be_seen(
    version: str, of_file: Callable[..., list[dict[str, Any]]]
) -> None:
    made = of_file("none-tcp-cpu")[-1]
    made["spec"]["template"]["spec"]["nodeSelectors"] = {}
    with pytest.raises(ValidationError, match="nodeSelectors"):
        validate(made, version, strict=True)
