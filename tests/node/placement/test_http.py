"""One request: bounded as a whole, not read by read."""

import time
from types import ModuleType
from typing import Any

import pytest

from wirespeed.node.placement import NoAnswer
from wirespeed.node.placement.http import Service, is_address


def service(url: str, seconds: float) -> Service:
    return Service(url, time.monotonic() + seconds)


@pytest.mark.parametrize("how", ["silent", "drip", "drip head"])
def test_a_slow_answer_ends_with_the_deadline(how: str, serve: Any, fakes: ModuleType) -> None:
    fake = serve(fakes.always(200, "late"), how)
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer in time"):
        service(fake.url, 0.6).ask("/", {})
    assert time.monotonic() - began < fakes.BOUND_S - 1  # the fake itself would end then


def test_a_deadline_that_is_over_asks_nothing(serve: Any, fakes: ModuleType) -> None:
    fake = serve(fakes.always(200, "late"))
    with pytest.raises(NoAnswer, match="no answer in time"):
        service(fake.url, -1).ask("/", {})
    assert fake.asked == []


def test_an_answer(serve: Any, fakes: ModuleType) -> None:
    fake = serve(fakes.always(404, "grün", Flavor="Vanilla"))
    answer = service(f"{fake.url}/base/", 5).ask("/path?x=1", {"X-One": "1"}, method="PUT")
    assert (answer.status, answer.text, answer.headers["flavor"]) == (404, "grün", "Vanilla")
    ((method, path, headers),) = fake.asked
    assert (method, path, headers["x-one"]) == ("PUT", "/base/path?x=1", "1")
    assert headers["host"] == fake.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("http://169.254.169.254", True),
        ("http://[fd00:ec2::254]:80/base", True),
        ("https://10.0.0.1:6443", True),
        ("ftp://host", False),
        ("http://", False),
        ("http://host:99999", False),
        ("http://user@host", False),
        ("http://host/?x", False),
        ("http://host/a b", False),
        ("http://ho\r\nst", False),
        ("http://[::1", False),
    ],
)
def test_addresses(url: str, fine: bool) -> None:
    assert is_address(url) is fine


@pytest.mark.parametrize("host", ["a" * 70, "..", "no-such-host.invalid"])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(NoAnswer):
        service(f"http://{host}:1", 1).ask("/", {})
