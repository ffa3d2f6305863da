"""From what `train` tells to findings: does each strategy train as one process does, and troubles."""

from collections.abc import Mapping, Sequence
from typing import Any

from wirespeed.records import Finding, Subject

__all__ = ["EXPLANATIONS", "proof_findings", "trouble_finding"]

EXPLANATIONS: dict[str, str] = {
    "TRAIN-001": "Every strategy trains as one process does. Each strategy trains the model for some "
    "steps on shares of a batch, and one process alone trains it on the whole batch; afterwards every "
    "parameter must agree within the tolerance of the arithmetic. A difference means gradients that "
    "are not averaged over all ranks, averaged twice, or parameters that did not start alike: such "
    "training is quick and wrong. Its time is shown, and worth nothing.",
    "TRAIN-002": "The loss stays a finite number. The loss became infinite or no number at all, so the "
    "run ended there; the step and the first rank that saw it are named. A learning rate that is too "
    "high, fp16 without scaling, or wrong data from a broken GPU do that: try a smaller --lr or "
    "--dtype float32, then `wirespeed check --only correctness`.",
    "TRAIN-003": "The model fits in memory. A strategy was foretold to need more memory than a rank "
    "has, or the allocator refused it memory; the ranks are named. What was measured before is kept. "
    "Where all ranks ran out at the same place the strategy is left out, the largest batch that fits is "
    "looked for (TRAIN-005), and the others go on. Where one rank ran out while others wait for it in a "
    "collective the run ends there, with exit code 3. Take a smaller --batch, more --micro-batches, "
    "--dtype bf16, or a strategy that shards more (fsdp2).",
    "TRAIN-004": "A strategy can be run here. It was left out, with the reason; the others were "
    "measured.",
    "TRAIN-005": "The batch fits in memory. A strategy was left out because its batch does not fit; "
    "this is the most samples of one micro batch of a rank with which a step stays within the memory "
    "that it may use, found by doubling and bisection over real steps. On CPUs a batch that is "
    "foretold not to fit is not tried. `wirespeed train --fit` tells it of every strategy.",
    "TRAIN-006": "The best bucket size. A collective of x bytes takes a latency and x over a "
    "bandwidth, both fitted on all_reduce as measured in this run; with the backward pass that gives "
    "the bucket size with the least step time (docs/training.md), beside the best of those measured. "
    "Where the two lie apart, the flat bottom of the curve or noise is the reason more often than not.",
    "TRAIN-007": "Checkpoints of `train --for` are written and read. One could not be written (a full "
    "disk, a folder without leave to write), so training went on with the older one; or one was not "
    "taken: it was never completed, its size or checksum is not what was written, or it is of another "
    "job (model, strategy, number of ranks, batch, precision, optimizer or seed differ), so the next "
    "older one was taken, else training began at step 0. Nothing of another job is ever removed.",
    "TRAIN-008": "Communication time of every strategy is measured. Further steps are watched under the "
    "profiler, for half of --max-time over all strategies, and for three times that while one has fewer "
    "than ten steps and an interval wider than ±25 %. Where that was over before, they are named; with "
    "no step at all their communication time and timeline are left out. Step times and verdicts stand. "
    "A longer --max-time, fewer strategies, or a machine that does less else.",
    "TRAIN-009": "The resident size is told of each strategy by itself. On CPUs it is the kernel's "
    "high-water mark (VmHWM), set back before each strategy's step through /proc/self/clear_refs. Where "
    "the kernel refuses that (gVisor, a hardened container), the figure is the highest of the process "
    "since its start, so that it says nothing of a strategy. The peak of tensors is exact all the same.",
    "TRAIN-010": "Records of `train --for` are written as they come. The disk under the run folder was "
    "full; training went on, and the records waited in memory (at most 16 MiB, then the oldest are "
    "given up). Make room there, or set WIRESPEED_HOME to a larger disk.",
    "TRAIN-011": "The bucket model's advice holds. Where the size that TRAIN-006 advises is another one "
    "than the quickest that was measured, both take turns for some rounds; this is the ratio of their "
    "steps with its 95 % interval. The model knows what sending costs alone; where cores compute and "
    "send at once, or each bucket wakes a thread, it promises too much. Use the size that was measured.",
}


def proof_findings(proofs: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """One failing finding a strategy that trains differently; one passing for the others."""
    wrong = [proof for proof in proofs if not proof["equal"]]
    right = [proof for proof in proofs if proof["equal"]]
    found = [_differs(proof) for proof in wrong]
    if right:
        names = ", ".join(dict.fromkeys(proof["label"] for proof in right))
        found.append(
            Finding(
                id="TRAIN-001",
                status="pass",
                title=f"{names}: train as one process on the whole batch does",
                saw=f"all parameters within {right[0]['tolerance']} after {right[0]['steps']} steps",
            )
        )
    return found


def _differs(proof: Mapping[str, Any]) -> Finding:
    names = proof["names"]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Finding(
        id="TRAIN-001",
        status="fail",
        title=f"{proof['label']} does not train as one process on the whole batch does",
        saw=f"{', '.join(names[:3])}{more} differ by up to {proof['difference']:.2g}",
        expected=f"within {proof['tolerance']} after {proof['steps']} steps",
        because="gradients that are not the mean over all ranks, or parameters that began unlike",
        costs="the job is quick and trains something else",
        fix="another strategy until this is understood",
        next="wirespeed check --only correctness",
    )


def trouble_finding(data: Mapping[str, Any]) -> Finding:
    """A strategy that could not be measured to its end, as a rank told it."""
    rank = data.get("rank", -1)
    return Finding(
        id=data["id"],
        status=data["status"],
        title=data["title"],
        subject=Subject("rank", f"rank {rank}") if rank >= 0 else Subject("job", "job"),
        saw=data.get("saw", ""),
        expected=data.get("expected", ""),
        because=data.get("because", ""),
        fix=data.get("fix", ""),
        next=data.get("next", ""),
    )
