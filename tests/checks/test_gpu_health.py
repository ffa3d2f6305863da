"""GPU-005 to GPU-008: a healthy node with one thing changed at a time."""

from dataclasses import replace
from typing import Any

import pytest

from found import only
from wirespeed.checks.gpu_faults import gpu_cuda_findings, gpu_fault_findings, meaning_of
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, World

ROWS = {"corrected": 2, "uncorrected": 0, "pending": 0, "failure": 0}
GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "remapped_rows": ROWS,
    "fabric": {"state": "completed", "status": 0, "unhealthy": []},
    "nvlinks": [True] * 18,
    "nvlink_errors": {},
}
ADDRESSES = [f"0000:{0x1A + place:02x}:00.0" for place in range(8)]
FACTS: dict[str, Any] = {
    "gpu.count": 8,
    "gpu.on_bus": ADDRESSES,
    "gpu.mute": [],
    "gpu.driverless": [],
    "gpu.xids": [],
    "kernel_log.first_s": 0.0,
    "uptime_s": 100_000.0,
    "machine.hides_devices": "",
}
SLOW = "degraded bandwidth"
LOST = {"call": "memory_bytes", "code": 15, "text": "GPU is lost"}
GROWTH = {"seconds": 0.3, "links": {"2": {"replay": 3}, "4": {"replay": 3, "crc flit": 9}}}
IDS = ["GPU-005", "GPU-006", "GPU-007", "GPU-008", "GPU-009", "GPU-010"]


def gpus(**changed: Any) -> tuple[dict[str, Any], ...]:
    """Eight GPUs of which the sixth is changed; None takes a key away."""
    found = []
    for index, pci in enumerate(ADDRESSES):
        gpu = {
            "index": index,
            "pci": pci,
            "uuid": f"GPU-{index}",
            **GPU,
            **(changed if index == 5 else {}),
        }
        found.append({name: value for name, value in gpu.items() if value is not None})
    return tuple(found)


def node(host: str = "a", **changes: Any) -> NodeFacts:
    facts = {**FACTS, **changes.pop("facts", {})}
    known = {name: value for name, value in facts.items() if value is not None}
    return replace(
        NodeFacts(host=host, ranks=(0,), facts=from_json(Facts, known), gpus=gpus()), **changes
    )


def judged(*nodes: NodeFacts) -> list[Finding]:
    return gpu_fault_findings(
        World(size=len(nodes), nodes=nodes, backend="nccl", launcher="torchrun")
    )


def xid(code: int, text: str = "", **changes: Any) -> dict[str, Any]:
    """An error of GPU5, ten minutes ago."""
    said = {"kind": "Xid", "pci": ADDRESSES[5][:-2], "code": code, "count": 1, "text": text}
    return {**said, "first_s": 99_400.0, "last_s": 99_400.0, **changes}


def test_healthy_gpus_pass_each_check_once() -> None:
    found = judged(node("a"), node("b"))
    assert [(one.id, one.status) for one in found] == [(id, "pass") for id in IDS]


