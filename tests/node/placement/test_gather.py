"""Which sources are asked, whose word counts, and how the others fill it up."""

import time
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wirespeed.model.codec import to_json
from wirespeed.node.placement import FACTS, Placement
from wirespeed.node.placement.gather import gather_placement, note_placement
from wirespeed.node.placement.sources import cloud_of
from wirespeed.node.reading import Notes


def firmware(root: Path, **files: str) -> Path:
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "cloud"),
    [
        ({"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"}, "aws"),
        ({"sys_vendor": "Xen", "product_version": "4.11.amazon"}, "aws"),
        ({"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, ""),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gcp"),
        ({"sys_vendor": "QEMU", "product_name": "Standard PC"}, ""),
        ({}, ""),
    ],
)
def test_the_cloud_by_its_firmware(files: dict[str, str], cloud: str, tmp_path: Path) -> None:
    assert cloud_of(firmware(tmp_path, **files)) == cloud


def test_only_the_cloud_of_the_firmware_is_asked(
    tmp_path: Path, serve: Any, fakes: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = serve(fakes.gcp(fakes.gcp_node()))
    monkeypatch.setattr("wirespeed.node.placement.sources.LINK_LOCAL", fake.url)
    assert gather_placement({}, tmp_path).source == ""
    assert fake.asked == []
    root = firmware(tmp_path, sys_vendor="Google")
    assert gather_placement({}, root).source == "gcp"
    assert {path.split("/")[1] for path in fake.paths()} == {"computeMetadata"}


def test_nobody_to_ask_is_told_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    found = gather_placement({}, tmp_path)
    assert time.monotonic() - began < 0.9  # no source waits: all of them would take 1 s
    assert found == Placement(reason=found.reason)
    assert "WIRESPEED_ZONE" in found.reason


def test_silent_sources_are_waited_for_together(
    tmp_path: Path, serve: Any, fakes: ModuleType
) -> None:
    silent = serve(fakes.always(200, "late"), "silent").url
    names = [f"WIRESPEED_{cloud}_METADATA" for cloud in ("AWS", "AZURE", "GCP")]
    began = time.monotonic()
    found = gather_placement(dict.fromkeys(names, silent), tmp_path)
    assert time.monotonic() - began < 2.8  # one after the other would take 3 s
    assert [part.split(":")[0] for part in found.reason.split("; ")] == ["aws", "azure", "gcp"]


def test_a_silent_source_does_not_hide_another(
    tmp_path: Path, serve: Any, fakes: ModuleType
) -> None:
    environ = {
        "WIRESPEED_AWS_METADATA": serve(fakes.always(200, "late"), "silent").url,
        "WIRESPEED_GCP_METADATA": serve(fakes.gcp(fakes.gcp_node())).url,
    }
    found = gather_placement(environ, tmp_path)
    assert (found.source, found.zone, found.reason) == ("gcp", "us-central1-a", "")


def test_what_a_person_set_counts_first(tmp_path: Path, serve: Any, fakes: ModuleType) -> None:
    environ = {
        "WIRESPEED_ZONE": "hall 2",
        "WIRESPEED_AWS_METADATA": serve(fakes.aws(fakes.aws_node(group_name="train"))).url,
    }
    found = gather_placement(environ, tmp_path)
    assert (found.zone, found.zone_id, found.region) == ("hall 2", "", "")
    assert (found.source, found.placement_group) == ("environment, aws", "train")


def test_an_id_is_added_to_the_same_zone(tmp_path: Path, serve: Any, fakes: ModuleType) -> None:
    environ = {
        "WIRESPEED_ZONE": "us-east-1a",
        "WIRESPEED_AWS_METADATA": serve(fakes.aws(fakes.aws_node())).url,
    }
    assert gather_placement(environ, tmp_path).zone_id == "use1-az4"


@pytest.mark.parametrize("value", ["<b>", "a\nb", "-", " "])
def test_a_variable_that_is_no_name(value: str, tmp_path: Path) -> None:
    found = gather_placement({"WIRESPEED_ZONE": value}, tmp_path)
    assert not found.zone
    assert found.reason.startswith("environment: WIRESPEED_ZONE: ")


def test_a_rack_without_a_zone(tmp_path: Path) -> None:
    found = gather_placement({"WIRESPEED_RACK": "r7"}, tmp_path)
    assert (found.rack, found.zone) == ("r7", "")
    assert "WIRESPEED_ZONE is not set" in found.reason


def test_facts_of_a_node(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    note_placement(notes, {"WIRESPEED_ZONE": "hall-2"})
    assert to_json(notes.facts) == {"placement.source": "environment", "placement.zone": "hall-2"}
    assert notes.unknown == {}


def test_why_a_node_has_no_zone(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    note_placement(notes, {})
    assert to_json(notes.facts) == {}
    assert list(notes.unknown) == ["placement"]


def test_every_field_is_a_fact_or_the_reason() -> None:
    assert [field.name for field in fields(Placement)] == [*FACTS, "reason"]
