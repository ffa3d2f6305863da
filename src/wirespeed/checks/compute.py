"""Findings about devices that are wrong: products, memory, and devices that answer with errors.

Rates are judged by `checks/compute_rates.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from wirespeed.checks.registry import tell
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate, OfDevice
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import counted, listed


def right_findings(found: Compute) -> list[Finding]:
    """COMP-001 to 003 and 007: results, memory, and devices that answer with errors."""
    return [*_known(found.proofs), *_alike(found.proofs), *_memory(found.rates), *_broken(found)]


def place_of(one: OfDevice, core: str = "") -> str:
    """`node-b core 5`, `node-b GPU5 (rank 13)`; cores of a node are no rank's."""
    rank = "" if one.device.startswith("NUMA") else f" (rank {one.rank})"
    return f"{one.host} {core or one.device}{rank}"


def node_of(one: OfDevice) -> Subject:
    return Subject("node", one.host)


def _known(proofs: Sequence[ComputeProof]) -> list[Finding]:
    done = [one for one in proofs if not one.reason]
    wrong = [
        tell(
            f"COMP-00{1 if fault.kind == 'known' else 2}",
            "wrong" if fault.kind == "known" else "unsteady",
            subject=node_of(one),
            at=place_of(one, fault.core),
            fault=fault,
            dtype=one.dtype,
            product=one.product,
            where=f"; {fault.pattern}" if fault.pattern else "",
        )
        for one in done
        for fault in one.faults
    ]
    if not done:
        return [tell("COMP-001", "unproven", because=_reasons(proofs))] if proofs else []
    if any(one.id == "COMP-001" for one in wrong):
        return wrong
    elements = sum(one.elements for one in done)
    devices = len({(one.host, one.device) for one in done})
    types = listed(list(dict.fromkeys(one.dtype for one in done)), 8)
    return [
        *wrong,
        tell(
            "COMP-001",
            "good",
            devices=counted(devices, "device"),
            types=types,
            products=sum(one.products for one in done),
            elements=elements,
            one_in=elements / devices / 3,
        ),
    ]


def _reasons(ones: Sequence[OfDevice]) -> str:
    return "; ".join(f"{one.dtype}: {one.reason}" for one in ones[:3])


def _alike(proofs: Sequence[ComputeProof]) -> Iterator[Finding]:
    """Of each product and type: who got other bits than most."""
    groups: dict[tuple[str, ...], list[ComputeProof]] = defaultdict(list)
    for one in proofs:
        if not one.reason:
            groups[one.product, one.software, one.dtype, one.shape].append(one)
    told = [
        finding for (_, _, dtype, _), group in groups.items() for finding in _others(dtype, group)
    ]
    yield from told
    if groups and not told and not any(one.faults or one.odd for one in proofs):
        most = max(map(len, groups.values()))
        yield tell("COMP-002", "good", devices=counted(most, "device"), types=len(groups))


def _others(dtype: str, group: Sequence[ComputeProof]) -> Iterator[Finding]:
    counts = Counter(one.digest for one in group if one.digest).most_common()
    settled = len(counts) == 1 or (len(counts) > 1 and counts[0][1] > counts[1][1])
    for one in group:
        named = {fault.core for fault in one.faults}
        for core in one.odd if one.digest or not named else ():
            if core in named:
                continue
            yield tell(
                "COMP-002",
                "core" if one.digest else "two",
                subject=node_of(one),
                at=place_of(one, core),
                dtype=dtype,
                product=one.product,
            )
        if one.digest and settled and one.digest != counts[0][0]:
            yield tell(
                "COMP-002",
                "device",
                subject=node_of(one),
                at=place_of(one),
                dtype=dtype,
                product=one.product,
                most=counts[0][1],
                of=len(group),
            )
    if not settled and len(counts) > 1:
        names = listed([place_of(one) for one in group], 6)
        yield tell(
            "COMP-002",
            "split",
            subject=node_of(group[0]),
            names=names,
            dtype=dtype,
            product=group[0].product,
        )


def _memory(rates: Sequence[ComputeRate]) -> Iterator[Finding]:
    checked = [one for one in rates if one.wrong is not None]
    for one in checked:
        if one.wrong:
            yield tell("COMP-003", "wrong", subject=node_of(one), at=place_of(one), one=one)
    if checked and not any(one.wrong for one in checked):
        devices = len({(one.host, one.device) for one in checked})
        yield tell("COMP-003", "good", devices=counted(devices, "device"), copies=len(checked))


def _broken(found: Compute) -> Iterator[Finding]:
    """Each device once; what none of its product does, it does not have."""
    every: list[OfDevice] = [*found.rates, *found.proofs]
    does = {_what(one) for one in every if not one.reason}
    ones = [one for one in every if one.broke or (one.reason and _what(one) in does)]
    first = {(one.host, one.device): one for one in reversed(ones)}
    for one in first.values():
        yield tell("COMP-007", "broke", subject=node_of(one), at=place_of(one), reason=one.reason)
    refused = [one for one in found.rates if one.reason and one not in ones]
    for reason, group in _by_reason(refused).items():
        what = listed(list(dict.fromkeys(f"{one.op} {one.dtype}" for one in group)), 6)
        yield tell("COMP-007", "refused", what=what, because=f"{place_of(group[0])}: {reason}")


def _what(one: OfDevice) -> tuple[str, ...]:
    return one.product, one.dtype, one.shape, getattr(one, "op", "proof")


def _by_reason(ones: Iterable[ComputeRate]) -> dict[str, list[ComputeRate]]:
    found: dict[str, list[ComputeRate]] = defaultdict(list)
    for one in ones:
        found[one.reason].append(one)
    return found
