"""A named improvement in the fitted terms: `nic=2x`, `latency=0.5x`, `rdma=100gbit`.

An improvement changes coefficients of the links between nodes and nothing else; what a call itself
costs and what is within a node stays. Its own uncertainty is drawn with the rest.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.errors import UsageError
from wirespeed.predict.forecast import DRAWS, Forecast
from wirespeed.records import Run
from wirespeed.records_prediction import Refusal

__all__ = ["Improvement", "factors_of", "line_rate", "parse_improvement"]

Array = NDArray[np.float64]
_TIMES = re.compile(r"(\d+(?:\.\d+)?)x")
_RATE = re.compile(r"(\d+(?:\.\d+)?)([mg])bit")
_RDMA_SHARE = (0.85, 0.97)
"""Of the line rate that RDMA reaches: an assumption (headers take some per cent), said with the gain."""
_RDMA_STEP_S = (2.7e-6, 9.6e-6)
"""A hop over RDMA, from NCCL's tuning model (NVIDIA/nccl, src/graph/tuning.cc at 01afd20, hwLat of NET
for rings: 2.7 µs for LL, 9.6 µs for Simple)."""
_SEED = 77
_NO_LINKS = "no term of the fit is about links between nodes: all runs are on one node"


@dataclass(frozen=True, slots=True)
class Improvement:
    kind: str
    """`nic`, `latency` or `rdma`."""
    value: float | None
    """nic, latency: the factor; rdma: bytes a second of a node's links, None: as the runs tell."""
    text: str


def parse_improvement(text: str) -> Improvement:
    """UsageError for anything but the three kinds, and for a factor that is not above 0."""
    kind, _, value = text.strip().lower().partition("=")
    times, rate = _TIMES.fullmatch(value), _RATE.fullmatch(value)
    if kind in ("nic", "latency") and times and 0.001 <= float(times[1]) <= 1000:
        return Improvement(kind, float(times[1]), text.strip().lower())
    if kind == "rdma" and (not value or (rate and float(rate[1]) > 0)):
        unit = {"m": 1e6, "g": 1e9}
        bytes_per_s = float(rate[1]) * unit[rate[2]] / 8 if rate else None
        return Improvement(kind, bytes_per_s, text.strip().lower())
    raise UsageError(
        f"--improve {text!r} is no improvement that we know",
        expected="nic=2x (twice the bandwidth between nodes), latency=0.5x (half the time a step), "
        "rdma (instead of TCP, on the NICs that the runs found) or rdma=100gbit",
    )


def line_rate(runs: Sequence[Run]) -> float | None:
    """Bytes a second of the slowest node's fastest physical NIC; None where no run tells."""
    slowest: list[float] = []
    for run in runs:
        for node in run.world.nodes if len(run.world.nodes) > 1 else ():
            speeds = [
                float(nic["speed_Gbitps"])
                for nic in node.nics
                if not nic.get("loopback")
                and not nic.get("virtual", True)
                and isinstance(nic.get("speed_Gbitps"), int | float)
            ]
            slowest += [max(speeds)] if speeds else []
    return min(slowest) * 1e9 / 8 if slowest else None


def factors_of(
    improvement: Improvement, forecast: Forecast, rate: float | None
) -> tuple[dict[str, Array], str] | Refusal:
    """(factor of each coefficient by draw, what is assumed); a Refusal where it means nothing here."""
    terms = {
        term.name: (term.bandwidth, float(theta))
        for member in forecast.members[::-1]
        for term, theta in zip(member.shape.terms, member.solved.theta, strict=True)
        if term.between
    }
    if not terms:
        helps = f"wirespeed bench {forecast.series.op} --on ssh --nodes 2"
        return Refusal(what=f"--improve {improvement.text}", because=_NO_LINKS, helps=helps)
    if improvement.kind == "rdma":
        return _rdma(improvement, terms, rate)
    value = improvement.value or 1.0
    if improvement.kind == "latency":
        steps = [name for name, (bandwidth, _) in terms.items() if not bandwidth]
        told = {name: np.full(DRAWS, value) for name in steps}
        return told, f"every step between nodes takes {value:g} times as long"
    wire, why = _wire_share(terms, rate)
    told = {name: 1 - wire + wire / value for name, (bandwidth, _) in terms.items() if bandwidth}
    return told, f"the wire is {value:g} times as fast; {why}"


def _wire_share(terms: dict[str, tuple[bool, float]], rate: float | None) -> tuple[Array, str]:
    """(how much of a byte's cost is the wire's, by draw; why): the rest is memory, cores, PCIe.

    Nobody measured it. Nearly all of it unless the runs reach less than half of the line rate.
    """
    rng = np.random.default_rng(_SEED)
    costs = [theta for bandwidth, theta in terms.values() if bandwidth and theta > 0]
    reached = 1 / min(costs) if costs else 0.0
    if rate is not None and reached < rate / 2:
        why = f"only {reached / rate:.0%} of the line rate was reached, so that the gain is unsure"
        return rng.uniform(0, 1, DRAWS), why
    share: Array = 1 - 0.5 * rng.uniform(0, 1, DRAWS) ** 6
    return share, "it is nearly all of a byte's cost (in 1 of 40 forecasts below 57 %)"


def _rdma(
    improvement: Improvement, terms: dict[str, tuple[bool, float]], rate: float | None
) -> tuple[dict[str, Array], str] | Refusal:
    line = improvement.value or rate
    if line is None:
        return Refusal(
            what="--improve rdma",
            because="no run tells the speed of the nodes' NICs",
            helps="name it: --improve rdma=100gbit",
        )
    rng = np.random.default_rng(_SEED)
    share = rng.uniform(*_RDMA_SHARE, DRAWS)
    step = np.exp(rng.uniform(math.log(_RDMA_STEP_S[0]), math.log(_RDMA_STEP_S[1]), DRAWS))
    factors = {}
    for name, (bandwidth, theta) in terms.items():
        new = 1 / (line * share) if bandwidth else step
        # What is quicker already stays as it is: RDMA does not slow a link down.
        factors[name] = np.minimum(new / max(theta, 1e-30), 1.0)
    low, high = _RDMA_SHARE
    return factors, (
        f"{low:.0%}–{high:.0%} of {line * 8 / 1e9:g} Gbit/s a node and 2.7–9.6 µs a hop "
        "(NCCL's tuning model), nothing else the bottleneck"
    )
