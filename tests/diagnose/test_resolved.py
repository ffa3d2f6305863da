"""Which of two lines about a pod came later."""

import pytest

from wirespeed.diagnose.derived import Episodes, is_over
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit, Line

RULE = Rule(id="T-001", category="t", role="fact", sentence="x")


def hit(text: str, order: int, time: float | None = None) -> Hit:
    line = Line("a.log", order, text, order, time=time, clock="date" if time is not None else "")
    return Hit(RULE, line, {})


def over(trouble: Hit, end: Hit) -> bool:
    ends = Episodes()
    ends.add(end)
    return is_over(trouble, [ends])


@pytest.mark.parametrize(
    ("trouble", "end", "expected"),
    [
        ("3m  Warning  x  pod/w-0", "40s  Normal  y  pod/w-0", True),
        ("40s  Warning  x  pod/w-0", "3m  Normal  y  pod/w-0", False),
        ("2d4h  Warning  x  pod/w-0", "27h  Normal  y  pod/w-0", True),
        ("40s (x9 over 9m)  Warning  x  pod/w-0", "5m  Normal  y  pod/w-0", False),
        ("3m  Warning  x  pod/w-1", "40s  Normal  y  pod/w-0", False),
        ("3m  Warning  x", "40s  Normal  y  pod/w-0", True),
        ("3m  Warning  x  pod/w-0", "Successfully assigned ml/w-0 to n", True),
        ("3m  Warning  x  pod/w-0", "w-0   1/1   Running   0   9m", True),
    ],
)
def test_by_age_and_pod(trouble: str, end: str, expected: bool) -> None:
    assert over(hit(trouble, 1), hit(end, 2)) is expected


def test_by_time_and_by_order() -> None:
    assert over(hit("x", 5, time=10.0), hit("y", 2, time=20.0))
    assert not over(hit("x", 2, time=20.0), hit("y", 5, time=10.0))
    assert not over(hit("x", 5), hit("y", 2))


def test_pods_are_bounded() -> None:
    seen = Episodes()
    for number in range(6_000):
        seen.add(hit(f"3m Warning x pod/w-{number}", number))
    assert len(seen.latest) == 4_096