@pytest.mark.parametrize(
    ("changes", "id", "status", "saw"),
    [
        (
            {"gpus": gpus(remapped_rows={**ROWS, "failure": 1, "uncorrected": 9})},
            "GPU-005",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): a memory row could not be remapped",
        ),
        (
            {"gpus": gpus(remapped_rows={**ROWS, "pending": 1})},
            "GPU-005",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): a memory row waits to be remapped, reset the GPU",
        ),
        (
            {"gpus": gpus(remapped_rows={**ROWS, "uncorrected": 1})},
            "GPU-005",
            "warn",
            "GPU5 (0000:1f:00.0, GPU-5): 1 memory row(s) remapped after uncorrected errors",
        ),
        (
            {"gpus": gpus(remapped_rows=None, pages_pending=True)},
            "GPU-005",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): memory pages wait to be retired, reset the GPU",
        ),
        (
            {"facts": {"gpu.xids": [xid(79, "GPU has fallen off the bus.", count=3)]}},
            "GPU-006",
            "fail",
            "GPU5 (0000:1f:00): Xid 79, GPU has fallen off the bus, 3 times, last 10 min 0 s ago: "
            "GPU has fallen off the bus.",
        ),
        (
            {"gpus": gpus(fabric={"state": "in progress", "status": 0, "unhealthy": []})},
            "GPU-007",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): registration with the NVLink fabric in progress",
        ),
        (
            {"gpus": gpus(fabric={"state": "completed", "status": 999, "unhealthy": []})},
            "GPU-007",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): NVLink fabric failed with NVML status 999",
        ),
        (
            {"gpus": gpus(fabric={"state": "completed", "status": 0, "unhealthy": [SLOW]})},
            "GPU-007",
            "warn",
            "GPU5 (0000:1f:00.0, GPU-5): NVLink fabric: degraded bandwidth",
        ),
        (
            {"gpus": gpus(fabric={"state": "completed", "status": 0, "unhealthy": ["no way"]})},
            "GPU-007",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): NVLink fabric: no way",
        ),
        (
            {"gpus": gpus(nvlinks=[link not in (3, 7) for link in range(18)])},
            "GPU-007",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): 16 of 18 NVLinks active (inactive: 3, 7)",
        ),
        (
            {"facts": {"gpu.mute": ADDRESSES[5:6]}},
            "GPU-008",
            "fail",
            "GPU at 0000:1f:00.0 has fallen off the bus (reads as ones only)",
        ),
        (
            {"gpus": gpus(errors=[LOST])},
            "GPU-009",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): NVML answers 'GPU is lost' (error 15, asked for memory_bytes)",
        ),
        (
            {"gpus": gpus(nvlink_growth=GROWTH)},
            "GPU-010",
            "fail",
            "GPU5 (0000:1f:00.0, GPU-5): errors on NVLink 4: replay +3, crc flit +9; 1 other link(s), "
            "in 0.3 s",
        ),
        (
            {"facts": {"gpu.count": 7, "gpu.driverless": ADDRESSES[5:6]}},
            "GPU-008",
            "fail",
            "GPU at 0000:1f:00.0 has no driver",
        ),
        (
            {"facts": {"gpu.count": 7}},
            "GPU-008",
            "fail",
            "NVML shows 7 of 8 GPUs on the bus",
        ),
        (
            {"facts": {"gpu.count": 7}, "gpus": gpus()[:7]},
            "GPU-008",
            "fail",
            "NVML shows 7 of 8 GPUs on the bus (not 0000:21:00.0)",
        ),
    ],
)
def test_one_fault_is_one_finding_about_its_node(
    changes: dict[str, Any], id: str, status: str, saw: str
) -> None:
    findings = judged(node("a"), node("b", **changes))
    finding = only(findings, id)
    assert (finding.status, finding.subject.name, finding.saw) == (status, "b", saw)
    assert all((finding.expected, finding.because, finding.costs, finding.fix, finding.next))
    assert [one.status for one in findings if one is not finding] == ["pass"] * 5


def test_no_gpu_is_not_checked_with_the_reason() -> None:
    bare = NodeFacts(host="a", ranks=(0,), facts=from_json(Facts, {"gpu.on_bus": []}))
    assert {(one.status, one.because) for one in judged(bare)} == {("not_applicable", "no GPU")}


# GPU-005.


def test_a_gpu_without_ecc_does_not_tell_about_repairs() -> None:
    silent = tuple({"index": i, "pci": pci} for i, pci in enumerate(ADDRESSES))
    why = {"gpu.0.remapped_rows": "NVML: Not Supported"}
    finding = only(judged(node(gpus=silent, unknown=why)), "GPU-005")
    assert (finding.status, finding.because) == ("not_checked", "NVML: Not Supported")


# GPU-006.


def test_what_programs_cause_is_told_and_does_not_count() -> None:
    finding = only(judged(node(facts={"gpu.xids": [xid(13), xid(31), xid(63)]})), "GPU-006")
    assert finding.status == "pass"
    assert finding.saw == "a: Xid 13, 31, 63, nothing to do at the GPU"


def test_the_gravest_leads_and_brings_its_fix() -> None:
    errors = [xid(92), xid(13), xid(48)]
    finding = only(judged(node(facts={"gpu.xids": errors})), "GPU-006")
    assert finding.status == "fail"
    assert "Xid 48" in finding.title
    assert len(finding.evidence) == 2
    assert finding.because.startswith("double-bit ECC error")
    assert finding.fix.startswith("drain the node")


