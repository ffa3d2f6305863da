"""Traces of the right form with values that make no sense: no traceback, no warning of numpy."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trace_making import job, write
from wirespeed.errors import InputError
from wirespeed.watch.traces.analysis import analysed
from wirespeed.watch.traces.judging import judged
from wirespeed.watch.verdict import watch_grade

ODD = st.sampled_from(
    [
        0,
        -1,
        1e308,
        -1e308,
        1e18,
        "x",
        None,
        [],
        {},
        True,
        10**30,
        -5.5,
        [10**9],
        [[-1]],
        "[0, 1, 1]",
    ]
)
NAMES = st.sampled_from(
    [
        "ProfilerStep#999999999999",
        "ProfilerStep#-3",
        "gloo:",
        "ncclDevKernel_",
        "record_param_comms",
    ]
)
ARGS = st.dictionaries(
    st.sampled_from(["Input Dims", "Input type", "Process Group Ranks", "Seq", "In msg nelems"]),
    ODD,
)


@pytest.mark.hostile("hostile values")
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_values_without_sense_are_left_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "rank0.json"
    events: list[dict[str, Any]] = list(job(0, 6, ranks=2))
    for one in data.draw(st.lists(st.sampled_from(events), max_size=4)):
        field = data.draw(st.sampled_from(["ts", "dur", "name", "tid", "cat", "args", "ph"]))
        one[field] = data.draw({"name": ODD | NAMES, "args": ODD | ARGS}.get(field, ODD))
    write(path, 0, iter(events), world=2)
    told = {name: data.draw(ODD) for name in ("rank", "world_size", "pg_config")}
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "distributedInfo": told}))
    try:
        found = judged(analysed([str(path)]))
    except InputError as error:
        assert error.expected
    else:
        assert watch_grade(found.findings).exit_code in (0, 1, 3)
