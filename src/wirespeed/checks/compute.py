"""Findings about devices that are wrong: products, memory, and devices that answer with errors.

Rates are judged by `checks/compute_rates.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.checks.registry import tell
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate, OfDevice
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import counted, listed


def right_findings(found: Compute) -> list[Finding]:
    """COMP-001 to 003 and 007: results, memory, and devices that answer with errors."""
    return [*_products(found.proofs), *_memory(found.rates), *_broken(found)]


def place_of(one: OfDevice, core: str = "") -> str:
    """`node-b core 5`, `node-b GPU5 (rank 13)`; cores of a node are no rank's."""
    rank = "" if one.device.startswith("NUMA") else f" (rank {one.rank})"
    return f"{one.host} {core or one.device}{rank}"


def node_of(one: OfDevice) -> Subject:
    return Subject("node", one.host)


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A device or core that computes wrong in one type."""

    id: str
    case: str
    one: ComputeProof
    core: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def _products(proofs: Sequence[ComputeProof]) -> Iterator[Finding]:
    """COMP-001 and COMP-002: each core or device once in each way that it is wrong."""
    done = [one for one in proofs if not one.reason]
    if not done:
        if proofs:
            reasons = "; ".join(f"{one.dtype}: {one.reason}" for one in proofs[:3])
            yield tell("COMP-001", "unproven", because=reasons)
        return
    wrongs = [*_faults(done), *_odd(done)]
    groups: dict[tuple[str, ...], list[_Wrong]] = defaultdict(list)
    for wrong in wrongs:
        groups[wrong.id, wrong.case, place_of(wrong.one, wrong.core)].append(wrong)
    for (id, case, at), group in groups.items():
        one, types = group[0].one, _types([wrong.one for wrong in group])
        told = {"at": at, "types": types, "product": one.product, **group[0].values}
        yield tell(id, case, subject=node_of(one), **told)
    ids = {wrong.id for wrong in wrongs}
    devices, types = _devices(done), _types(done)
    if "COMP-001" not in ids:
        per_device = Counter[str]()
        for one in done:
            per_device[place_of(one)] += one.elements
        told = {"products": sum(one.products for one in done), "elements": per_device.total()}
        rare = min(per_device.values()) / 3
        yield tell("COMP-001", "good", devices=devices, types=types, one_in=rare, **told)
    if not ids:
        several = len({(one.host, one.device) for one in done}) > 1
        yield tell("COMP-002", "good" if several else "alone", devices=devices, types=types)


def _types(proofs: Sequence[ComputeProof]) -> str:
    return listed(list(dict.fromkeys(one.dtype for one in proofs)), 8)


def _devices(ones: Sequence[OfDevice]) -> str:
    return counted(len({(one.host, one.device) for one in ones}), "device")


def _faults(proofs: Sequence[ComputeProof]) -> Iterator[_Wrong]:
    """Against the known result, and against the first of the same product."""
    for one in proofs:
        for fault in one.faults:
            where = f"; {fault.pattern}" if fault.pattern else ""
            values = {"fault": fault, "where": where, "dtype": one.dtype}
            known = fault.kind == "known"
            id, case = ("COMP-001", "wrong") if known else ("COMP-002", "unsteady")
            yield _Wrong(id, case, one, fault.core, values)


def _odd(proofs: Sequence[ComputeProof]) -> Iterator[_Wrong]:
    """Of each product, software and type who got other bits than most, and has no fault above."""
    groups: dict[tuple[str, ...], list[ComputeProof]] = defaultdict(list)
    for one in proofs:
        groups[one.product, one.software, one.dtype, one.shape].append(one)
    for group in groups.values():
        counts = Counter(one.digest for one in group if one.digest).most_common()
        settled = len(counts) < 2 or counts[0][1] > counts[1][1]
        for one in (one for one in group if not one.faults):
            yield from (
                _Wrong("COMP-002", "core" if one.digest else "two", one, core) for core in one.odd
            )
            if settled and one.digest and one.digest != counts[0][0]:
                values = {"most": counts[0][1], "of": len(group)}
                yield _Wrong("COMP-002", "device", one, values=values)
        if not settled:
            names = listed([place_of(one) for one in group], 6)
            yield _Wrong("COMP-002", "split", group[0], values={"names": names})


def _memory(rates: Sequence[ComputeRate]) -> Iterator[Finding]:
    checked = [one for one in rates if one.wrong is not None]
    for one in checked:
        if one.wrong:
            yield tell("COMP-003", "wrong", subject=node_of(one), at=place_of(one), one=one)
    if checked and not any(one.wrong for one in checked):
        yield tell("COMP-003", "good", devices=_devices(checked), copies=len(checked))


def _broken(found: Compute) -> Iterator[Finding]:
    """Each device once; what none of its product does, it does not have."""
    every: list[OfDevice] = [*found.rates, *found.proofs]
    does = {_what(one) for one in every if not one.reason}
    ones = [one for one in every if one.broke or (one.reason and _what(one) in does)]
    first = {(one.host, one.device): one for one in reversed(ones)}
    for one in first.values():
        yield tell("COMP-007", "broke", subject=node_of(one), at=place_of(one), reason=one.reason)
    refused = [one for one in every if one.reason and one not in ones]
    for reason, group in _by_reason(refused).items():
        names = dict.fromkeys(f"{getattr(one, 'op', 'gemm')} {one.dtype}" for one in group)
        what = listed(list(names), 6)
        yield tell("COMP-007", "refused", what=what, because=f"{place_of(group[0])}: {reason}")


def _what(one: OfDevice) -> tuple[str, ...]:
    """What a device must do if others of its product do; of `peer` others of its node alone."""
    op = getattr(one, "op", "proof")
    return one.product, one.dtype, one.shape, op, one.host if op == "peer" else ""


def _by_reason(ones: Iterable[OfDevice]) -> dict[str, list[OfDevice]]:
    found: dict[str, list[OfDevice]] = defaultdict(list)
    for one in ones:
        found[one.reason].append(one)
    return found
