"""What an API server says, damaged: valid JSON with parts lost, renamed, or of another type.

A deployed environment with pods that run, wait and have died is asked for by every verb that reads it;
each answer may be changed. A verb must end with 0, 1, 2 or 3, without a traceback, within seconds, and
print nothing that steers a terminal. A seed always makes the same answers and command.

python tests/programs/fuzz_kubectl.py [COUNT [FIRST]]
"""

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fuzz_runs import called, change, told

from wirespeed.clusters.kube import Answer, Kubectl

sys.path[:0] = [str(Path(__file__).parents[2])]
from tests.clusters.operations.conftest import Memory  # noqa: E402

FILE = "cluster: {name: mine}\ngpus: {per_node: 1, default_nodes: 3}\n"
DEPLOY = ("deploy", "mine.yaml", "-q", "--timeout", "1")
STATES: tuple[dict[str, Any], ...] = (
    {"running": {"startedAt": "2026-11-23T10:00:00Z"}},
    {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
    {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}},
    {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-23T10:00:00Z"}},
    {"terminated": {"exitCode": 1, "reason": "Error", "message": "it broke", "signal": 9}},
)
VERBS = (
    ("status", "mine.yaml"),
    ("status", "mine.yaml", "-o", "json"),
    ("logs", "mine.yaml"),
    ("gpus", "mine.yaml"),
    ("clean", "mine.yaml", "--yes"),
    ("discover", "-q"),
)


def status(state: dict[str, Any], number: int) -> dict[str, Any]:
    one = {"name": "main", "ready": "running" in state, "restartCount": number, "image": "x"}
    return {
        "phase": "Running" if number else "Pending",
        "podIP": f"10.0.0.{number}",
        "startTime": "2026-11-23T10:00:00Z",
        "reason": "",
        "conditions": [
            {"type": "Ready", "status": "True" if "running" in state else "False"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            | {"message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."},
        ],
        "containerStatuses": [one | {"state": state, "lastState": STATES[3]}],
        "initContainerStatuses": [one | {"name": "init", "state": state, "lastState": {}}],
    }


EVENT = {
    "metadata": {"name": "e", "creationTimestamp": "2026-11-23T10:00:00Z"},
    "type": "Warning", "reason": "FailedScheduling", "message": "0/3 nodes are available",
    "count": 3, "lastTimestamp": "2026-11-23T10:00:01Z",
    "involvedObject": {"kind": "Pod", "name": "mine-1", "uid": "mine-1"},
}  # fmt: skip


class Damaged(Memory):
    """A cluster with that environment, which tells some of its answers changed."""

    rng, share = random.Random(), 0.0

    def look(self, seed: int, first: dict[tuple[str, str], dict[str, Any]]) -> tuple[int, str]:
        """Ask a verb of pods that run, wait or have died: its exit code and what is wrong with it."""
        self.rng = random.Random(seed)
        self.objects = {key: json.loads(json.dumps(one)) for key, one in first.items()}
        pods = [one for (kind, _), one in self.objects.items() if kind == "Pod"]
        for number, pod in enumerate(pods):
            pod["status"] = status(self.rng.choice(STATES), number)
            pod["metadata"]["creationTimestamp"] = "2026-11-23T09:00:00Z"
        self.share = self.rng.choice((0.2, 0.5, 1.0))
        verb = self.rng.choice(VERBS) if self.rng.random() < 0.99 else DEPLOY
        return called(["cluster", *verb])

    def ask(self, words: tuple[str, ...], stdin: str) -> Answer:
        answer = super().ask(words, stdin)
        if self.rng.random() >= self.share or not answer.out.startswith("{"):
            return answer
        data = json.loads(answer.out)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            if data:
                change(data, self.rng)
        return replace(answer, out=json.dumps(data))

    def _version(self, *_: object) -> str:
        return json.dumps({"serverVersion": {"gitVersion": "v1.31.4", "major": "1"}})

    def _exec(self, *_: object) -> str:
        return json.dumps(
            [{"index": 0, "name": "NVIDIA H100", "uuid": "GPU-0", "memory": 1, "busy": 0}]
        )

    def _auth(self, *_: object) -> str:
        return "yes"


def fuzz(home: Path, count: int, first: int = 0) -> tuple[Counter[int], dict[int, str]]:
    """How many verbs ended with which code; what was wrong, by seed."""
    codes, wrong, cluster = Counter[int](), dict[int, str](), Damaged(events=[EVENT])

    def ask(_: Kubectl, *words: str, stdin: str = "", within_s: float = 30.0) -> Answer:
        return cluster.ask(words, stdin)

    os.environ["WIRESPEED_HOME"] = str(home)
    with contextlib.chdir(home), patch.object(Kubectl, "ask", ask):
        Path("mine.yaml").write_text(FILE)
        if (said := called(["cluster", *DEPLOY])) != (0, ""):
            raise SystemExit(f"not deployed: {said}")
        whole = cluster.objects
        for seed in range(first, first + count):
            code, said = cluster.look(seed, whole)
            codes[code] += 1
            if said:
                wrong[seed] = said
            shutil.rmtree(home / "runs", ignore_errors=True)
    return codes, wrong


def main(count: int = 1000, first: int = 0) -> int:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        codes, wrong = fuzz(Path(home), count, first)
    return told("damaged answers", codes, wrong, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
