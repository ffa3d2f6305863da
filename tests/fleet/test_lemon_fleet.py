"""The simulated fleet is one that could be."""

from collections import Counter

from lemon_fleet import DAY_S, FleetSpec, SimulatedFleet
from wirespeed.fleet.job_ends import JobTable
from wirespeed.fleet.lemons import find_lemons

SPEC = FleetSpec(nodes=48, days=75, lemons=0.05)


def test_a_node_has_one_job_at_a_time_and_the_same_seed_gives_the_same_fleet() -> None:
    fleet = SimulatedFleet(FleetSpec(nodes=32, days=61), 3)
    until: dict[str, float] = {}
    for job in sorted(fleet.jobs, key=lambda one: one.start_s):
        assert job.end_s > job.start_s
        assert not job.culprit or (job.how == "node" and job.culprit in job.nodes)
        for node in job.nodes:
            assert until.get(node, 0.0) <= job.start_s
            until[node] = job.end_s
    again = SimulatedFleet(FleetSpec(nodes=32, days=61), 3)
    assert (again.jobs, again.lemons) == (fleet.jobs, fleet.lemons)
    assert SimulatedFleet(FleetSpec(nodes=32, days=61), 4).jobs != fleet.jobs


def test_lemons_fail_jobs_and_are_found() -> None:
    fleet = SimulatedFleet(SPEC, 1)
    worst = max(fleet.lemons, key=lambda one: one.a_day)
    bad = Counter(job.culprit for job in fleet.jobs if job.end_s > worst.since_s)
    del bad[""]
    assert bad.most_common(1)[0][0] in {one.node for one in fleet.lemons}
    found = find_lemons(JobTable.of(fleet.jobs), SPEC.days * DAY_S)
    accused = {one.node for one in found.suspects if one.accused}
    assert accused
    assert accused <= {one.node for one in fleet.lemons}
