"""The same check under Metaflow's `@deepspeed`: `python deepspeed_flow.py run --with kubernetes:…`

ONLY in containers that are thrown away afterwards. metaflow-deepspeed 0.0.9 writes keys and
`authorized_keys` into ~/.ssh, appends to /etc/ssh/sshd_config and /etc/ssh/ssh_config, restarts
sshd, and writes the whole environment, secrets too, into ~/.deepspeed_env. On local compute it does
all that to your own machine and then waits forever; so no test of wirespeed runs this flow, and it
refuses local compute. `check_flow.py`, or `wirespeed check --on deepspeed`, need none of this.
Written for Metaflow 2.19.39, metaflow-deepspeed 0.0.9, DeepSpeed 0.19; the image has an SSH server.
"""

import os
import sys
import tempfile
from pathlib import Path

from metaflow import FlowSpec, Parameter, card, current, deepspeed, step
from metaflow_extensions.deepspeed.plugins.deepspeed_libs.exceptions import DeepspeedException
from wirespeed_report import collect, page_of, report, run_of, words

REMOTE = ("KUBERNETES_SERVICE_HOST", "AWS_BATCH_JOB_ID")


class WirespeedDeepspeed(FlowSpec):
    verb = Parameter("verb", default="check", help="check, bench, locate, topo or placement.")
    level = Parameter("level", default="medium", help="Of check: quick, medium or long.")
    more = Parameter("more", default="", help="Further words: --engine deepspeed for bench, …")
    nodes = Parameter("nodes", type=int, default=2, help="Tasks of the parallel step.")

    @step
    def start(self):
        words(self.verb, self.level, self.more)
        # Before the step with @deepspeed is begun: what it edits, it edits before our first line.
        if not any(name in os.environ for name in REMOTE):
            raise RuntimeError(
                "@deepspeed edits the SSH settings of the machine that it runs on: "
                "add --with kubernetes or --with batch, or use check_flow.py"
            )
        self.next(self.ranks, num_parallel=self.nodes)

    @deepspeed
    @step
    def ranks(self):
        """DeepSpeed's launcher runs on the first node and reaches the others by ssh."""
        self.problem = ""
        with tempfile.TemporaryDirectory(prefix="wirespeed-") as folder:
            # The launcher hands this on with all else; only the first node's rank 0 stores.
            os.environ["WIRESPEED_HOME"] = folder
            try:
                current.deepspeed.run(
                    deepspeed_args=["--module"],
                    entrypoint="wirespeed",
                    entrypoint_args=words(self.verb, self.level, self.more),
                )
            except DeepspeedException as error:
                self.problem = str(error)
            self.files = collect(Path(folder))
            self.page = page_of(Path(folder)) if run_of(self.files) else ""
        self.next(self.report)

    @card(type="blank", id="wirespeed")
    @step
    def report(self, inputs):
        self.problems = [node.problem for node in inputs if node.problem]
        stored = [node for node in inputs if node.page]
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
        for problem in self.problems:
            print(problem, file=sys.stderr)
        if self.exit_code:
            sys.exit(self.exit_code)


if __name__ == "__main__":
    WirespeedDeepspeed()
