"""Records as JSON and back: the one place where seconds become µs and bytes a second GB/s.

The shape is `wirespeed.run/1`, described by `runs/schema/run-1.schema.json`.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from wirespeed.records import (
    SCHEMA,
    Choice,
    Finding,
    Located,
    Measurement,
    NodeFacts,
    PairFigures,
    Run,
    SimulatedPart,
    Simulation,
    Subject,
    TimeStats,
    ToldShape,
    Verification,
    World,
    WrongData,
)
from wirespeed.records_grid import point_from_json, point_to_json
from wirespeed.records_lasting_json import (
    goodput_from_json,
    goodput_to_json,
    soak_from_json,
    soak_to_json,
)
from wirespeed.records_reference_json import reference_from_json, reference_to_json
from wirespeed.records_settings_json import setting_from_json, setting_to_json
from wirespeed.records_training_json import (
    load_from_json,
    load_to_json,
    training_from_json,
    training_to_json,
)
from wirespeed.units import GIGA

__all__ = [
    "finding_from_json",
    "finding_to_json",
    "located_from_json",
    "located_to_json",
    "measurement_from_json",
    "measurement_to_json",
    "pair_from_json",
    "pair_to_json",
    "run_from_json",
    "run_to_json",
    "verification_from_json",
    "verification_to_json",
    "world_from_json",
    "world_to_json",
]

_US = 1e6


def finding_to_json(finding: Finding) -> dict[str, Any]:
    references = [reference_to_json(one) for one in finding.references]
    data = {**asdict(finding), "evidence": list(finding.evidence), "references": references}
    return _without_empty(data, "category", "confidence", "references", "allowed")


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    references = map(reference_from_json, data.get("references", ()))
    return Finding(
        **{
            **data,
            "subject": Subject(**data["subject"]),
            "evidence": tuple(data.get("evidence", ())),
            "references": tuple(one for one in references if one is not None),
        }
    )


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    data = asdict(measurement)
    time = data.pop("time")
    data["time_us"] = {name: value * _US for name, value in time.items()}
    data["algbw_GBps"] = data.pop("algbw") / GIGA
    data["busbw_GBps"] = data.pop("busbw") / GIGA
    data["skew_us"] = data.pop("skew") * _US
    data["rank_medians_us"] = [value * _US for value in data.pop("rank_medians")]
    return _without_empty(data, "setting", "backend")


def _without_empty(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """Without keys that say nothing where they are empty."""
    return {name: value for name, value in data.items() if value or name not in names}


def measurement_from_json(data: Mapping[str, Any]) -> Measurement:
    fields = dict(data)
    fields["time"] = TimeStats(**{k: v / _US for k, v in fields.pop("time_us").items()})
    fields["algbw"] = fields.pop("algbw_GBps") * GIGA
    fields["busbw"] = fields.pop("busbw_GBps") * GIGA
    fields["skew"] = fields.pop("skew_us", 0.0) / _US
    fields["rank_medians"] = tuple(v / _US for v in fields.pop("rank_medians_us", ()))
    return Measurement(**fields)


def verification_to_json(verification: Verification) -> dict[str, Any]:
    data = {**asdict(verification), "errors": [asdict(error) for error in verification.errors]}
    return _without_empty(data, "setting")


def verification_from_json(data: Mapping[str, Any]) -> Verification:
    errors = tuple(WrongData(**error) for error in data.get("errors", ()))
    return Verification(**{**data, "errors": errors})


def located_to_json(located: Located) -> dict[str, Any]:
    data = asdict(replace(located, pairs=()))
    data["nodes"] = list(located.nodes)
    data["compute_s"] = data.pop("compute")
    data["pairs"] = [pair_to_json(pair) for pair in located.pairs]
    return data


def pair_to_json(pair: PairFigures) -> dict[str, Any]:
    # Not asdict, which takes 20 times as long: there are 80,000 of them in a run of 10,000 ranks.
    data: dict[str, Any] = {name: getattr(pair, name) for name in PairFigures.__slots__}
    latency = data.pop("latency")
    data["latency_us"] = None if latency is None else latency * _US
    for name in ("forth", "back", "both"):
        data[f"{name}_GBps"] = data.pop(name) / GIGA
    return data


def located_from_json(data: Mapping[str, Any]) -> Located:
    fields = dict(data)
    fields["nodes"] = tuple(fields["nodes"])
    fields["compute"] = tuple(fields.pop("compute_s"))
    fields["pairs"] = tuple(map(pair_from_json, fields["pairs"]))
    return Located(**fields)


def pair_from_json(data: Mapping[str, Any]) -> PairFigures:
    fields = dict(data)
    latency = fields.pop("latency_us")
    fields["latency"] = None if latency is None else latency / _US
    for name in ("forth", "back", "both"):
        fields[name] = fields.pop(f"{name}_GBps") * GIGA
    return PairFigures(**fields)


def _simulation_from_json(data: Mapping[str, Any]) -> Simulation:
    parts = {
        name: tuple(SimulatedPart(**part) for part in data[name]) for name in ("faults", "named")
    }
    return Simulation(**{**data, **parts})


_LISTED = ("ranks", "gpus", "nics", "rdma", "peers")
"""Fields of a node that are tuples here and lists in JSON."""


def node_from_json(data: Mapping[str, Any]) -> NodeFacts:
    listed = {name: tuple(data.get(name, ())) for name in _LISTED}
    return NodeFacts(**{**data, **listed})


def world_to_json(world: World) -> dict[str, Any]:
    nodes = [_node_to_json(node) for node in world.nodes]
    return _without_empty({**asdict(replace(world, nodes=())), "nodes": nodes}, "told")


def _node_to_json(node: NodeFacts) -> dict[str, Any]:
    # Not asdict, which copies every fact: it is half of the time for a run of 10,000 ranks.
    data: dict[str, Any] = {name: getattr(node, name) for name in NodeFacts.__slots__}
    data |= {name: list(data[name]) for name in _LISTED}
    return _without_empty(data, "counters")


def world_from_json(data: Mapping[str, Any]) -> World:
    nodes = tuple(node_from_json(node) for node in data["nodes"])
    told = ToldShape(**data["told"]) if data.get("told") else None
    return World(**{**data, "nodes": nodes, "told": told})


def run_to_json(run: Run) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": run.id,
        "command": run.command,
        "verdict": run.verdict,
        "exit_code": run.exit_code,
        "started": run.started,
        "seconds": run.seconds,
        "world": world_to_json(run.world),
        "versions": dict(run.versions),
        "environment": dict(run.environment),
        "config": dict(run.config),
        "choices": [asdict(choice) for choice in run.choices],
        "findings": [finding_to_json(finding) for finding in run.findings],
        "measurements": [measurement_to_json(m) for m in run.measurements],
        "verifications": [verification_to_json(v) for v in run.verifications],
        **_located_parts(run),
    }


def _located_parts(run: Run) -> dict[str, Any]:
    """Only where there are any: other runs have no such keys."""
    parts: dict[str, Any] = {}
    if run.located is not None:
        parts["located"] = located_to_json(run.located)
    if run.simulation is not None:
        simulation = asdict(run.simulation)
        parts["simulation"] = {
            **simulation,
            "faults": list(simulation["faults"]),
            "named": list(simulation["named"]),
        }
    if run.training:
        parts["training"] = [training_to_json(one) for one in run.training]
    if run.under_load:
        parts["under_load"] = [load_to_json(one) for one in run.under_load]
    if run.settings:
        parts["settings"] = [setting_to_json(one) for one in run.settings]
    if run.soak is not None:
        parts["soak"] = soak_to_json(run.soak)
    if run.goodput is not None:
        parts["goodput"] = goodput_to_json(run.goodput)
    if run.grid:
        parts["grid"] = [point_to_json(one) for one in run.grid]
    return parts


def run_from_json(data: Mapping[str, Any]) -> Run:
    """The inverse of `run_to_json`; the caller has validated `data` against the schema."""
    fields = {name: value for name, value in data.items() if name != "schema"}
    return Run(
        **{
            **fields,
            "world": world_from_json(data["world"]),
            "choices": tuple(Choice(**choice) for choice in data.get("choices", ())),
            "findings": tuple(map(finding_from_json, data.get("findings", ()))),
            "measurements": tuple(map(measurement_from_json, data.get("measurements", ()))),
            "verifications": tuple(map(verification_from_json, data.get("verifications", ()))),
            "located": located_from_json(data["located"]) if "located" in data else None,
            "simulation": _simulation_from_json(data["simulation"])
            if "simulation" in data
            else None,
            "training": tuple(map(training_from_json, data.get("training", ()))),
            "under_load": tuple(map(load_from_json, data.get("under_load", ()))),
            "settings": tuple(map(setting_from_json, data.get("settings", ()))),
            "soak": soak_from_json(data["soak"]) if "soak" in data else None,
            "goodput": goodput_from_json(data["goodput"]) if "goodput" in data else None,
            "grid": tuple(map(point_from_json, data.get("grid", ()))),
        }
    )
