"""The same check under Metaflow's `@torchrun`: `python torchrun_flow.py --datastore s3 run`

`@torchrun` keeps the state of its nodes in the datastore and knows S3 and Azure only.
Tested with Metaflow 2.19.39 and metaflow-torchrun 0.2.2, which do not fit without `_mend`.
"""

import os
import sys
import tempfile
from pathlib import Path

from metaflow import FlowSpec, Parameter, card, current, step, torchrun
from metaflow.plugins.parallel_decorator import ParallelDecorator
from metaflow_extensions.torchrun.plugins.torchrun_libs.exceptions import TorchrunException
from metaflow_extensions.torchrun.plugins.torchrun_libs.torchrun_decorator import (
    TorchrunDecoratorParallel,
)
from wirespeed_report import collect, page_of, report, run_of, words

PORT = os.environ.get("WIRESPEED_TORCHRUN_PORT", "29518")
"""Of the first node: an attribute of the decorator, so no parameter can say it."""


def _mend() -> None:
    """0.2.2 overrides `task_pre_step` and forgets the parent's, which sets `input_paths`.

    Without it: 'TorchrunDecoratorParallel' object has no attribute 'input_paths'.
    """
    theirs = TorchrunDecoratorParallel.task_pre_step

    def both(self, *arguments):
        ParallelDecorator.task_pre_step(self, *arguments)
        theirs(self, *arguments)

    TorchrunDecoratorParallel.task_pre_step = both


_mend()


class WirespeedTorchrun(FlowSpec):
    verb = Parameter("verb", default="check", help="check, bench, locate, topo or placement.")
    level = Parameter("level", default="medium", help="Of check: quick, medium or long.")
    more = Parameter("more", default="", help="Further words for the verb, quoted as for a shell.")
    nodes = Parameter("nodes", type=int, default=2, help="Tasks of the parallel step.")
    ranks_per_node = Parameter("ranks-per-node", type=int, default=1, help="As nproc_per_node.")

    @step
    def start(self):
        words(self.verb, self.level, self.more)
        self.next(self.ranks, num_parallel=self.nodes)

    @torchrun(master_port=PORT)
    @step
    def ranks(self):
        verb = words(self.verb, self.level, self.more)
        self.problem = ""
        with tempfile.TemporaryDirectory(prefix="wirespeed-") as folder:
            os.environ["WIRESPEED_HOME"] = folder
            try:
                # The "script" is -m: torchrun starts the module wirespeed as each rank.
                current.torch.run(
                    entrypoint="-m",
                    entrypoint_args=["wirespeed", *verb],
                    nproc_per_node=self.ranks_per_node,
                )
            except TorchrunException as error:
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
        self.verdict, self.exit_code = (
            self.run.get("verdict", "UNKNOWN"),
            self.run.get("exit_code", 3),
        )
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
    WirespeedTorchrun()
