"""Every preset that ships: valid, spelled right, explained, and true to its family."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirespeed.checks.settings import known_names, settings_told
from wirespeed.cli.cluster.files import presets as command
from wirespeed.clusters import presets
from wirespeed.clusters.presets import Preset, is_for, preset_named, preset_names
from wirespeed.errors import UsageError, WirespeedError

FAMILIES = """
a100-ib a100-ib-gdrcopy a100-ib-sharp aws-efa b200-ib b200-ib-sharp b300-ib b300-ib-sharp ethernet
gb200-nvl72 gb200-nvl72-racks gb300-nvl72 gb300-nvl72-racks gcp-tcpx gcp-tcpxo h100-ib h100-ib-sharp
openshift-sriov rdma spectrum-x tcp
"""
PLUGINS = re.compile(
    "NCCL_(FASTRAK|GPUDIRECTTCPX)_[A-Z_]+|NCCL_TUNER_CONFIG_PATH|NCCL_DYNAMIC_CHUNK_SIZE"
    "|NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE"
)
"""Variables of Google's plugins and of its NCCL."""
OTHERS = {
    "FI_EFA_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA", "FI_PROVIDER", "LD_LIBRARY_PATH",
    "NVIDIA_IMEX_CHANNELS", "OMPI_MCA_coll_hcoll_enable", "SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING",
    "UCX_NET_DEVICES", "UCX_TLS",
}  # fmt: skip


@pytest.fixture(params=preset_names())
def preset(request: pytest.FixtureRequest) -> Preset:
    return preset_named(request.param)


def environment(name: str) -> dict[str, str]:
    return {one.name: one.value for one in preset_named(name).environment}


def test_all_families_are_there() -> None:
    assert preset_names() == tuple(FAMILIES.split())


def test_all_is_explained(preset: Preset) -> None:
    sentences = [preset.summary, preset.why, *(one.why for one in preset.environment)]
    assert all(text.endswith(".") and len(text) > 15 for text in sentences)
    assert preset.source.startswith("https://")
    assert preset.environment


def test_variables_are_spelled_right_and_once(preset: Preset) -> None:
    names = [one.name for one in preset.environment]
    assert len(names) == len(set(names))
    strange = {
        name for name in names if name not in known_names() | OTHERS and not PLUGINS.fullmatch(name)
    }
    assert not strange
    assert not set(names) & set(settings_told().obsolete)


def test_values_are_of_their_kind(preset: Preset) -> None:
    for one in preset.environment:
        assert isinstance(one.value, str)
        assert one.value
        if one.name in settings_told().numbers:
            low, *most = settings_told().numbers[one.name]
            assert low <= int(one.value)
            assert all(int(one.value) <= high for high in most)
        if one.name in settings_told().choices:
            assert one.value in settings_told().choices[one.name]


def test_mode_and_variables_agree(preset: Preset) -> None:
    values = {one.name: one.value for one in preset.environment}
    if preset.mode == "tcp":
        assert values.get("NCCL_IB_DISABLE", "1") == "1"
        assert not {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX"} & set(values)
        assert not preset.resources
    else:
        assert values.get("NCCL_IB_DISABLE", "0") == "0"


def test_containers_beside_ours_fit_the_volumes(preset: Preset) -> None:
    volumes = {one.name for one in preset.volumes}
    assert len(volumes) == len(preset.volumes)
    for one in preset.sidecars:
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
        assert f"devices.gke.io/container.{one['name']}" in preset.annotations
        assert re.search(r":v[0-9.]+$", one["image"]), "a version, not latest"
        assert "privileged" not in one["securityContext"]
    for name, text in preset.annotations.items():
        if name.endswith("/interfaces"):
            named = {entry["interfaceName"] for entry in json.loads(text)}
            used = environment(preset.name)
            data = used.get("NCCL_FASTRAK_IFNAME") or used["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"]
            assert named == {"eth0", *data.split(",")}


@pytest.mark.parametrize("family", ["a100-ib", "h100-ib", "b200-ib", "b300-ib"])
def test_sharp_changes_only_what_sharp_needs(family: str) -> None:
    plain, sharp = environment(family), environment(f"{family}-sharp")
    changed = {name for name in plain | sharp if plain.get(name) != sharp.get(name)}
    assert changed <= {"NCCL_COLLNET_ENABLE", "NCCL_NET_PLUGIN", "NCCL_ALGO"}
    assert sharp["NCCL_COLLNET_ENABLE"] == "1"
    assert "NCCL_NET_PLUGIN" not in sharp
    assert plain["NCCL_NET_PLUGIN"] == "none"


def test_a_preset_is_for_its_own_products_only() -> None:
    assert is_for(preset_named("b200-ib"), "NVIDIA-B200")
    assert not is_for(preset_named("b200-ib"), "NVIDIA-GB200")
    assert is_for(preset_named("h100-ib"), "NVIDIA-H100-80GB-HBM3")
    assert not is_for(preset_named("rdma"), "NVIDIA-H100-80GB-HBM3")


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="h100-ib-sharp") as caught:
        preset_named("h100-ib-shrap")
    assert "spectrum-x" in caught.value.expected


@pytest.mark.parametrize("name", ["../presets", "tcp.yaml", "", "TCP"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(UsageError):
        preset_named(name)


def test_a_wrong_file_of_ours_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base.yaml").write_text("mode: tcp\nenvironment: []\n")
    (tmp_path / "typo.yaml").write_text("mode: tcp\nenvironmnt: []\n")
    (tmp_path / "gone.yaml").write_text("extends: base\nwithout: [NCCL_ALGO]\n")
    monkeypatch.setattr(presets, "_FOLDER", tmp_path)
    with pytest.raises(WirespeedError, match="environmnt"):
        presets._merged("typo")
    with pytest.raises(WirespeedError, match="NCCL_ALGO"):
        presets._merged("gone")


def test_the_command_lists_and_explains(preset: Preset) -> None:
    runner = CliRunner()
    assert f"{preset.name} " in runner.invoke(command, []).output
    told = runner.invoke(command, [preset.name]).output
    for one in preset.environment:
        assert f"{one.name}={one.value}" in told
    for part in (*preset.resources, *preset.annotations, preset.source):
        assert part in told


def test_the_command_gives_data(preset: Preset) -> None:
    yaml = pytest.importorskip("yaml")
    runner = CliRunner()
    told = json.loads(runner.invoke(command, [preset.name, "-o", "json"]).output)
    assert told == yaml.safe_load(runner.invoke(command, [preset.name, "-o", "yaml"]).output)
    assert told["environment"][0]["why"] == preset.environment[0].why
    assert told["resources"] == dict(preset.resources)
