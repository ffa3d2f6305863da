"""Findings about a folder that holds data and checkpoints (STOR-…)."""

from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Any

from wirespeed.checks.registry import first_lines, tell
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.records import Finding, Subject
from wirespeed.model.storage_records import Storage, StorageFigure, StorageNode, StorageTrouble
from wirespeed.model.units import counted, format_bandwidth, format_duration, format_size, listed
from wirespeed.statistics import LEAST_SAMPLES, has_interval

SLOW = 1.5
"""A node that surely takes this many times as long as the others is told."""
LATE_S = 1.0
"""Until what another node has written is seen; more is told."""
LOW = 0.05
"""Of space or inodes: less that is free is told."""
PAUSE_S = 90.0
"""Of a checkpoint: 5 % of half an hour, after which many jobs make the next."""
CACHED = 0.5
"""Of what was read: more that was in the page cache before makes figures those of memory."""
_FULL = {"ENOSPC": "full", "EDQUOT": "quota"}
_MEANS = {
    "ENOENT": "absent",
    "ENOTDIR": "no folder",
    "EACCES": "no right",
    "EPERM": "no right",
    "EROFS": "read-only",
    "ESTALE": "stale handle",
}


def storage_findings(storage: Storage) -> list[Finding]:
    """In the order of their ids; of one that came to no end what went wrong, alone."""
    if not storage.folder:
        return [tell("STOR-002", "no folder given")]
    looked_at = any(one.same is not None for one in storage.nodes)
    wrong = [one for one in storage.troubles if one.kind == "wrong"]
    return [
        *(_same_folder(storage) if looked_at else _unseen(storage)),
        *_answers(storage),
        *_room(storage),
        *([_trouble("STOR-005", "wrong", storage, wrong)] if wrong else ()),
        *(_measured(storage) if storage.complete and not storage.refused else ()),
        *_left(storage),
    ]


def _measured(storage: Storage) -> Iterator[Finding]:
    yield _checkpoints(storage)
    yield tell("STOR-005", "good", compared=format_size(storage.compared))
    yield _samples(storage)
    yield from _slow_nodes(storage)


# One folder, seen alike.


def _same_folder(storage: Storage) -> Iterator[Finding]:
    first = storage.nodes[0]
    bad = []
    for node in storage.nodes:
        case, told = _sight(node)
        if case:
            bad.append(
                _on("STOR-001", case, node.host, first=first.host, at=quote(storage.folder), **told)
            )
    yield from bad
    if not bad:
        seconds = [s for n in storage.nodes for s in (n.change_seen, n.name_seen) if s is not None]
        nodes = counted(len(storage.nodes), "node")
        yield tell("STOR-001", "good", nodes=nodes, longest=format_duration(max(seconds)))


def _unseen(storage: Storage) -> Iterator[Finding]:
    if storage.complete and len(storage.nodes) == 1:
        yield tell("STOR-001", "alone", at=quote(storage.folder))


def _sight(node: StorageNode) -> tuple[str, dict[str, Any]]:
    if node.same is False:
        return "another", {"what": f"{node.filesystem} of {node.source}"}
    if node.change_seen is None:
        return "old data", {}
    if node.name_seen is None:
        return "late", {"how": "not within 5 s"}
    longest = max(node.change_seen, node.name_seen)
    return ("late", {"how": f"after {format_duration(longest)}"}) if longest > LATE_S else ("", {})


# Whether it answers.


def _answers(storage: Storage) -> Iterator[Finding]:
    """One for each kind of trouble; a disk that is full is about room."""
    groups: dict[tuple[str, str, str], list[StorageTrouble]] = {}
    for one in storage.troubles:
        if one.kind in ("hung", "error") and one.error not in _FULL:
            groups.setdefault((one.kind, one.error, one.doing), []).append(one)
    for (kind, error, _), found in groups.items():
        refused = _MEANS.get(error, "refused") if error else "broke off"
        case = "hung" if kind == "hung" else refused
        yield _trouble("STOR-002", case, storage, found)
    if storage.complete and not groups:
        kinds = dict.fromkeys(f"{one.filesystem} ({one.source})" for one in storage.nodes)
        yield tell("STOR-002", "good", at=quote(storage.folder), kinds=listed(list(kinds)))


