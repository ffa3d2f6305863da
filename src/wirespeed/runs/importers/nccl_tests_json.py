"""The JSON that nccl-tests writes with `-J`, versions 1 to 3, with its quirks.

Booleans are the texts "true" and "false", `okay` may be "unchecked", `root` is a padded text, NaN
is the text "nan", `nwrong` may be null, a side that was not run is null, and `env` holds every
variable, secrets too: of those only communication settings are kept. A file whose writer was
killed is cut in the middle: its whole results are kept. Source: src/util.cu of NVIDIA/nccl-tests.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from statistics import fmean
from typing import Any

from wirespeed.errors import InputError
from wirespeed.records import TimeStats
from wirespeed.runs import jsontext
from wirespeed.runs.importers.environment import keep_known
from wirespeed.runs.importers.table import Device, Row, Side, Table
from wirespeed.statistics import median_interval

__all__ = ["read_json"]

_US = 1e-6
_GB = 1e9
_SETTINGS = {
    "minimum_bytes": "minBytes",
    "maximum_bytes": "maxBytes",
    "warmup_iters": "warmup iters",
    "iterations": "iters",
    "aggregated_iterations": "agg iters",
    "validation": "validation",
    "graph": "graph",
}
_ITER_STATS = ("p50_us", "min_us", "p95_us", "p99_us", "max_us")


def read_json(text: str, *, source: str) -> Table:
    """The table; InputError where `text` is not such a file or has no results."""
    data, whole = _parse(text, source)
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise InputError(
            f"{source}: JSON without a list `results`",
            expected="the file that nccl-tests -J writes, or its text output",
        )
    config = _object(data.get("config"))
    table = Table(
        program=_first_text(data.get("args")),
        settings=_settings(config),
        blocking=config.get("blocking_collectives") in ("true", True),
        versions=_versions(data),
        environment=keep_known(_list(data.get("env"))),
        devices=[device for item in _list(config.get("devices")) if (device := _device(item))],
        complete=whole and "out_of_bounds" in data,
        out_of_bounds=_integer(_object(data.get("out_of_bounds")).get("count")),
        errors=[str(error)[:500] for error in _list(data.get("errors")) if error],
        seconds=_seconds(data),
    )
    for item in data["results"]:
        row = _row(_object(item))
        if row is None:
            table.damaged += 1
        else:
            table.rows.append(row)
    return table


def _parse(text: str, source: str) -> tuple[Any, bool]:
    """The document and whether it was whole; one that was cut is closed after its last result."""
    try:
        return jsontext.parse(text, source=source), True
    except InputError:
        closed = _close(text)
        if closed is None:
            raise
        return jsontext.parse(closed, source=source), False


def _close(text: str) -> str | None:
    """`text` up to the last whole object in a list of the outermost object, with its ends."""
    open_brackets: list[str] = []
    last, in_text, escaped = 0, False, False
    for index, letter in enumerate(text):
        if in_text:
            in_text = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_text = True
        elif letter in "{[":
            open_brackets.append(letter)
        elif letter in "}]":
            if not open_brackets:
                return None
            open_brackets.pop()
            if open_brackets == ["{", "["]:
                last = index + 1
    return text[:last] + "]}" if last else None


def _settings(config: Mapping[str, Any]) -> dict[str, int]:
    found = {name: _integer(config.get(key)) for key, name in _SETTINGS.items()}
    return {name: value for name, value in found.items() if value is not None}


def _versions(data: Mapping[str, Any]) -> dict[str, str]:
    """NCCL writes 2.27.3 as 22703."""
    number = _integer(data.get("nccl_version"))
    if not number or number < 10_000:
        return {}
    return {"nccl": f"{number // 10_000}.{number // 100 % 100}.{number % 100}"}


def _device(item: object) -> Device | None:
    fields = _object(item)
    rank, host = _integer(fields.get("rank")), fields.get("hostname")
    if rank is None or not isinstance(host, str):
        return None
    return Device(
        rank=rank,
        group=_integer(fields.get("group")) or 0,
        host=host.strip(),
        index=_integer(fields.get("device")) or 0,
        bus=str(fields.get("device_hex", "")),
        name=str(fields.get("device_info", "")).strip(),
    )


def _row(item: Mapping[str, Any]) -> Row | None:
    size, count = _integer(item.get("size")), _integer(item.get("count"))
    if size is None or count is None or not isinstance(item.get("type"), str):
        return None
    sides = {}
    for in_place, key in ((False, "out_of_place"), (True, "in_place")):
        side = _side(_object(item.get(key)), _object(item.get(f"{key}_per_iter")))
        if side is not None:
            sides[in_place] = side
    root = _integer(item.get("root"), least=-1)
    return Row(
        size=size,
        count=count,
        dtype=item["type"],
        redop=str(item.get("redop") or ""),
        root=root,
        sides=sides,
        iterations=_integer(item.get("actual_iterations")),
    )


def _side(fields: Mapping[str, Any], per_iteration: Mapping[str, Any]) -> Side | None:
    time = _number(fields.get("time", fields.get("cpu_time")))
    algbw, busbw = _number(fields.get("alg_bw")), _number(fields.get("bus_bw"))
    if time is None or algbw is None or busbw is None:
        return None
    return Side(
        time=time * _US,
        algbw=algbw * _GB,
        busbw=busbw * _GB,
        wrong=_integer(fields.get("nwrong")),
        stats=_stats(per_iteration),
        time_step=0.5e-6 * _US,
        busbw_step=0.5e-6 * _GB,
    )


def _stats(fields: Mapping[str, Any]) -> TimeStats | None:
    """Of the per-iteration report; the interval of the median and the mean from its times."""
    numbers = [_number(fields.get(name)) for name in _ITER_STATS]
    times = [t * _US for item in _list(fields.get("times_us")) if (t := _number(item)) is not None]
    if None in numbers or not times:
        return None
    median, least, p95, p99, most = ((number or 0.0) * _US for number in numbers)
    interval = median_interval(times)
    return TimeStats(
        median=median,
        mean=fmean(times),
        low=min(interval.low, median),
        high=max(interval.high, median),
        min=least,
        p95=p95,
        p99=p99,
        max=most,
    )


def _seconds(data: Mapping[str, Any]) -> float:
    """From `start_time` to `end_time`; 0 where they are not both there."""
    try:
        start, end = (datetime.fromisoformat(str(data[k])) for k in ("start_time", "end_time"))
        return max(0.0, (end - start).total_seconds())
    except (KeyError, ValueError, TypeError):
        return 0.0


def _number(value: object) -> float | None:
    """A finite figure that is not negative, also where it is written as a text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number < 1e18 else None


def _integer(value: object, *, least: int = 0) -> int | None:
    if isinstance(value, str) and value.strip() == "-1" and least < 0:
        return -1
    if value == -1 and least < 0 and not isinstance(value, bool):
        return -1
    number = _number(value)
    return int(number) if number is not None else None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first_text(value: object) -> str:
    items = _list(value)
    return str(items[0]).rpartition("/")[2] if items else ""
