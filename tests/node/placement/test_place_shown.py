"""The clouds' loopback services, asked by the whole command: the zone is shown, or why not."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

CLOUDS = {
    "aws": ("us-east-1a (use1-az4)", ("us-east-1a", "use1-az4")),
    "azure": ("1", ("1",)),
    "gcp": ("us-central1-a", ("us-central1-a",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("cloud", CLOUDS)
def test_topo_shows_the_zone(
    cloud: str, cli: Any, serve: Callable[..., Any], fakes: ModuleType
) -> None:
    shown, zone = CLOUDS[cloud]
    service = serve(getattr(fakes, cloud)(getattr(fakes, f"{cloud}_node")(*zone)))
    done = cli("topo", "-q", env={f"WIRESPEED_{cloud.upper()}_METADATA": service.url})
    assert done.code == 0, done.err
    assert shown in done.out.partition("zone ")[2].partition(" · ")[0]
    assert service.asked


@pytest.mark.slow
def test_a_service_that_is_silent_holds_topo_up_for_no_longer_than_its_bound(
    cli: Any, serve: Callable[..., Any], fakes: ModuleType
) -> None:
    service = serve(fakes.aws(fakes.aws_node()), how="silent")
    done = cli("topo", "-q", "-v", env={"WIRESPEED_AWS_METADATA": service.url})
    assert done.code == 0, done.err
    assert "zone " not in done.out.splitlines()[2]
    assert any(line.startswith("placement ") for line in done.out.splitlines())