def test_what_is_days_ago_may_be_repaired() -> None:
    facts = {"gpu.xids": [xid(79, last_s=10.0)], "uptime_s": 5 * 86400.0}
    finding = only(judged(node(facts=facts)), "GPU-006")
    assert finding.status == "warn"
    assert "5 days ago" in finding.saw


def test_a_log_that_lost_its_beginning_says_how_far_it_reaches() -> None:
    finding = only(judged(node(facts={"kernel_log.first_s": 92_800.0})), "GPU-006")
    assert finding.saw == "a: in the kernel log, which covers 2 h"


def test_an_unreadable_log_is_not_checked() -> None:
    why = {"gpu.xids": "/dev/kmsg: Operation not permitted"}
    finding = only(judged(node(facts={"gpu.xids": None}, unknown=why)), "GPU-006")
    assert (finding.status, finding.because) == ("not_checked", why["gpu.xids"])


def test_an_error_of_a_device_that_is_gone_is_named_by_its_address() -> None:
    finding = only(judged(node(facts={"gpu.xids": [xid(79, pci="0000:ff:00")]})), "GPU-006")
    assert finding.saw.startswith("0000:ff:00: Xid 79")


@pytest.mark.parametrize(
    ("kind", "code", "text", "severity"),
    [
        ("Xid", 13, "Graphics SM Warp Exception", "ignore"),
        ("Xid", 79, "", "fail"),
        ("Xid", 94, "Contained", "warn"),
        ("Xid", 95, "Uncontained", "fail"),
        ("Xid", 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08", "fail"),
        ("Xid", 149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08", "warn"),
        ("Xid", 9999, "", "warn"),
        ("SXid", 20034, "Fatal, Link 30 LTSSM Fault Up", "fail"),
        ("SXid", 12028, "Non-fatal, Link 32 egress non-posted PRIV error", "warn"),
    ],
)
def test_numbers(kind: str, code: int, text: str, severity: str) -> None:
    means = meaning_of(kind, code, text)
    assert means.severity == severity
    assert means.what
    assert means.fix or severity == "ignore"


# GPU-007.


def test_gpus_without_nvlink_are_not_checked() -> None:
    plain = tuple({"index": i, "pci": pci, "name": "NVIDIA L4"} for i, pci in enumerate(ADDRESSES))
    why = {"gpu.0.nvlinks": "NVML: Not Supported"}
    finding = only(judged(node(gpus=plain, unknown=why)), "GPU-007")
    assert (finding.status, finding.because) == ("not_checked", "NVML: Not Supported")
    none = {"nvlinks": [False] * 12, "fabric": {"state": "not supported"}}
    bridged = tuple({**gpu, **none} for gpu in plain)
    assert "no GPU with an active NVLink" in only(judged(node(gpus=bridged)), "GPU-007").because


def test_a_node_whose_links_are_all_down_is_held_to_the_others() -> None:
    down = tuple({**gpu, "nvlinks": [False] * 18} for gpu in gpus())
    finding = only(judged(node("a"), node("b", gpus=down)), "GPU-007")
    assert (finding.status, finding.subject.name, len(finding.evidence)) == ("fail", "b", 8)


# GPU-008.


def test_gpus_that_are_withheld_are_no_fault() -> None:
    facts = {"gpu.count": 4, "machine.hides_devices": "Slurm"}
    finding = only(judged(node(facts=facts, gpus=gpus()[:4])), "GPU-008")
    assert finding.status == "pass"
    assert finding.saw == "a: 4 of 8 GPUs on the bus are given to us by Slurm"


def test_gpus_on_the_bus_without_nvml_are_not_checked() -> None:
    facts = {"gpu.count": None, "gpu.driverless": ADDRESSES}
    bare = node(facts=facts, gpus=(), unknown={"gpus": "NVML: Driver Not Loaded"})
    found = judged(bare)
    assert only(found, "GPU-008").because == "NVML: Driver Not Loaded"
    assert only(found, "GPU-005").because == "NVML: Driver Not Loaded"


# GPU-009.


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ({"call": "nvmlInit", "code": 18, "text": "Driver/library version mismatch"}, "updated"),
        ({"call": "nvml", "code": 10, "text": "no answer within 60 s"}, "NVRM lines in dmesg"),
    ],
)
def test_a_library_that_fails_is_the_nodes_fault(error: dict[str, Any], fix: str) -> None:
    """Also where there is no GPU on the bus that sysfs shows."""
    facts: dict[str, Any] = {"gpu.nvml_failed": error, "gpu.count": None, "gpu.on_bus": []}
    one = node(gpus=(), facts=facts, unknown={"gpus": f"NVML: {error['text']}"})
    finding = only(judged(one), "GPU-009")
    assert (finding.status, finding.saw) == (
        "fail",
        f"NVML failed: {error['text']} ({error['call']})",
    )
    assert fix in finding.fix


