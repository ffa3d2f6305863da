"""Is the compute that my flows run on ready for training? `python check_flow.py run --nodes 2`

Each task of a `@parallel` step is a node and starts its ranks, as many as it has GPUs unless told.
Works on this machine as it is, and elsewhere with Metaflow's own `--with kubernetes:gpu=8,image=…`
or `--with batch:gpu=8,…`; the image has wirespeed and torch. Tested with Metaflow 2.19.39.
"""

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from metaflow import FlowSpec, Parameter, card, current, parallel, step
from wirespeed_report import collect, page_of, report, run_of, words

from wirespeed.errors import WirespeedError
from wirespeed.launchers.node.ranks import Place, run_ranks
from wirespeed.node.limits import count_gpus

OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "WIRESPEED_FRAMES")


class WirespeedCheck(FlowSpec):
    verb = Parameter("verb", default="check", help="check, bench, locate, topo or placement.")
    level = Parameter("level", default="medium", help="Of check: quick, medium or long.")
    more = Parameter("more", default="", help="Further words for the verb, quoted as for a shell.")
    nodes = Parameter("nodes", type=int, default=2, help="Tasks of the parallel step.")
    ranks_per_node = Parameter("ranks-per-node", type=int, default=0, help="0: one a GPU, else 1.")
    port = Parameter("port", type=int, default=29517, help="Free on the first node.")
    limit = Parameter("limit", type=int, default=1800, help="Seconds; then the ranks are ended.")

    @step
    def start(self):
        words(self.verb, self.level, self.more)  # a mistake is told before any node is asked for
        self.next(self.ranks, num_parallel=self.nodes)

    @parallel
    @step
    def ranks(self):
        """One node: start the ranks, wait for them, keep what was stored."""
        here = current.parallel
        each = self.ranks_per_node or count_gpus() or 1
        place = Place(here.node_index, here.num_nodes, each, here.main_ip)
        environ = {k: v for k, v in os.environ.items() if k not in OURS}
        environ |= {"MASTER_PORT": str(self.port), "WIRESPEED_LAUNCHER": "metaflow"}
        command = [
            sys.executable,
            "-P",
            "-m",
            "wirespeed",
            *words(self.verb, self.level, self.more),
        ]
        # A verb bounds itself; this is for the case that it cannot.
        over = threading.Timer(self.limit, os.kill, (os.getpid(), signal.SIGTERM))
        over.start()
        with tempfile.TemporaryDirectory(prefix="wirespeed-") as folder:
            environ["WIRESPEED_HOME"] = folder
            try:
                self.codes, self.problem = run_ranks(command, place, environ), ""
            except WirespeedError as error:
                self.codes, self.problem = {place.rank(0): error.exit_code}, str(error)
            finally:
                over.cancel()
            self.files = collect(Path(folder))
            self.page = page_of(Path(folder)) if run_of(self.files) else ""
        self.next(self.report)

    @card(type="blank", id="wirespeed")
    @step
    def report(self, inputs):
        """Everything as artifacts, and the page as a card."""
        self.codes = {rank: code for node in inputs for rank, code in node.codes.items()}
        self.problems = [node.problem for node in inputs if node.problem]
        stored = [node for node in inputs if node.page]
        self.files = stored[0].files if stored else {}
        self.page = stored[0].page if stored else ""
        self.run = run_of(self.files)
        self.run_id, self.verdict = self.run.get("id", ""), self.run.get("verdict", "UNKNOWN")
        # 3 where nothing was stored: that is not a success, nor a finding.
        self.exit_code = self.run.get("exit_code", max([3, *self.codes.values()]))
        if self.page:
            current.card["wirespeed"].append(report(self.page))
        self.next(self.end)

    @step
    def end(self):
        """Fails with the verdict, once all is stored."""
        print(f"{self.verdict}  exit code {self.exit_code}  run {self.run_id}")
        for problem in self.problems:
            print(problem, file=sys.stderr)
        if self.exit_code:
            sys.exit(self.exit_code)


if __name__ == "__main__":
    WirespeedCheck()
