"""The three clouds: what each tells, and every way in which one tells nothing."""

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wirespeed.checks.placement import placement_findings
from wirespeed.node.placement import Placement
from wirespeed.node.placement.gather import gather_placement

SOME_S = 4.0
"""An answer that never comes holds nobody longer, on a busy machine too; the bound is 1 s."""
CLOUDS = ("aws", "azure", "gcp")
VARIABLE = {cloud: f"WIRESPEED_{cloud.upper()}_METADATA" for cloud in CLOUDS}


@pytest.fixture
def ask(tmp_path: Path, serve: Callable[..., Any]) -> Callable[..., Placement]:
    """`ask(cloud, reply, how)`: what a node finds whose metadata service is that."""

    def asked(cloud: str, reply: Any, how: str = "") -> Placement:
        return gather_placement({VARIABLE[cloud]: serve(reply, how).url}, tmp_path)

    return asked


@pytest.fixture
def node(fakes: ModuleType) -> Callable[..., Any]:
    """`node(cloud, 1)`: a service in the first, second or (0) no zone."""
    zones = {
        "aws": [("", ""), ("us-east-1a", "use1-az4"), ("us-east-1b", "use1-az6")],
        "azure": [("",), ("1",), ("2",)],
        "gcp": [("",), ("us-central1-a",), ("us-central1-b",)],
    }

    def of(cloud: str, zone: int) -> Any:
        reply, values = getattr(fakes, cloud), getattr(fakes, f"{cloud}_node")
        return reply(values(*zones[cloud][zone]))

    return of


def judged(*placements: Placement) -> Any:
    return placement_findings([(f"node-{i}", one) for i, one in enumerate(placements)])[0]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nodes_of_one_zone_pass(cloud: str, ask: Any, node: Any) -> None:
    finding = judged(ask(cloud, node(cloud, 1)), ask(cloud, node(cloud, 1)))
    assert (finding.id, finding.status) == ("PLACE-001", "pass")
    assert finding.saw.endswith(f"told by {cloud}")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nodes_of_two_zones_are_named(cloud: str, ask: Any, node: Any) -> None:
    first, second = ask(cloud, node(cloud, 1)), ask(cloud, node(cloud, 2))
    finding = judged(first, second, first)
    assert (finding.id, finding.status) == ("PLACE-001", "warn")
    assert f"{first.zone_id or first.zone} (node-0, node-2)" in finding.title
    assert f"{second.zone_id or second.zone} (node-1)" in finding.title


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_empty_zone_is_no_zone(cloud: str, ask: Any, node: Any) -> None:
    empty = ask(cloud, node(cloud, 0))
    assert (empty.zone, empty.zone_id) == ("", "")
    assert "the answer is empty" in empty.reason
    assert judged(empty, empty).status == "not_checked"


@pytest.mark.parametrize("how", ["silent", "drip"])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_service_that_never_ends_its_answer_is_left(
    cloud: str, how: str, ask: Any, node: Any
) -> None:
    began = time.monotonic()
    late = ask(cloud, node(cloud, 1), how)
    assert time.monotonic() - began < SOME_S
    assert not late.zone
    assert "no answer in time" in late.reason
    assert judged(late, late).status == "not_checked"


@pytest.mark.parametrize(
    ("reply", "how", "reason"),
    [
        (("always", 200, "<html>Sign in</html>"), "", "HTML"),
        (("always", 200, ""), "", "the answer is empty"),
        (("always", 200, "\x1b[31mred\x00"), "", ""),
        (("always", 500, "oops"), "", ""),
        (("always", 302, ""), "", "redirect (302)"),
        (("always", 200, "a" * 100), "cut", "cut short"),
        (("always", 200, "a" * 100), "big", "cut short"),
    ],
)
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_strange_answer_is_a_reason(
    cloud: str, reply: Any, how: str, reason: str, ask: Any, fakes: ModuleType
) -> None:
    name, *arguments = reply
    found = ask(cloud, getattr(fakes, name)(*arguments), how)
    assert found.source in ("", cloud)
    assert found == Placement(reason=found.reason)
    assert found.reason.startswith(f"{cloud}: ")
    assert reason in found.reason
    assert found.reason.isprintable()
    assert judged(found, found).status == "not_checked"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_redirect_leads_nowhere(
    cloud: str, ask: Any, node: Any, fakes: ModuleType, serve: Any
) -> None:
    other = serve(node(cloud, 1))
    found = ask(cloud, fakes.always(307, "", Location=other.url))
    assert other.asked == []
    assert "redirect (307)" in found.reason


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nobody_at_the_address(cloud: str, tmp_path: Path) -> None:
    found = gather_placement({VARIABLE[cloud]: "http://127.0.0.1:1"}, tmp_path)
    assert "127.0.0.1:1 cannot be reached: Connection refused" in found.reason


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_proxy_is_asked(
    cloud: str, ask: Any, node: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(node(cloud, 2))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    assert ask(cloud, node(cloud, 1)).zone
    assert proxy.asked == []


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "http://user:pw@127.0.0.1:1", "http://127.0.0.1:x", "http://"]
)
def test_an_override_must_be_an_address(address: str, tmp_path: Path) -> None:
    found = gather_placement({"WIRESPEED_AWS_METADATA": address}, tmp_path)
    assert "WIRESPEED_AWS_METADATA is not an address" in found.reason
    assert "pw" not in found.reason


