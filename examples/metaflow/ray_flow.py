"""The same check on a Ray cluster of `@metaflow_ray`: `python ray_flow.py --datastore s3 run`

The cluster's nodes find each other through the datastore, which must be S3 (Azure, Google).
Tested with Metaflow 2.19.39, metaflow-ray 0.1.5 and Ray 2.60, with what `_stop_ray` makes good.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

from metaflow import FlowSpec, Parameter, card, current, metaflow_ray, step
from wirespeed_report import collect, page_of, report, run_of, words

MARK = "WIRESPEED_RAY_FLOW"
"""In the environment of all that this run starts, Ray's daemons among them."""
PORT = 6379
"""metaflow-ray 0.1.5 always uses this one: with `main_port` it asks Ray for the port `None`."""
LIMIT_S = 1800
ENDING_S = 5.0

if {"run", "resume"} & set(sys.argv):
    os.environ[MARK] = uuid.uuid4().hex
    # Ray's token file, logs and sockets in a folder of this run; short, since sockets lie in it.
    os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("RAY_TMPDIR"))
    atexit.register(shutil.rmtree, os.environ["RAY_TMPDIR"], ignore_errors=True)


def _stop_ray() -> None:
    """0.1.5 leaves Ray's daemons running on local compute, and `ray stop` would end everybody's.

    Elsewhere they end with their container.
    """
    if MARK not in os.environ:
        return
    began = time.monotonic()
    while (left := _daemons()) and (after := time.monotonic() - began) < 2 * ENDING_S:
        # Again and again: a raylet that is about to end starts its agents anew.
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if after < ENDING_S else signal.SIGKILL)
        time.sleep(0.2)
    shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def _daemons() -> list[int]:
    """Pids of what is of this run and none of Metaflow's own processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if _ours(entry) and not _flow((entry / "cmdline").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def _ours(process: Path) -> bool:
    """Whether it carries our mark, or has a file of this Ray open (titles hide an environment)."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    if mark in (process / "environ").read_bytes().split(b"\0"):
        return True
    files = [str(handle.readlink()) for handle in (process / "fd").iterdir()]
    return any(file.startswith(os.environ["RAY_TMPDIR"]) for file in files)


def _flow(words: list[bytes]) -> bool:
    """Whether these are the words of a process of Metaflow: its runtime, or one of its tasks."""
    return sys.argv[0].encode() in words


class WirespeedRay(FlowSpec):
    verb = Parameter("verb", default="check", help="check, bench or locate.")
    level = Parameter("level", default="medium", help="Of check: quick, medium or long.")
    more = Parameter("more", default="", help="Further words for the verb, quoted as for a shell.")
    nodes = Parameter("nodes", type=int, default=2, help="Tasks of the parallel step.")
    ranks_per_node = Parameter("ranks-per-node", type=int, default=1, help="Actors a node.")

    @step
    def start(self):
        words(self.verb, self.level, self.more)
        self.next(self.ranks, num_parallel=self.nodes)

    @metaflow_ray
    @step
    def ranks(self):
        """Runs on the first node alone: the others only lend their Ray."""
        where = ["--on", "ray", "--with", f"address={current.parallel.main_ip}:{PORT}"]
        where += ["--nodes", str(self.nodes), "--ranks-per-node", str(self.ranks_per_node)]
        command = [
            sys.executable,
            "-P",
            "-m",
            "wirespeed",
            *words(self.verb, self.level, self.more),
        ]
        with tempfile.TemporaryDirectory(prefix="wirespeed-") as folder:
            env = {**os.environ, "WIRESPEED_HOME": folder}
            try:
                subprocess.run([*command, *where], env=env, timeout=LIMIT_S, check=False)
            finally:
                _stop_ray()
            self.files = collect(Path(folder))
            self.page = page_of(Path(folder)) if run_of(self.files) else ""
        self.next(self.report)

    @card(type="blank", id="wirespeed")
    @step
    def report(self, inputs):
        stored = [node for node in inputs if getattr(node, "page", "")]
        self.files = stored[0].files if stored else {}
        self.page = stored[0].page if stored else ""
        self.run = run_of(self.files)
        self.verdict = self.run.get("verdict", "UNKNOWN")
        self.exit_code = self.run.get("exit_code", 3)
        if self.page:
            current.card["wirespeed"].append(report(self.page))
        self.next(self.end)

    @step
    def end(self):
        print(f"{self.verdict}  exit code {self.exit_code}  run {self.run.get('id', '')}")
        if self.exit_code:
            sys.exit(self.exit_code)


if __name__ == "__main__":
    WirespeedRay()
