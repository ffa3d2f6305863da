"""Ranks as tasks of Metaflow's `@parallel`, one a node, on any compute that Metaflow has.

Runs `python flows/wirespeed_ranks.py run`. The command and the environment are told by environment:
local compute inherits it, `@kubernetes` and `@batch` write it into the job's specification (where
those who may read pods or job definitions can read it; `--with secrets=…` hands over by name).
On this machine Metaflow's own state lives in the job's scratch folder and goes with it.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Engine, Job, Piece, Prepared, lacking
from wirespeed.launchers.metaflow import CARRY, COMMAND, COMPUTE, FLOW, FOLDER, PYTHON
from wirespeed.launchers.node.snapshot import interface_variables
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice
from wirespeed.node.identity import port_of
from wirespeed.node.secret import VARIABLE as SECRET
from wirespeed.process import free_port

LOCAL = "local"
_PIP = "pip install 'wirespeed[metaflow]'"
_PIP_KUBERNETES = "pip install 'kubernetes<37'"
"""37 wants python-dateutil 3, and Metaflow's boto3 (1.44) an older one."""


def _look(job: Job) -> Prepared:
    compute = job.options.get("compute", LOCAL)
    nodes, each = _shape(job)
    notes = lacking(job, lambda: _require_metaflow(job, compute))
    datastore = LOCAL if compute == LOCAL else "s3"
    options = {"compute": compute, "datastore": datastore, **job.options}
    _check_options(options, compute)
    port, why = _port(job, compute)
    environment = {**job.environment, "MASTER_PORT": str(port)}
    environment |= interface_variables(job.interface)
    if not job.interface and compute == LOCAL and nodes > 1:
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    sized = replace(job, nodes=nodes, ranks_per_node=each, ranks=nodes * each)
    found = replace(sized, options=options, environment=environment)
    return _Prepared(job=found, choices=(Choice("MASTER_PORT", str(port), why),), notes=notes)


def _require_metaflow(job: Job, compute: str) -> None:
    """Raise CannotMeasure where Metaflow is missing for the interpreter that will run it."""
    wanted = ["metaflow", "kubernetes"] if compute == "kubernetes" else ["metaflow"]
    other = job.python if compute == LOCAL else ""
    if other:
        missing = _missing_there(other, wanted, job.startup_s)
    else:
        missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        raise CannotMeasure(
            f"{other or sys.executable} has no {' and no '.join(missing)}",
            expected="Metaflow" + (", and kubernetes for its compute" if wanted[1:] else ""),
            next=_PIP if missing[0] == "metaflow" else _PIP_KUBERNETES,
        )


class _Prepared(Prepared):
    def pieces(self, scratch: Path) -> list[Piece]:
        job = self.job
        here = job.options["compute"] == LOCAL
        command = (
            *(job.python if here and job.python else sys.executable, str(FLOW), "--no-pylint"),
            *("--datastore", job.options["datastore"], "--environment", "local"),
            *(("--metadata", "local") if here else ()),
            *("run", "--nodes", str(job.nodes), "--ranks-per-node", str(job.ranks_per_node)),
        )
        environment = {**job.environment, **_told(job), **_state(scratch, job.options)}
        return [
            Piece(
                name="metaflow",
                command=command,
                environment=environment,
                stdin="\n",
                ends_with_stdin=True,
            )
        ]


def _shape(job: Job) -> tuple[int, int]:
    """(nodes, ranks on each); UsageError where that cannot be."""
    if job.hosts:
        raise make_error("metaflow_hosts")
    nodes = job.nodes or 1
    if job.ranks is None:
        return nodes, job.ranks_per_node or 1
    each = job.ranks_per_node or max(job.ranks // nodes, 1)
    if nodes * each != job.ranks and job.nodes is None and job.ranks % each == 0:
        nodes = job.ranks // each
    if nodes * each != job.ranks:
        raise make_error("metaflow_shape", job=job, nodes=nodes, each=each)
    return nodes, each


def _check_options(options: Mapping[str, str], compute: str) -> None:
    """UsageError where options contradict each other."""
    if compute != LOCAL and options["datastore"] == LOCAL:
        raise make_error("local_datastore", compute=compute)
    for one in ENGINE.options:
        if one.name in options and one.of and compute not in one.of:
            of = " or ".join(one.of)
            raise make_error("option_of_another_compute", option=one, compute=compute, computes=of)


def _missing_there(python: str, wanted: list[str], seconds: float) -> list[str]:
    ask = "import sys; from importlib.util import find_spec as f; "
    ask += "print(*(n for n in sys.argv[1:] if f(n) is None))"
    try:
        done = subprocess.run(
            [python, "-P", "-c", ask, *wanted, "wirespeed"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise make_error("metaflow_not_asked", python=python, error=error) from error
    return done.stdout.split()


def _port(job: Job, compute: str) -> tuple[int, str]:
    if told := job.environment.get("MASTER_PORT"):
        return int(told), "set in the environment"
    if compute == LOCAL:
        return free_port("127.0.0.1"), "a port that is free at this moment"
    return port_of(job.token or "metaflow"), "made from the job's token: each node has own ports"


def _told(job: Job) -> dict[str, str]:
    """What the flow needs to know."""
    compute = job.options["compute"]
    told = {COMMAND: json.dumps(list(job.command))}
    if job.python:
        told[PYTHON] = job.python
    if compute != LOCAL:
        own = {one.name for one in ENGINE.options if compute in one.of}
        names = [name for name in job.options if name in own]
        attributes = {name: _attribute(name, job.options[name]) for name in names}
        told[COMPUTE] = json.dumps({compute: attributes})
        # Those who read job definitions shall not learn the job's own secret.
        told[CARRY] = ",".join(sorted({*job.environment, *told, CARRY} - {SECRET}))
    return told


def _attribute(name: str, text: str) -> object:
    if name == "secrets":
        return text.split(",")
    if name != "tolerations":
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--with tolerations: {error}", expected="a JSON list") from error


def _state(scratch: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Metaflow's settings: on this machine none but these, and all its files in `scratch`."""
    compute, datastore = options["compute"], options["datastore"]
    here = str(scratch)
    settings = dict.fromkeys(("TEMPDIR", "CLIENT_CACHE_PATH", "DATASTORE_SYSROOT_LOCAL"), here)
    if "root" in options:
        settings[f"DATASTORE_SYSROOT_{datastore.upper()}"] = options["root"]
    if compute == LOCAL:
        settings |= {"USER": "wirespeed", "DEFAULT_DECOSPECS": "", "SERVICE_URL": ""}
        settings |= {"RUNTIME_ENVIRONMENT": LOCAL}
    if datastore == LOCAL:
        # Else the user's own settings tell where the bucket is.
        settings |= {"HOME": here, "PROFILE": ""}
    return {FOLDER: here, **{f"METAFLOW_{name}": value for name, value in settings.items()}}


ENGINE = Engine("metaflow", _look)