# What is peculiar to one of them.


def test_aws_tells_all(ask: Any, fakes: ModuleType) -> None:
    values = fakes.aws_node(group_name="train", partition_number="3", host_id="h-0ab")
    assert ask("aws", fakes.aws(values)) == Placement(
        source="aws",
        zone="us-east-1a",
        zone_id="use1-az4",
        region="us-east-1",
        placement_group="train",
        rack="partition 3",
        physical_host="h-0ab",
        instance_type="p5.48xlarge",
    )


@pytest.mark.parametrize("status", [401, 403])
def test_aws_gives_no_token(status: int, ask: Any, fakes: ModuleType) -> None:
    found = ask("aws", fakes.aws(fakes.aws_node(), token=(status, {}, "")))
    assert found.reason.startswith(f"aws: IMDSv2 token: refused with status {status}")
    assert judged(found, found).status == "not_checked"


def test_aws_refuses_the_token(ask: Any, fakes: ModuleType) -> None:
    found = ask("aws", fakes.aws(fakes.aws_node(), takes="another"))
    assert found.reason == "aws: availability-zone: the IMDSv2 token was refused (status 401)"
    assert judged(found, found).status == "not_checked"


def test_aws_token_that_is_a_page_is_sent_to_nobody(
    tmp_path: Path, serve: Any, fakes: ModuleType
) -> None:
    fake = serve(fakes.aws(fakes.aws_node(), token=(200, {}, "a\r\nHost: evil"), takes="a"))
    found = gather_placement({"WIRESPEED_AWS_METADATA": fake.url}, tmp_path)
    assert fake.paths() == ["/latest/api/token"]
    assert not found.zone


def test_aws_is_not_asked_where_it_is_disabled(
    tmp_path: Path, serve: Any, fakes: ModuleType
) -> None:
    fake = serve(fakes.aws(fakes.aws_node()))
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.url}
    assert gather_placement(environ, tmp_path).zone == "us-east-1a"
    count = len(fake.asked)
    environ["AWS_EC2_METADATA_DISABLED"] = "true"
    assert gather_placement(environ, tmp_path).zone == ""
    assert len(fake.asked) == count


def test_azure_names_zones_with_their_region(ask: Any, fakes: ModuleType) -> None:
    assert ask("azure", fakes.azure(fakes.azure_node("2"))) == Placement(
        source="azure",
        zone="eastus-2",
        region="eastus",
        placement_group="f67c14ab-e92c-408c-ae2d-da15866ec79a",
        instance_type="Standard_ND96isr_H100_v5",
    )


@pytest.mark.parametrize("body", ["[]", '{"location": 3}', "{", "null", '{"location": "<b>"}'])
def test_azure_answers_something_else(body: str, ask: Any, fakes: ModuleType) -> None:
    found = ask("azure", fakes.azure(body))
    assert found == Placement(reason=found.reason)
    assert found.reason.startswith("azure: ")


def test_azure_in_no_zone_still_has_a_region(ask: Any, fakes: ModuleType) -> None:
    here = ask("azure", fakes.azure(fakes.azure_node("")))
    there = ask("azure", fakes.azure(fakes.azure_node("", location="westus")))
    assert judged(here, here).status == "not_checked"
    assert judged(here, there).status == "fail"


def test_gcp_tells_all(ask: Any, fakes: ModuleType) -> None:
    assert ask("gcp", fakes.gcp(fakes.gcp_node())) == Placement(
        source="gcp",
        zone="us-central1-a",
        region="us-central1",
        rack="/b1/s2",
        physical_host="/b1/s2/h3",
        instance_type="a3-megagpu-8g",
    )


def test_gcp_is_believed_with_its_header_only(ask: Any, fakes: ModuleType) -> None:
    found = ask("gcp", fakes.gcp(fakes.gcp_node(), flavor=False))
    assert not found.zone
    assert "does not come from Google's metadata server" in found.reason


def test_gcp_by_the_variable_of_its_own_tools(
    tmp_path: Path, serve: Any, fakes: ModuleType
) -> None:
    host = serve(fakes.gcp(fakes.gcp_node())).url.removeprefix("http://")
    assert gather_placement({"GCE_METADATA_HOST": host}, tmp_path).zone == "us-central1-a"
