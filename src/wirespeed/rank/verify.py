"""The data check of one configuration, apart from any timing."""

from functools import partial

from wirespeed.collectives.guess import describe_value, guess
from wirespeed.collectives.oracle import Buffers, Mismatch, Oracle, allocate, sentinel_fill
from wirespeed.collectives.patterns import pattern_for, why_not_exact
from wirespeed.model.records import Verification, WrongData
from wirespeed.rank.place import Place, Site, broken_barriers, busy_for, connect, synchronize

SMALL_WORK = 1 << 24
"""Elements times ranks up to which a data check is quick enough to need no bound of its own."""
MOST_ERRORS = 64
"""Ranks described one by one; beyond that only counted."""


def reason_not_to_run(place: Place, site: Site) -> str:
    """Why this case cannot run in this world at all, or nothing. The same on every rank."""
    case = site.case
    if not site.members:
        return f"groups {case.groups}: no group of 2 or more ranks in this world"
    if min(len(ranks) for ranks in site.members) < site.collective.min_ranks:
        return f"{case.op} needs {site.collective.min_ranks} ranks"
    if case.root >= min(len(ranks) for ranks in site.members):
        return f"root {case.root} is not in a group of {site.ranks} ranks"
    return place.engine.why_not(site.collective, site.dtype.name, case.redop, case.in_place)


def verify(place: Place, site: Site, seed: int, previous: int | None) -> Verification:
    """Run the operation once on seeded data and compare; collective, and alike on every rank.

    previous: the seed of the data check before this one, to recognise its leftovers.
    """
    reason = reason_not_to_run(place, site) or why_not_exact(
        site.dtype, site.case.redop, site.ranks
    )
    record = partial(Verification, **site.told(place.engine.name))
    if reason:
        return record(wrong=None, elements=0, reason=reason)
    if not site.collective.has_data:
        broken, checked = broken_barriers(place, site)
        return record(wrong=broken, elements=checked)
    connect(place, site)
    found, refusal = _attempt(place, site, seed, previous)
    if site.case.redop in ("min", "max"):
        # A second seed moves the extremes to other ranks (see Pattern._raise_holder). Every rank
        # makes both attempts, whatever it saw: control flow is the same on all.
        again, refusal = _attempt(place, site, seed + 1, seed)
        found = found if found and found[0].wrong else again
    seen = (found[0].wrong, found[0].elements) if found else (0, 0)
    totals = place.control.matrix([*map(float, seen), float(bool(refusal))])
    if float(totals[:, 2].max()) > 0:
        words = [text for text in place.control.objects(refusal, str) if text]
        return record(wrong=None, elements=0, reason=words[0])
    wrong, elements = int(totals[:, 0].sum()), int(totals[:, 1].sum())
    errors: tuple[WrongData, ...] = ()
    if wrong:
        mine = [found[1]] if found and found[1] else []
        told = place.control.objects(mine, [WrongData])
        errors = tuple(error for errors in told for error in errors)[:MOST_ERRORS]
    return record(wrong=wrong, elements=elements, errors=errors)


def _attempt(
    place: Place, site: Site, seed: int, previous: int | None
) -> tuple[tuple[Mismatch, WrongData | None] | None, str]:
    """(what was found here, the backend's refusal): a rank outside of every group finds nothing."""
    from wirespeed.collectives.engines.torch_engine import is_refusal

    if site.group is None:
        return None, ""
    oracle, bound_s = oracle_for(place, site, seed), slow_s(site)
    with busy_for(place, bound_s):
        buffers = prepared(place, site, oracle)
    place.tick()
    try:
        place.engine.bind(site.call(buffers.input, buffers.output))()
        synchronize(place.device)
    except (RuntimeError, TypeError, ValueError) as error:
        if is_refusal(error):
            return None, f"{place.engine.backend}: {str(error).splitlines()[0]}"
        raise
    with busy_for(place, bound_s):
        found = judged(place, oracle, buffers, site.group.ranks, previous)
    return found, ""


def oracle_for(place: Place, site: Site, seed: int) -> Oracle:
    """Of this case on data of that seed."""
    pattern = pattern_for(site.dtype, site.case.redop, site.geometry.ranks, seed)
    ulps = place.engine.ulps(site.case.redop, site.geometry.ranks)
    return Oracle(site.collective, site.geometry, pattern, ulps)


def slow_s(site: Site) -> float:
    """A generous bound for making the data of a large case, in seconds; 0 for a small one.

    Hashing and reducing takes about 20 ns an element and rank on one slow core.
    """
    elements = site.collective.input_count(site.geometry)
    elements += site.collective.output_count(site.geometry)
    ranks = site.geometry.ranks if site.collective.reduces else 1
    work = elements * ranks
    return 0.0 if work < SMALL_WORK else 60.0 + work * 200e-9


def prepared(place: Place, site: Site, oracle: Oracle) -> Buffers:
    """Buffers with this rank's data, and what no result may leave in the output."""
    case = site.case
    (buffers,) = allocate(
        site.collective, site.geometry, site.torch_dtype, place.device, in_place=case.in_place
    )
    sentinel_fill(buffers.whole)
    oracle.fill_input(buffers.input)
    one_buffer = case.op in place.engine.in_place_only
    if one_buffer and not buffers.input.numel():
        oracle.fill_decoy(buffers.output)
    elif one_buffer and not case.in_place and buffers.output.numel() == buffers.input.numel():
        buffers.output.copy_(buffers.input)
    return buffers


def judged(
    place: Place,
    oracle: Oracle,
    buffers: Buffers,
    members: tuple[int, ...],
    previous: int | None,
) -> tuple[Mismatch, WrongData | None]:
    """What is wrong in this rank's output, and in words; members: global ranks of its group."""
    found = oracle.compare(buffers.output)
    if not found.wrong:
        return found, None
    width = buffers.output.element_size()
    segment = found.segment
    more = f" and {found.segments_wrong - 1} more" if found.segments_wrong > 1 else ""
    said = guess(oracle, buffers.output, found, previous)
    return found, WrongData(
        rank=place.rank,
        host=place.hosts[place.rank],
        wrong=found.wrong,
        elements=found.elements,
        first_byte=found.first * width,
        last_byte=(found.last + 1) * width - 1,
        chunk=(segment.label if segment else "") + more,
        guess=said.text,
        suspect=-1 if said.suspect is None else members[said.suspect],
        example=describe_value(found, buffers.output.dtype),
    )
