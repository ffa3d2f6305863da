"""10,000 ranks' records become one measurement and a verdict: seconds and memory.

Run: python benchmarks/aggregate.py
"""

import resource
import sys
import time

RANKS, SAMPLES, MEASUREMENTS = 10_000, 64, 24


def main() -> int:
    import torch

    from wirespeed.checks.judge import judge, verdict_of
    from wirespeed.ranks.measure import gathered
    from wirespeed.records import Measurement, NodeFacts, World
    from wirespeed.records_json import measurement_from_json, measurement_to_json
    from wirespeed.reference import NoReference
    from wirespeed.statistics import time_stats

    generator = torch.Generator().manual_seed(1)
    rows = torch.rand(RANKS, SAMPLES, generator=generator, dtype=torch.float64) * 1e-3 + 1e-3
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    samples = gathered()
    samples.add(rows, 1.0)
    stats = time_stats(samples.slowest)
    nodes = tuple(
        NodeFacts(host=f"node-{i}", ranks=tuple(range(8 * i, 8 * i + 8)), facts={"kernel": "6.1"})
        for i in range(RANKS // 8)
    )
    world = World(size=RANKS, nodes=nodes, backend="nccl", launcher="slurm")
    measurements = [
        measurement_from_json(
            measurement_to_json(
                Measurement(
                    op="all_reduce",
                    engine="torch",
                    dtype="float32",
                    redop="sum",
                    root=-1,
                    in_place=False,
                    size_bytes=1 << (10 + i),
                    count=1 << (8 + i),
                    ranks=RANKS,
                    iterations=SAMPLES,
                    time=stats,
                    algbw=1e9,
                    busbw=2e9,
                )
            )
        )
        for i in range(MEASUREMENTS)
    ]
    findings = judge("check", world, measurements, (), NoReference())
    verdict_of(findings, len(measurements))
    took = time.perf_counter() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024
    sys.stdout.write("| what | measured | bound |\n|---|---|---|\n")
    sys.stdout.write(f"| 10,000 ranks to a verdict | {took:.2f} s | 2 s |\n")
    sys.stdout.write(f"| memory that this took | {grown:.0f} MB | 500 MB |\n")
    return int(took > 2 or grown > 500)


if __name__ == "__main__":
    sys.exit(main())
