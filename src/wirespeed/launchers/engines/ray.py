"""Ranks as actors of a Ray cluster: one that is there, or one of this job alone on this machine."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine, Job, Piece, Prepared, lacking
from wirespeed.launchers.ray.cluster import LOCAL, Orders, bundles_of
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice

STRATEGIES = ("STRICT_SPREAD", "SPREAD", "PACK", "STRICT_PACK")
_STARTS_S = 20.0
"""What Ray needs, of the time for the start, besides waiting for room."""


def _look(job: Job) -> Prepared:
    """Settle the options; what the cluster lacks is told when the job runs."""
    notes = lacking(job, _require_ray)
    address, why = _address(job.options, os.environ)
    _check_hosts(job, local=address == LOCAL)
    # Nodes of their own where the job speaks of nodes; else as few nodes as do.
    speaks = job.hosts or job.nodes or job.ranks_per_node or address == LOCAL
    usual = "STRICT_SPREAD" if speaks else "PACK"
    strategy = job.options.get("strategy", "").upper() or usual
    if strategy not in STRATEGIES:
        raise UsageError(f"--with strategy={strategy}", expected=", ".join(STRATEGIES))
    given = {**job.options, "address": address, "strategy": strategy}
    for name in ("cpus-per-rank", "gpus-per-rank", "timeout"):
        _number(given, name)
    wait_s = _number(given, "timeout") or 0.0
    settled = replace(job, options=given, startup_s=max(job.startup_s, wait_s + _STARTS_S))
    return RayPrepared(job=settled, choices=(Choice("Ray cluster", address, why),), notes=notes)


def _require_ray() -> None:
    if find_spec("ray") is None:
        raise make_error("no_ray", python=sys.executable)


class RayPrepared(Prepared):
    def pieces(self, scratch: Path) -> list[Piece]:
        words = (sys.executable, "-P", "-m", "wirespeed.launchers.ray.driver")
        orders = _orders(self.job).to_json()
        return [Piece(name="ray", command=words, stdin=orders, ends_with_stdin=True)]


def _orders(job: Job) -> Orders:
    wait_s = _number(job.options, "timeout")
    address = job.options.get("address", LOCAL)
    here = address == LOCAL and "/" in job.python  # Ray itself runs elsewhere
    return Orders(
        command=job.command,
        python=str(Path(job.python).absolute()) if here else job.python,
        environment=dict(job.environment),
        address=address,
        bundles=bundles_of(job, local=address == LOCAL),
        strategy=job.options.get("strategy", STRATEGIES[0]),
        cpus=_number(job.options, "cpus-per-rank"),
        gpus=_number(job.options, "gpus-per-rank"),
        place_s=max(job.startup_s - _STARTS_S, job.startup_s / 2) if wait_s is None else wait_s,
        grace_s=job.grace_s,
        interface=job.interface,
    )


def _address(options: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, str]:
    """The cluster's address and why; UsageError for one that Ray would not understand."""
    address, why = options.get("address", ""), "--with address"
    if not address:
        address, why = environ.get("RAY_ADDRESS", "").strip(), "RAY_ADDRESS"
    if not address:
        return LOCAL, "neither --with address nor RAY_ADDRESS names one"
    port = address.rpartition(":")[2]
    if address in (LOCAL, "auto") or (":" in address and port.isdecimal() and port.isascii()):
        return address, why
    raise make_error("ray_address", why=why, address=address)


def _check_hosts(job: Job, *, local: bool) -> None:
    for host in job.hosts:
        if not host.name or host.name.startswith("-"):
            raise UsageError(f"{host.name!r} is no node", expected="names or addresses of nodes")
    if local and (job.hosts or (job.nodes or 1) > 1):
        raise make_error("ray_local")


def _number(options: Mapping[str, str], name: str) -> float | None:
    """A number of 0 or more, None where it is not given; UsageError for anything else."""
    text = options.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"--with {name}={text}", expected="a number, 0 or more")
    return value


ENGINE = Engine("ray", _look)
