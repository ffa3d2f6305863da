"""How long a rank of a joined world waits for rank 0's session to end a run that hangs."""

from types import SimpleNamespace
from typing import Any

from wirespeed.plan import Plan
from wirespeed.session.joined_world import SLACK_S, _SessionLoss


def test_work_that_was_announced_may_take_its_time() -> None:
    """A rank that imports or compiles for a minute was ended by itself after 45 s."""
    plan = Plan(command="check", steps=(), op_timeout_s=30.0, startup_timeout_s=120.0)
    nobody: Any = None
    loss = _SessionLoss(nobody, plan, "node-0")

    def bound_s(announced_s: float, *, started: bool = True) -> float:
        heartbeat: Any = SimpleNamespace(announced_s=announced_s)
        return loss._bound_s(heartbeat, started=started) - SLACK_S

    assert [bound_s(0.0), bound_s(0.0, started=False), bound_s(140.0)] == [30.0, 120.0, 140.0]
