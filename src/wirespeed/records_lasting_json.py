"""Work that lasts, as JSON and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wirespeed.records_lasting import Incident

__all__ = ["incident_from_json", "incident_to_json"]


def incident_to_json(incident: Incident) -> dict[str, Any]:
    return asdict(incident)


def incident_from_json(data: Mapping[str, Any]) -> Incident:
    return Incident(**data)
