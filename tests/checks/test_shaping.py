"""What overlapping brings, as a finding: of figures with a gain, of a sure loss, of none."""

from dataclasses import replace

from wirespeed.checks.shaping import shape_findings
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, World
from wirespeed.model.training_records import LoadFigures, Ratio


def figures(name: str, beside: str, gain: Ratio | None) -> LoadFigures:
    return LoadFigures(
        name=name,
        beside=beside,
        alone=0.01,
        together=0.02,
        ratio=Ratio(value=2.0, low=1.9, high=2.1),
        rounds=8,
        gain=gain,
    )


def node(ranks: int, cpus: int) -> NodeFacts:
    return NodeFacts(host="a", ranks=tuple(range(ranks)), facts=Facts(cpu_logical=cpus))


WORLD = World(size=2, nodes=(node(ranks=2, cpus=2),), backend="gloo", launcher="local")
GOOD = Ratio(value=1.8, low=1.7, high=1.9)
NOISY = Ratio(value=0.9, low=0.6, high=1.2)
LOSS = Ratio(value=0.7, low=0.6, high=0.8)


def test_each_comparison_is_told_once_by_its_first_figure() -> None:
    load = [
        *(figures("product", "data", GOOD), figures("data", "product", GOOD)),
        *(figures("data", "tensor", NOISY), figures("tensor", "data", NOISY)),
        figures("all_to_all_v", "even shares", None),
    ]
    (found,) = shape_findings(load, WORLD)
    assert (found.id, found.status) == ("SHAPE-001", "pass")
    assert found.title == "at once gets 0.90 to 1.80 times as much done as one after the other"
    assert found.evidence == (
        "product beside data: 1.80× (1.70 to 1.90)",
        "data beside tensor: 0.90× (0.60 to 1.20)",
    )


def test_a_sure_loss_warns_and_names_who() -> None:
    load = [figures("product", "data", GOOD), figures("data", "tensor", LOSS)]
    (found,) = shape_findings(load, WORLD)
    assert (found.status, found.saw) == ("warn", "data beside tensor: 0.70× (0.60 to 0.80)")
    assert "in 1 of 2 comparisons" in found.title
    (crowded,) = shape_findings(load, replace(WORLD, nodes=(node(ranks=8, cpus=2),)))
    assert (crowded.status, crowded.title[-11:]) == ("pass", "share cores")


def test_nothing_timed_is_not_checked() -> None:
    assert [one.status for one in shape_findings([], WORLD)] == ["not_checked"]
