"""The rank program where it cannot join."""

from typing import Any
from unittest.mock import Mock

import pytest

from wirespeed.node.identity import detect
from wirespeed.plan import Plan
from wirespeed.rank import program


def test_a_rank_that_cannot_join_tells_its_nodes_facts_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under load the node's first rank, which tells them, is ended before it has."""
    world = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    identity = detect({**world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
    assert identity is not None
    join = Mock(side_effect=RuntimeError("no interface"))
    monkeypatch.setattr("wirespeed.rank.joining.join", join)
    records: dict[str, Any] = {}
    heartbeat = Mock(record=lambda kind, data: records.setdefault(kind, data))
    with pytest.raises(RuntimeError, match="no interface"):
        plan = Plan(command="check", steps=())
        program.RankProgram(identity, plan, heartbeat, Mock(), "gloo").join_watched(Mock())
    assert tuple(records["node"]["ranks"]) == (4, 5, 6, 7)
