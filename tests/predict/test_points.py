"""Which measurements are fitted together."""

import math
from dataclasses import replace

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.derived_records import WorldSize
from wirespeed.model.node_facts import Facts
from wirespeed.predict.points import collect, cores_of


def test_runs_of_several_worlds_become_one_series(made):
    series, sources, notes = collect([made.bench(2), made.bench(3), made.bench(4, 2)])
    found = series["all_reduce"]
    assert found.worlds == (WorldSize(2, 1), WorldSize(3, 1), WorldSize(4, 2))
    assert len(found.points) == 3 * len(made.sizes)
    assert found.how == "gloo · torch · float32 · sum · each"
    assert [one.id for one in sources] == ["00002001", "00003001", "00004002"]
    assert notes == ()


def test_the_way_of_measuring_with_the_most_worlds_wins_and_the_rest_is_told(made):
    runs = [made.bench(2), made.bench(3), made.bench(4, dtype="bfloat16")]
    series, _, notes = collect(runs)
    assert series["all_reduce"].worlds == (WorldSize(2, 1), WorldSize(3, 1))
    assert len(notes) == 1
    assert "8 measurements left out" in notes[0]
    assert "bfloat16" in notes[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"wrong": 3}, "the data were wrong"),
        ({"groups": "pairs"}, "side by side"),
        ({"ranks": 1}, "fewer than 2 ranks"),
        ({"ranks": 10**9}, "ranks beyond belief"),
        ({"size_bytes": 0}, "no bytes"),
        ({"size_bytes": 2**60}, "bytes beyond belief"),
    ],
)
def test_what_is_no_evidence_is_left_out(made, change, why):
    run = made.bench(2)
    bad = replace(run.measurements[0], **change)
    series, _, notes = collect([replace(run, measurements=(bad, *run.measurements[1:]))])
    assert len(series["all_reduce"].points) == len(made.sizes) - 1
    assert why in notes[0]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_impossible_times_are_left_out(made, seconds):
    run = made.bench(2)
    bad = replace(run.measurements[0], time=made.measurement(4, 2, seconds).time)
    series, _, notes = collect([replace(run, measurements=(bad, *run.measurements[1:]))])
    assert len(series["all_reduce"].points) == len(made.sizes) - 1
    assert "times beyond belief" in notes[0]


def test_a_run_without_nodes_needs_to_be_told(made):
    run = made.bench(4, 2)
    run = replace(run, world=replace(run.world, nodes=()))
    series, _, notes = collect([run])
    assert series == {}
    assert "--ranks-per-node" in notes[0]
    series, _, _ = collect([run], ranks_per_node=2)
    assert series["all_reduce"].worlds == (WorldSize(4, 2),)


def test_sizes_that_are_nearly_alike_are_one_class(made):
    runs = [made.bench(2, sizes=(1024, 4096)), made.bench(3, sizes=(1020, 4092))]
    series, _, _ = collect(runs)
    assert series["all_reduce"].classes == ((1020, 1024), (4092, 4096))


def test_no_runs_no_series():
    assert collect([]) == ({}, (), ())


def test_many_runs_stay_affordable(made):
    runs = [made.bench(n, seed=seed, noise=0.1) for n in (2, 3, 4) for seed in range(20)]
    series, _, notes = collect(runs)
    assert len(series["all_reduce"].points) == 3 * len(made.sizes)
    assert sum(p.iterations for p in series["all_reduce"].points) == 20 * 60 * len(made.sizes)
    assert "medians over runs" in notes[0]
    sizes = tuple(range(1000, 9000, 10))
    series, _, _ = collect([made.bench(n, sizes=sizes) for n in (2, 3, 4)])
    assert 100 < len(series["all_reduce"].points) <= 300


def with_facts(run, facts, backend="gloo", gpus=()):
    nodes = tuple(
        replace(node, facts=from_json(Facts, facts), gpus=gpus) for node in run.world.nodes
    )
    return replace(run, world=replace(run.world, nodes=nodes, backend=backend))


def test_cores_that_ranks_share_are_those_of_cpu_ranks(made):
    run = made.bench(1, 4)
    assert cores_of(run) == 0
    assert cores_of(with_facts(run, {"cpu.shared": 2, "cpu.logical": 64})) == 2
    assert cores_of(with_facts(run, {"cpu.logical": 64})) == 64
    assert cores_of(with_facts(run, {"cpu.shared": "<script>"})) == 0
    assert cores_of(with_facts(run, {"cpu.shared": 2}, backend="nccl")) == 0
    assert cores_of(with_facts(run, {"cpu.shared": 2}, gpus=({"index": 0},))) == 0
    two = [with_facts(run, {"cpu.shared": 8}), with_facts(made.bench(1, 2), {"cpu.shared": 2})]
    assert collect(two)[0]["all_reduce"].cores == 2
