"""How a job that went well says that it ended. `wirespeed.diagnose.endings` judges them."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DONE = (
    r"^(?:.{0,120}\binfo\b[\]\s:|-]*(?:[\w.]{1,60}\s?[:|-]+\s?)?)?"
    r"\W{0,4}(?:pre-?|fine-?)?(?:training|tuning)(?: job| run)?(?: is| has| was)? "
    r"(?:complete|completed|finished|done|ended)(?: successfully)?"
    r"(?: (?:in|after) [\d.,: hmsecinutorday]{1,40}| at step \d+)?\s?"
    r"(?:[.!,;:)=]+.{0,120}|saved? .{0,80})?$"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="GOOD-001",
        category="good-end",
        role="fact",
        ends=True,
        last=True,
        anchors=("Out of bounds values",),
        pattern=r"out of bounds values\s*:\s*0 OK",
        sentence="nccl-tests ended with 0 wrong values",
        positive=("# Out of bounds values : 0 OK", " Out of bounds values : 0 OK"),
        negative=("# Out of bounds values : 12 FAILED",),
    ),
    Rule(
        id="GOOD-002",
        category="good-end",
        role="fact",
        ends=True,
        last=True,
        anchors=("worker group successfully finished", "Local worker group finished"),
        pattern=r"worker group successfully finished|local worker group finished \((?:WorkerState\.)?"
        r"SUCCEEDED\)",
        sentence="torchrun's workers ended with exit code 0",
        positive=(
            "[default] worker group successfully finished. Waiting 300 seconds for other agents to "
            "finish.",
            "Local worker group finished (WorkerState.SUCCEEDED). Waiting 300 seconds for other agents",
        ),
        negative=("Local worker group finished (WorkerState.FAILED). Waiting 300 seconds",),
    ),
    Rule(
        id="GOOD-003",
        category="good-end",
        role="fact",
        last=True,
        anchors=("ended with 0, after", "exit 0   run "),
        pattern=r"(?P<good>\d+) of (?P=good) ranks .{0,60}ended with 0, after .{0,30}; exit code 0;"
        r"|^READY\s.{0,200}\bexit 0\s+run \S+",
        sentence="wirespeed ended with exit code 0",
        positive=(
            "2 of 2 ranks on 1 node ended with 0, after 3.1 s; exit code 0; run 20260101-1",
            "READY   12 passed   3.2 s   exit 0   run 20260101-101010-ab",
        ),
        negative=(
            "1 of 2 ranks on 1 node ended with 0, after 3.1 s; exit code 1; run 20260101-1",
            "UNKNOWN   1 not checked   exit 3   run 20260101-101010-ab",
        ),
    ),
    Rule(
        id="GOOD-004",
        category="good-end",
        role="fact",
        last=True,
        anchors=("is successfully completed", "Job completed", "jobset completed"),
        pattern=r"\b\w+job\s+\S+ is successfully completed|\bCompleted\s.{0,80}\bjob completed\b"
        r"|jobset completed successfully",
        sentence="Kubernetes says that the job completed",
        positive=(
            "Normal  PyTorchJobSucceeded  31s  pytorchjob-controller  PyTorchJob mnist is successfully "
            "completed.",
            "Normal  Completed         31s   job-controller  Job completed",
        ),
        negative=("Normal  Created  9m  job-controller  Created pod: a",),
    ),
    Rule(
        id="GOOD-005",
        category="good-end",
        role="fact",
        ends=True,
        last=True,
        anchors=(
            "training complete",
            "training is complete",
            "training has complete",
            "training finished",
            "training is done",
            "training done",
            "training job ",
            "training run ",
            "tuning complete",
            "tuning finished",
            "'train_runtime'",
            "`Trainer.fit` stopped:",
        ),
        pattern=_DONE
        + r"|^\[after training is done\]|^\{.{0,2000}'train_runtime': '?[\d.]+"
        + r"|`Trainer\.fit` stopped: `max_(?:steps|epochs|time)=\S{1,40}` reached",
        unless=r"(?<!do )\bnot\b|\bnever\b|un(?:finished|successful)|\bfalse\b|\bbut\b|fail|error"
        r"|except",
        sentence="the training says that it ended",
        positive=(
            "Training completed. Do not forget to share your model on huggingface.co/models =)",
            "{'train_runtime': 123.4, 'train_samples_per_second': 9.1, 'epoch': 1.0}",
            "`Trainer.fit` stopped: `max_steps=100` reached.",
            "[after training is done] datetime: 2024-01-01 10:00:00",
            "Training completed",
            "training finished, checkpoint saved to out/last.ckpt",
            "Training complete in 3h",
            "2024-01-01 10:00:00,123 INFO trainer: Training completed in 3h 2m",
            "- root - INFO - Training completed",
        ),
        negative=(
            "Training done for epoch 3",
            "Training finished, but the last checkpoint was not written",
            "Training completed: 3 ranks failed",
            "Training complete message was not received",
            "training finished: False, not all ranks answered",
            "waiting until training is complete",
        ),
    ),
)