def _trouble(
    id: str, case: str, storage: Storage, found: Sequence[StorageTrouble], **more: Any
) -> Finding:
    """About the node, where it is one; evidence has every rank."""
    hosts = list(dict.fromkeys(one.host for one in found))
    first = found[0]
    told = {
        "at": quote(storage.folder),
        "host": listed(hosts),
        "doing": first.doing,
        "text": first.text,
        "error": f" ({first.error})" if first.error else "",
        "waited": format_duration(first.waited),
        "where": first.where,
        **more,
    }
    lines = (
        f"rank {one.rank} on {one.host}: {one.doing}: {one.text}"
        + (f" ({one.where})" if one.where else "")
        for one in found
    )
    who = Subject("node", hosts[0]) if len(hosts) == 1 else None
    return tell(id, case, subject=who, evidence=first_lines(lines), **told)


# Room.


def _room(storage: Storage) -> Iterator[Finding]:
    full = [one for one in storage.troubles if one.error in _FULL]
    if full:
        yield _trouble("STOR-003", _FULL[full[0].error], storage, full)
    elif storage.refused:
        yield tell("STOR-003", "refused", at=quote(storage.folder), why=storage.refused)
    elif storage.nodes:
        low = [found for node in storage.nodes if (found := _low(storage, node))]
        yield from low or [_enough(storage)]


def _low(storage: Storage, node: StorageNode) -> Finding | None:
    free, more = _free(node), 3 * storage.checkpoint
    told = {"at": quote(storage.folder), "free": format_size(free)}
    if node.inodes and node.free_inodes < LOW * node.inodes:
        files = f"{node.free_inodes:,} of {node.inodes:,} files"
        return _on("STOR-003", "few inodes", node.host, files=files, **told)
    if free < more:
        need = f"three of {format_size(storage.checkpoint)} ({storage.model})"
        return _on("STOR-003", "few checkpoints", node.host, need=need, **told)
    if free < LOW * node.total:
        return _on("STOR-003", "low", node.host, total=format_size(node.total), **told)
    return None


def _free(node: StorageNode) -> int:
    return node.free if node.quota is None else min(node.free, node.quota)


def _enough(storage: Storage) -> Finding:
    node = min(storage.nodes, key=_free)
    inodes = f", {node.free_inodes:,} files" if node.inodes else ""
    left = node.quota_unknown and f"quota not known: {node.quota_unknown}"
    if node.quota is not None:
        left = f"the quota leaves {format_size(node.quota)}"
    return tell(
        *("STOR-003", "good"),
        at=quote(storage.folder),
        free=format_size(node.free),
        total=format_size(node.total),
        inodes=inodes,
        evidence=filter(None, [left]),
    )


# What was measured.


def _checkpoints(storage: Storage) -> Finding:
    """Writing and reading by all ranks at once, and what that means for the model."""
    found = [one for name in ("write", "read", "save", "load") if (one := storage.best(name))]
    told = {one.access: f"{one.access} {rate(one)}" for one in found}
    files = ", ".join(told[name] for name in ("write", "read") if name in told)
    saved = ", ".join(told[name] for name in ("save", "load") if name in told) or "not measured"
    ranks = counted(found[0].ranks if found else 0, "rank")
    evidence = [*map(_line, found), *_cache_notes(storage)]
    save = storage.checkpoint_s("save") or storage.checkpoint_s("write")
    load = storage.checkpoint_s("load") or storage.checkpoint_s("read")
    if save is None:
        texts = {"files": files, "saved": saved, "ranks": ranks}
        return tell("STOR-004", "figures", evidence=evidence, **texts)
    size = format_size(storage.checkpoint)
    means = f"{size} of {storage.model} ({storage.checkpoint // 12:,} parameters with AdamW)"
    case = "long" if save.low > PAUSE_S else "good"
    case = case if has_interval(save.samples) else "unsure"
    return tell(
        *("STOR-004", case),
        model=storage.model,
        save=_middle(save, format_duration),
        load=_middle(load, format_duration) if load else "not known",
        means=means,
        figures=f"{files}; by torch.distributed.checkpoint: {saved}",
        ranks=ranks,
        evidence=evidence,
    )


def rate(one: StorageFigure) -> str:
    """`1.20 GB/s [1.10 to 1.31 GB/s]`: the middle of the rounds with its 95 % interval."""
    return _middle(one.rate, format_bandwidth) if one.rate else ""


def _middle(one: MedianTime, form: Callable[[float], str]) -> str:
    if one.samples < LEAST_SAMPLES:
        return f"{form(one.median)} (n={one.samples}: too few for an interval)"
    return f"{form(one.median)} [{form(one.low).removesuffix(' GB/s')} to {form(one.high)}]"