def test_gpus_of_others_are_not_checked() -> None:
    one = node(gpus=gpus()[:7], unknown={"gpu.7": "NVML: Insufficient Permissions"})
    finding = only(judged(one), "GPU-009")
    assert (finding.status, finding.because) == ("not_checked", "NVML: Insufficient Permissions")


# GPU-013.

SEEN = {"gpu.visible": [f"GPU-{place}" for place in range(5)]}


def under_cuda(**changes: Any) -> Finding:
    """The finding about a node whose CUDA shows GPU0 to GPU4."""
    shown = tuple({**gpu, "visible": gpu["index"] < 5, **changes.pop("gpu", {})} for gpu in gpus())
    one = node(gpus=shown, facts=changes.pop("facts", SEEN), **changes)
    world = World(size=1, nodes=(one,), backend="nccl", launcher="torchrun")
    return only(gpu_cuda_findings(world), "GPU-013")


def test_gpus_that_cuda_does_not_show_fail_unless_a_variable_hides_them() -> None:
    finding = under_cuda()
    assert (finding.status, len(finding.evidence)) == ("fail", 3)
    assert finding.evidence[0] == "GPU5 (0000:1f:00.0, GPU-5): CUDA does not show it"
    hidden = under_cuda(environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"})
    assert (hidden.status, hidden.saw) == (
        "pass",
        "a: GPU5, GPU6, GPU7 outside of CUDA_VISIBLE_DEVICES",
    )


def test_a_variable_of_each_rank_hides_no_gpu_of_the_job() -> None:
    finding = under_cuda(environment={"CUDA_VISIBLE_DEVICES": "0"}, ranks=tuple(range(8)))
    assert (finding.status, finding.saw) == ("pass", "")


def test_cuda_that_does_not_start() -> None:
    failed = {"call": "cuInit", "code": 802, "text": "error 802"}
    finding = under_cuda(facts={"gpu.cuda_failed": failed})
    assert (finding.status, finding.saw) == (
        "fail",
        "CUDA does not start: cuInit gives error 802",
    )
    assert "nvidia-fabricmanager" in finding.fix


def test_what_cuda_does_not_tell_is_not_checked() -> None:
    assert under_cuda(gpu={"mig": True}).status == "not_checked"
    blind = under_cuda(
        facts={},
        unknown={"gpu.visible": "no libcuda"},
        environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"},
    )
    assert blind.because == "no libcuda; GPU5, GPU6, GPU7 outside of CUDA_VISIBLE_DEVICES"


def test_a_fault_says_whose_gpu_it_is() -> None:
    """By UUID: the rank that computes on it, or that nobody may."""
    hurt = {"errors": [LOST], "visible": True, "ranks": [3, 4]}
    finding = only(judged(node(gpus=gpus(**hurt))), "GPU-009")
    assert "GPU5 (0000:1f:00.0, GPU-5, rank 3, rank 4): NVML" in finding.saw
    shown = [{**gpu, "visible": gpu["index"] < 5} for gpu in gpus(errors=[LOST])]
    hidden = node(gpus=tuple(shown), environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"})
    finding = only(judged(hidden), "GPU-009")
    assert "(0000:1f:00.0, GPU-5, outside CUDA_VISIBLE_DEVICES): NVML" in finding.saw