def _line(one: StorageFigure) -> str:
    samples = one.rate.samples if one.rate else 0
    return (
        f"{one.access} by {one.engine}: {rate(one)}, n={samples}, {format_size(one.size)} a rank; "
        f"a call {format_duration(one.latency.median)}, p99 {format_duration(one.p99)}, "
        f"at most {format_duration(one.max)}"
    )


def _cache_notes(storage: Storage) -> Iterator[str]:
    """What the figures are of."""
    node = storage.nodes[0]
    for one in storage.troubles:
        if one.kind == "skipped":
            yield f"torch.distributed.checkpoint: not measured, torch did not start: {one.text}"
    if node.in_memory:
        yield f"{node.filesystem} lies in memory: these are figures of memory"
    elif node.direct:
        yield "plain files past the page cache (O_DIRECT); the cache of a server cannot be left out"
    else:
        yield "the page cache was emptied of files before they were read; a server's cannot be"
    warm = [one for one in storage.figures if one.cached > CACHED]
    if warm and not node.in_memory:
        shares = ", ".join(f"{one.access} {one.cached:.0%}" for one in warm)
        yield f"in the reader's page cache all the same: {shares}"


def _samples(storage: Storage) -> Finding:
    """As files of their own, and as pieces of a large one."""
    found = {one.access: one for one in storage.figures}
    names = (("open", "files"), ("random read", "pieces of one file"))
    ways = [(how, one) for name, how in names if (one := found.get(name)) and one.per_s]  # type: ignore[call-overload]
    figures = ", ".join(f"{per_s(one)} as {how}" for how, one in ways)
    lines = [
        f"{one.access}: {per_s(one)}, n={one.per_s.samples}; one {format_duration(one.latency.median)}, "
        f"p99 {format_duration(one.p99)}, at most {format_duration(one.max)}"
        for one in storage.figures
        if one.per_s
    ]
    told = {"figures": figures, "size": format_size(storage.sample), "evidence": lines}
    need = storage.needed_per_s
    if not need or not ways:
        return tell("STOR-006", "figures", **told)
    if not all(has_interval(one.per_s.samples) for _, one in ways if one.per_s):
        return tell("STOR-006", "unsure", need=f"{need:,.0f}", source=storage.needed_from, **told)
    best = max(one.per_s.high for _, one in ways if one.per_s)
    least = min(one.per_s.low for _, one in ways if one.per_s)
    case = "too slow" if best < need else "by one way" if least < need else "good"
    return tell("STOR-006", case, need=f"{need:,.0f}", source=storage.needed_from, **told)


def per_s(one: StorageFigure) -> str:
    """`1,240/s [1,190/s to 1,300/s]`."""
    return _middle(one.per_s, lambda value: f"{value:,.0f}/s") if one.per_s else ""


def _slow_nodes(storage: Storage) -> Iterator[Finding]:
    if len({one.filesystem for one in storage.nodes}) > 1:
        return  # storage of several kinds
    known = [(one, one.slowest_ratio) for one in storage.figures if one.slowest_ratio]
    slow: dict[str, list[tuple[StorageFigure, MedianTime]]] = {}
    for one, ratio in known:
        if ratio.low > SLOW and ratio.samples >= LEAST_SAMPLES and one.access != "stat":
            slow.setdefault(one.slowest, []).append((one, ratio))
    for host, found in slow.items():
        worst, ratio = max(found, key=lambda pair: pair[1].median)
        told = f"{ratio.median:.1f} times [{ratio.low:.1f} to {ratio.high:.1f}]"
        lines = [
            f"{one.access}: {r.median:.1f} times [{r.low:.1f} to {r.high:.1f}]" for one, r in found
        ]
        yield _on("STOR-007", "slow", host, ratio=told, access=worst.access, evidence=lines)
    if known and not slow:
        yield tell("STOR-007", "good", most=f"{SLOW:g}")


def _left(storage: Storage) -> Iterator[Finding]:
    left = [one for one in storage.troubles if one.kind == "left"]
    if left:
        yield _trouble("STOR-008", "left", storage, left)
    elif storage.complete and not storage.refused:
        earlier = f", nor of {counted(storage.removed, 'earlier run')}" if storage.removed else ""
        yield tell("STOR-008", "good", earlier=earlier, at=quote(storage.folder))


def _on(id: str, case: str, host: str, **values: Any) -> Finding:
    return tell(id, case, subject=Subject("node", host), host=host, **values)
